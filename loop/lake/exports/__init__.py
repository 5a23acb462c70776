"""Rows of the lake go out, in the forms that trainers and viewers read."""

"""Exports: rows of the lake in the formats that trainers and viewers read."""

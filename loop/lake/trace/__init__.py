"""Tracing one row: where it comes from, what was made from it and why, how it changed."""

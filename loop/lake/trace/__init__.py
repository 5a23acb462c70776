"""Tracing one row: its sources, the rows made from it and why, its changes."""

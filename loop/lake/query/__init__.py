"""Querying a lake: SQL, lists with filters, and the formats of output."""

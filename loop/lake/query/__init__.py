"""Asking a lake: SQL, lists with filters, and the forms in which rows are written."""

"""The Python interface: runs to read, and functions that work on them."""

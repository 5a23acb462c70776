"""The Python interface: runs to read, and what works on them."""

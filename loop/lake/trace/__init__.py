"""Following one row: what was made of it and why, from where, and how it changed."""

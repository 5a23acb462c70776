"""Scores of single answers by a strong judge: what it is asked, and how its reply is read."""

"""Facts: an answer's atomic statements, and whether the reference supports them (FActScore)."""

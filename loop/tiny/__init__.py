"""The tiny world: the loop's default, with generated prompts and models for two CPU cores."""

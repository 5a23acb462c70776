"""A run in progress: its models, handles on rows, budget, admission, stop."""

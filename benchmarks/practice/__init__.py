"""The studies of `practices.py`: what each practice changes, off and on."""

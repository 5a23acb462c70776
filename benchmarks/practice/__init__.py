"""The studies of `practices.py`: what each practice changes, switched off and on."""

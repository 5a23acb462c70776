"""The commands of the command line, by topic; `loop/cli.py` names them."""

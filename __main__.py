"""`python -m lpfloop` is `lpfloop`."""

from lpfloop.loop.cli import main

main()

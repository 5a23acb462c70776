"""`python -m lpfloop` is `lpfloop`."""

from lpfloop.loop.cli.app import main

main()

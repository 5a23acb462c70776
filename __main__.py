"""`lpfloop` and `python -m lpfloop`.

The command line's modules take a while to import. Until a command can end by itself, Ctrl-C ends
the process at once and without a traceback.
"""

import gc
import os
import signal

INTERRUPTED = 130


def main() -> None:
    """Run the command line."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # A shell may have it ignored.
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    # The modules stay: collecting garbage among their objects takes a fifth of the imports' time.
    gc.disable()
    from lpfloop.loop.cli.app import main as command_line

    gc.freeze()
    gc.enable()
    try:
        signal.signal(signal.SIGINT, handler)
        command_line()
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None


if __name__ == "__main__":
    main()

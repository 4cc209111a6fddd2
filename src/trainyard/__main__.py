"""`python -m trainyard` is `trainyard`."""

from __future__ import annotations

import gc
import os
import sys

# Imports and a start make about 100,000 objects that stay. To look through them after each 700 new ones, as Python does
# by default, costs a seventh of the processor time of `trainyard run` of a small script.
GC_THRESHOLD = (100_000, 20, 20)


def start() -> None:
    """The command line, and an end without taking every module apart: that alone takes a quarter of a second."""
    gc.set_threshold(*GC_THRESHOLD)
    try:
        from trainyard.cli import main
    except KeyboardInterrupt:  # nothing has been started yet
        os._exit(130)

    try:
        main(prog_name="trainyard")
    except SystemExit as ended:
        code = 0 if ended.code is None else ended.code
        if not isinstance(code, int):
            raise
        try:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:  # `>&-`: it was closed before the start
                    stream.flush()
        except (OSError, ValueError):  # what cannot be written is the interpreter's to tell
            raise ended from None
        os._exit(code)


if __name__ == "__main__":
    start()

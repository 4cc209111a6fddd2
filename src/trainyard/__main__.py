"""`python -m trainyard` is `trainyard`."""

from __future__ import annotations

import os
import sys

from trainyard.garbage_collection import collect_seldom


def start() -> None:
    """The command line, and an end without taking every module apart: that alone takes a quarter of a second."""
    collect_seldom()
    try:
        if sys.argv[1:2] == ["up"] and "--help" not in sys.argv:
            from trainyard.app.background.daemon_interpreter import start_early

            start_early()
        from trainyard.cli import main
    except KeyboardInterrupt:  # nothing has been started yet
        os._exit(130)

    try:
        main(prog_name="trainyard")
    except SystemExit as system_exit:
        code = 0 if system_exit.code is None else system_exit.code
        if not isinstance(code, int):
            raise
        try:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:  # `>&-`: it was closed before the start
                    stream.flush()
        except (OSError, ValueError):  # what cannot be written is the interpreter's to tell
            raise system_exit from None
        os._exit(code)


if __name__ == "__main__":
    start()

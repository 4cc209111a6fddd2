"""The command line: a person's words in, a person's words out.

Rules for this room:
- One file per command. `commands.py` knows the commands by name and loads one only when it is called: `--help`, `plan`
  and `lint` load neither a server nor an HTTP library.
- What a person asked for goes to stdout, everything else to stderr. A problem names the place and the fix.
"""

from trainyard.cli.commands import main

__all__ = ["main"]

"""The command line interface.

Rules for this package:
- One module per command on this floor. `commands.py` has the table of commands and imports a command's module only when
  the command is invoked: `--help`, `plan` and `lint` import neither a server nor an HTTP library.
- The requested output goes to stdout, all other text to stderr. An error message names the place and the fix.
"""

from trainyard.cli.commands import main

__all__ = ["main"]

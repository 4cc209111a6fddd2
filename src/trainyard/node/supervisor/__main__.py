"""`python -I -S supervisor/ FD MODE FOLDER`: see the package's docstring."""

from __future__ import annotations

import importlib
import os
import sys

if __name__ == "__main__":
    # The program runs outside of its package, so that its start does not import the node process's libraries.
    sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    importlib.import_module("supervisor.loop").main(int(sys.argv[1]), sys.argv[2])

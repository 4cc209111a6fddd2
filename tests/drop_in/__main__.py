"""`python -m tests.drop_in record [PATTERN ...]`: write the answers of Kubeflow's operators anew.

With patterns, only those to the scenarios whose KIND/NAME a shell pattern matches. `check` instead of `record` compares
the answers with what is stored, and writes nothing. The first run builds the operators, which needs Go.
"""

from __future__ import annotations

import sys

from tests.drop_in.record import record


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] not in ("record", "check"):
        print(__doc__, file=sys.stderr)
        return 2
    return record(arguments[1:] or ["*"], write=arguments[0] == "record")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

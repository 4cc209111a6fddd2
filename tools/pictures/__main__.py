"""`make pictures`: the pictures of the documents, of real jobs on this machine.

python -m tools.pictures [--only page|terminal]

Into docs/pictures: page-NAME-light.png and -dark.png, views of the page in chromium (`make browser` installs it), and
first-hour.svg, the first commands in a terminal.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tools.pictures import jobs, page, terminal

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
MAKERS = {"page": page.pictures, "terminal": terminal.pictures}


def main() -> None:
    """Make them, and print their sizes."""
    parser = argparse.ArgumentParser(prog="python -m tools.pictures")
    parser.add_argument("--only", choices=MAKERS)
    only = parser.parse_args().only
    for make in [MAKERS[only]] if only else MAKERS.values():
        with jobs.cluster() as cluster:
            for path in make(cluster, PICTURES):
                print(f"{path.relative_to(PICTURES.parents[1])}  {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()

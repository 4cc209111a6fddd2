"""`make pictures`: the pictures of the documents.

python -m tools.pictures [--only page|terminal|views]

Into docs/pictures: page-NAME-light.png and -dark.png, views of the page in chromium (`make browser` installs it), and
first-hour.svg, the first commands in a terminal. `page` and `terminal` are of real jobs on this machine, `views` of
made-up ones: a job of 64 ranks in each view.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from tools.pictures import jobs, page, terminal, views

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
MAKERS = {"page": page.pictures, "terminal": terminal.pictures}  # of the jobs of a cluster


def main() -> None:
    """Make them, and print their sizes."""
    parser = argparse.ArgumentParser(prog="python -m tools.pictures")
    parser.add_argument("--only", choices=[*MAKERS, "views"])
    only = parser.parse_args().only
    for name in [only] if only else [*MAKERS, "views"]:
        if name == "views":
            show(views.pictures(PICTURES))
            continue
        with jobs.cluster() as cluster:
            show(MAKERS[name](cluster, PICTURES))


def show(paths: Iterable[Path]) -> None:
    """Print each picture, as it is made, with its size."""
    for path in paths:
        print(f"{path.relative_to(PICTURES.parents[1])}  {path.stat().st_size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main()

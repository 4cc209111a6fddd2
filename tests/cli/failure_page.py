"""docs/failures.md, made of the failures in failure_cases.py and the answers in testdata/failures."""

from __future__ import annotations

from pathlib import Path

from tests.cli.failure_cases import CASES, Failure

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "failures.md"
ANSWERS = ROOT / "testdata" / "failures"

TEXT = """\
# The output of `trainyard why` for each failure

Written by `pytest tests/cli --update` from the failures in `tests/cli/failure_cases.py`. Each of them is a real job
on a local cluster; the whole output of `why` is compared, with names, paths, times and process numbers replaced.
`trainyard run` and `submit --wait` end with the same lines, without log lines that they have just printed. With which
frameworks, kinds and networks jobs are tested: [images](images.md#tested).

| failure | cause |
|---|---|
{table}

## The daemon was killed with -9

`trainyard status` prints `not up: its daemon was killed`. Every other command exits with 3:

```
the daemon of the cluster default was killed; its jobs and files are kept: go on
  with `trainyard up`, or name another with --kubeconfig FILE or $KUBECONFIG
```
"""


def answer_file(case: Failure) -> Path:
    return ANSWERS / f"{case.slug}.txt"


def page() -> str:
    answers = {case: answer_file(case).read_text().rstrip() for case in CASES}
    rows = [f"| [{case.title}](#{case.slug}) | {cause(answer)} |" for case, answer in answers.items()]
    parts = [f"\n## {case.title}\n\n```\n{answer}\n```\n" for case, answer in answers.items()]
    return TEXT.replace("{table}", "\n".join(rows)) + "".join(parts)


def cause(answer: str) -> str:
    """The first finding, in one line."""
    _, _, rest = answer.partition("\n")
    first = rest.partition("\n    where:")[0]
    return " ".join(first.split()).partition(": ")[2].replace("|", "\\|")

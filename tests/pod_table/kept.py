"""What a real kubelet has shown of the rows, in testdata/pod_table, and how a trace differs from it.

Rules:
- A row is run several times on the kubelet, and every value that a path of its trace has had there is kept: some depend
  on when the kubelet looks. A trace of ours may have any of them.
- `Row.differs` names the paths in which ours deliberately differs: there an equal value is a fault, too, as the
  documentation is no longer true.
- The kept values of a row have its digest: after a change of the row they are recorded anew (`make kept-pods`).
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec

from tests.pod_table.rows import ROWS, Row
from tests.pod_table.trace import Trace
from tests.support.kept_answers import digest
from trainyard.objects import decode

FOLDER = Path(__file__).parents[2] / "testdata" / "pod_table"
KUBELET = FOLDER / "kubelet-1.37.1.json"


class KeptRow(msgspec.Struct, frozen=True):
    """`row`: the digest of the row. `facts`: path -> the values that it has had, None for a trace without it."""

    row: str
    facts: dict[str, list[Any]]


class Kept(msgspec.Struct, frozen=True):
    """`node`: the versions of what ran the pods."""

    node: dict[str, str]
    rows: dict[str, KeptRow]


def read(path: Path = KUBELET) -> Kept:
    return msgspec.convert(decode(path.read_bytes()), Kept)


def write(path: Path, node: dict[str, str], traces: Sequence[dict[str, Trace]]) -> None:
    """Write these runs of the table: row -> trace each. Rows that were not run keep the answers that the file has of
    the same node."""
    before = read(path) if path.exists() else Kept({}, {})
    rows = dict(before.rows) if before.node == node else {}
    for row in ROWS:
        if all(row.name in run for run in traces):
            rows[row.name] = KeptRow(row_digest(row), merged([run[row.name] for run in traces]))
    rows = {row.name: rows[row.name] for row in ROWS if row.name in rows}
    path.parent.mkdir(exist_ok=True)
    text = msgspec.json.format(msgspec.json.encode(Kept(node, rows)), indent=1)
    path.write_bytes(text + b"\n")


def merged(traces: Sequence[Trace]) -> dict[str, list[Any]]:
    """Path -> the values that it has in the traces, each once."""
    facts: dict[str, list[Any]] = {}
    for path in sorted({path for trace in traces for path in trace}):
        values = facts.setdefault(path, [])
        for trace in traces:
            if trace.get(path) not in values:
                values.append(trace.get(path))
    return facts


def row_digest(row: Row) -> str:
    """Of what is sent to the API server for the row."""
    steps = [
        (type(step).__name__, {name: getattr(step, name) for name in step.__struct_fields__ if name != "when"})
        for step in row.steps
    ]
    return digest(msgspec.json.encode([row.spec, row.metadata, row.objects, steps]))


def differences(kept: Kept, row: Row, trace: Trace) -> list[str]:
    """A line for each path in which the trace is not as the kubelet's; and for each that `differs` names, and is."""
    known = kept.rows.get(row.name)
    if known is None or known.row != row_digest(row):
        return [f"{row.name}: no answer of a kubelet is kept: make kept-pods"]
    lines = []
    for path in sorted({*known.facts, *trace}):
        values, actual = known.facts.get(path, [None]), trace.get(path)
        is_named = any(fnmatchcase(path, pattern) for pattern in (*row.differs, *row.ignored))
        if actual not in values and not is_named:
            expected = "\n      or: ".join(map(repr, values))
            lines.append(f"{row.name}: {path}\n    ours: {actual!r}\n kubelet: {expected}")
    for pattern in row.differs:
        paths = [path for path in {*known.facts, *trace} if fnmatchcase(path, pattern)]
        if all(trace.get(path) in known.facts.get(path, [None]) for path in paths):
            lines.append(f"{row.name}: {pattern} is as a kubelet shows it: remove it from `differs`, and from the page")
    return lines

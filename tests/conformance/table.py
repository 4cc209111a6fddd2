"""Renders docs/api-server.md: the table of checks."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

from tests.conformance.catalogue import Check

TEXT = """\
# What the API server does

Each sentence is a check of `tests.conformance`. The same code runs against the embedded server of
`trainyard up` and a real control plane (`make control-plane`: etcd, kube-apiserver, kube-controller-manager,
kube-scheduler). `make test` fails when the embedded server does not pass a check, `make test-cluster` when the real one
does not. Each check is also proven to fail on a mutated embedded server; the last column describes the mutation.

    python -m tests.conformance                        print this page
    python -m tests.conformance --run                  check a fresh embedded server
    python -m tests.conformance --run --kubeconfig F   check that cluster, in namespaces of its own

Deliberate differences are in [compatibility](compatibility.md).

{count} checks.
"""


def page(checks: Iterable[Check], failed: Mapping[str, frozenset[str]] | None = None) -> str:
    """The page. `failed` has the names of failed checks under "embedded" and "real"."""
    checks = tuple(checks)
    failed = failed or {}
    lines = [TEXT.format(count=len(checks))]
    for area, members in itertools.groupby(checks, key=lambda check: check.area):
        lines += [f"## {area[0].upper()}{area[1:]}", "", "| behaviour | embedded | real | fails on a server that |"]
        lines += ["|---|---|---|---|"]
        for check in members:
            results = ["no" if check.name in failed.get(server, ()) else "yes" for server in ("embedded", "real")]
            mutation = check.mutation.description if check.mutation else "nothing"
            lines.append(f"| {_cell(check.sentence)} | {results[0]} | {results[1]} | {_cell(mutation)} |")
        lines.append("")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")

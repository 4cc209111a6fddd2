"""docs/api-server.md: the table of what holds."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

from trainyard.testing.check_server.catalogue import Check

TEXT = """\
# What the API server does

Each sentence is a check of `trainyard.testing.check_server`. The same code asks the embedded server of `trainyard up`
and a real control plane (`make control-plane`: etcd, kube-apiserver, kube-controller-manager, kube-scheduler). Both
must do what it says: `make test` (ours) and `make test-cluster` (the real one) fail otherwise. Each check has been seen
to fail, on an embedded server that is broken on purpose in the way the last column says.

    python -m trainyard.testing.check_server                        this page
    python -m trainyard.testing.check_server --run                  ask a fresh embedded server
    python -m trainyard.testing.check_server --run --kubeconfig F   ask that cluster, in namespaces of its own

Deliberate differences are in [compatibility](compatibility.md).

{count} checks.
"""


def page(checks: Iterable[Check], failed: Mapping[str, frozenset[str]] | None = None) -> str:
    """`failed`: names of checks that did not hold, by "ours" and "real"."""
    checks = tuple(checks)
    bad = failed or {}
    lines = [TEXT.format(count=len(checks))]
    for area, members in itertools.groupby(checks, key=lambda one: one.area):
        lines += [f"## {area.capitalize()}", "", "| what holds | ours | real | seen to fail on a server that |"]
        lines += ["|---|---|---|---|"]
        for one in members:
            seen = ["no" if one.name in bad.get(who, frozenset()) else "yes" for who in ("ours", "real")]
            words = one.breaks.words if one.breaks else "nothing"
            lines.append(f"| {_cell(one.sentence)} | {seen[0]} | {seen[1]} | {_cell(words)} |")
        lines.append("")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")

"""Findings about what the programs of running replicas report: values that are not finite.

Values that are read from patterns in the output are a guess.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.core.diagnosis import BLOCK, NOTE, WAIT, Finding
from trainyard.objects.numbers import number_text
from trainyard.views.diagnosis.inputs import Facts, join_names
from trainyard.views.usage_view import ReplicaUsage, is_loss

DIVERGED_FIX = (
    "lower the learning rate or clip the gradients, and check the data at that step; then go on from a checkpoint "
    "before it"
)


def not_finite(facts: Facts) -> Iterator[Finding]:
    """Values that are NaN or infinite now, and since which step. A loss is a problem, another value a note."""
    by_value: dict[tuple[str, str], list[ReplicaUsage]] = {}
    for usage in facts.usages:
        for name in usage.not_finite_since:
            by_value.setdefault((name, number_text(usage.metrics[name])), []).append(usage)
    for (name, text), usages in by_value.items():
        steps = [step for usage in usages if (step := usage.not_finite_since[name]) is not None]
        since = f" since step {number_text(min(steps))}" if steps else ""
        first, sources = usages[0], {usage.metrics_source for usage in usages}
        level = NOTE if not is_loss(name) else WAIT if sources == {"pattern"} else BLOCK
        summary = f"{join_names(usage.replica for usage in usages)}: {name} is {text}{since}"
        where = f"metrics.k8s.io, pod {first.pod}: {name}, from {first.metrics_source or 'no source'}"
        yield Finding(level, summary, where, (), DIVERGED_FIX if is_loss(name) else "")

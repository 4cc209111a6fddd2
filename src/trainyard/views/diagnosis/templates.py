"""Findings about the object that has the pod templates of a job (Kind.template_source), such as the runtime of a
TrainJob. Its fields are those of the snapshot in the job's status, from the first reconcile on."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.core import snapshot_of
from trainyard.core.diagnosis import BLOCK, NOTE, Finding
from trainyard.views.diagnosis.inputs import Facts


def missing_source(facts: Facts) -> Iterator[Finding]:
    """It does not exist, and the job has no snapshot of it."""
    named = _named(facts)
    if named and facts.template_is_missing and snapshot_of(facts.kind, facts.job) is None:
        resource, name = named
        fix = f"make it, and the job begins; `kubectl get {resource}` lists those there are"
        yield Finding(BLOCK, f"there is no {name}, whose pod templates it needs", "spec", (), fix)


def edited_source(facts: Facts) -> Iterator[Finding]:
    """It has been edited since the job has its snapshot."""
    source, named = facts.kind.template_source, _named(facts)
    snapshot = snapshot_of(facts.kind, facts.job)
    if source is None or named is None or snapshot is None or facts.template_source is None:
        return
    present = source.snapshot(facts.template_source)
    if fields := sorted(_differences(snapshot, present)):
        summary = f"{named[1]} has been edited since the job began, which has no effect on it"
        fix = "nothing, if that is meant; a job that is made now begins with the edited one"
        yield Finding(NOTE, summary, "status.trainyard.snapshot", (f"other now: {', '.join(fields)}",), fix)


def _named(facts: Facts) -> tuple[str, str] | None:
    """Its resource, as kubectl names it, and its kind and name; None for a job that refers to none."""
    source = facts.kind.template_source
    reference = source.reference(facts.job) if source else None
    return (reference[0].gvk.plural, f"{reference[0].gvk.kind} {reference[1].name}") if reference else None


def _differences(old: object, new: object, path: str = "") -> Iterator[str]:
    """The paths of the fields that differ, down to lists."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        if old != new:
            yield path
        return
    for name in {**old, **new}:
        yield from _differences(old.get(name), new.get(name), f"{path}.{name}" if path else name)

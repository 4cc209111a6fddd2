"""Validation of Leases, after type checks."""

from __future__ import annotations

from trainyard.objects import Json, Problem


def lease_problems(new: Json, old: Json | None) -> list[Problem]:
    spec, problems = new.get("spec") or {}, []
    seconds, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if seconds is not None and seconds <= 0:
        problems.append(Problem("spec.leaseDurationSeconds", f"Invalid value: {seconds}: must be greater than 0"))
    if transitions is not None and transitions < 0:
        text = f"Invalid value: {transitions}: must be greater than or equal to 0"
        problems.append(Problem("spec.leaseTransitions", text))
    return problems

"""What the real server refuses of Leases. The types have been checked."""

from __future__ import annotations

from trainyard.objects import Json, Problem


def lease_problems(new: Json, old: Json | None) -> list[Problem]:
    spec, found = new.get("spec") or {}, []
    seconds, moves = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if seconds is not None and seconds <= 0:
        found.append(Problem("spec.leaseDurationSeconds", f"Invalid value: {seconds}: must be greater than 0"))
    if moves is not None and moves < 0:
        text = f"Invalid value: {moves}: must be greater than or equal to 0"
        found.append(Problem("spec.leaseTransitions", text))
    return found

"""`status.trainerStatus` (KEP-2779 of Trainer), from what the node has read of the first pod that trains.

Rules:
- That pod alone has the annotation REPORT_PROGRESS, so that the writes do not grow with the job.
- There is a percentage only where the program has told a total. A total in a line of text beside an epoch without one
  may be of the epoch, or not: then there is none.
- A job that has ended keeps what was reported last. 100 percent are those of a job that is complete.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from trainyard.core import Job, Outcome, Slot
from trainyard.core.job_state import Replica
from trainyard.kinds.trainjob.pod_sets import TRAINER, PodSet
from trainyard.objects import Json, format_time
from trainyard.objects.usage import PROGRESS, TOTALS, Progress, progress_of

_MOST_SECONDS = 2**31 - 1  # of estimatedRemainingSeconds
_ROUNDING = 1e-9  # 29 of 100 steps are 28.999999999999996 percent


def reports_progress(replicated_job: Json, slot: Slot) -> bool:
    """Whether the pod of that slot is the one whose progress is the job's."""
    return slot.index == 0 and PodSet(replicated_job, 1).ancestor == TRAINER


def trainer_status(job: Job, outcome: Outcome, replicas: Sequence[Replica]) -> Json | None:
    """The field; None for none."""
    pods = (replica.child for replica in replicas if replica.child is not None and replica.child.status.progress)
    reported = next((progress_of({PROGRESS: pod.status.progress}) for pod in pods), None)
    status = dict(job.status.whole.get("trainerStatus") or {}) if reported is None else _reported(reported)
    if outcome.is_finished and "estimatedRemainingSeconds" in status:
        status["estimatedRemainingSeconds"] = 0
    elif outcome.phase == "Suspended":
        status.pop("estimatedRemainingSeconds", None)
    if outcome.phase == "Succeeded" and "progressPercentage" in status:
        status["progressPercentage"] = 100
    return status or None


def _reported(progress: Progress) -> Json:
    fraction, steps = fraction_done(progress.values, progress.source)
    status: Json = {}
    if fraction is not None:
        status["progressPercentage"] = math.floor(fraction * 100 + _ROUNDING)
    if fraction is not None and steps and progress.steps_per_second:
        seconds = math.ceil((1 - fraction) * steps / progress.steps_per_second - _ROUNDING)
        status["estimatedRemainingSeconds"] = min(seconds, _MOST_SECONDS)
    totals = TOTALS.values()
    metrics = [
        {"name": name, "value": _text(value)} for name, value in progress.values.items() if name and name not in totals
    ]
    return {**status, "metrics": metrics, "lastUpdatedTime": format_time(progress.time or 0.0)}


def fraction_done(values: Mapping[str, float], source: str) -> tuple[float | None, float]:
    """The part of the training that is done, None if it is not known, and how many steps all of it has, 0 if that is
    not known. `source`: see Progress; epochs are counted from 1, and one that is named has begun, no more."""
    step, steps = values.get("step"), values.get(TOTALS["step"], 0.0)
    epoch, epochs = values.get("epoch"), values.get(TOTALS["epoch"], 0.0)
    part = step / steps if step is not None and 0 <= step <= steps and steps > 0 else None
    if source == "pattern" and epoch is not None and part is not None and not epochs:
        return None, 0.0
    if epochs > 0 and epoch is not None and 0 <= epoch <= epochs and (part is None or source == "pattern"):
        return (max(epoch - 1, 0.0) + (part or 0.0)) / epochs, (0.0 if part is None else steps * epochs)
    return part, (0.0 if part is None else steps)


def _text(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else str(value)

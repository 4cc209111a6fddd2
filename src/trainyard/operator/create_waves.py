"""The creates of one plan, in the waves in which they are sent."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import msgspec

from trainyard import core
from trainyard.core import Job, PlannedCreate
from trainyard.objects import Json, Ref


class CreateWaves(msgspec.Struct):
    """The objects of one wave are created concurrently. Those of the first wave are rendered already."""

    job: Job
    waves: list[list[PlannedCreate]]
    rendered: dict[Ref, Json]

    @classmethod
    def of(cls, job: Job, creates: Iterable[PlannedCreate]) -> CreateWaves:
        """The waves of at least one create; `job` has the status from which children are rendered."""
        waves = waves_of(creates)
        return cls(job, waves, {planned.ref: core.render_child(job, planned) for planned in waves[0]})

    def render(self, planned: PlannedCreate) -> Json:
        """The object to send. To be called once for each create: what is rendered is not kept."""
        rendered = self.rendered.pop(planned.ref, None)
        return core.render_child(self.job, planned) if rendered is None else rendered


def waves_of(creates: Iterable[PlannedCreate]) -> list[list[PlannedCreate]]:
    """Split the creates into waves, each in the plan's order: an object is in the wave after the last of those that it
    depends on. The objects of one wave are created concurrently, Pods and Services alike, but for two things. A
    small job's replicas are not created beside other objects (core.FEW_CREATES). And the replicas of a large job wait
    for the first one: the first pod of a namespace makes admission look up its limits, which took 5 to 10 ms alone, and
    20 to 130 ms beside sixty other requests, with no pod until then."""
    if not any(create.depends_on for create in creates):
        return _parts(list(creates))
    waves: list[list[PlannedCreate]] = []
    wave_of: dict[Ref, int] = {}
    for create in creates:
        number = max((wave_of[ref] + 1 for ref in create.depends_on if ref in wave_of), default=0)
        wave_of[create.ref] = number
        if number == len(waves):
            waves.append([])
        waves[number].append(create)
    return [part for wave in waves for part in _parts(wave)]


def _parts(wave: list[PlannedCreate]) -> list[list[PlannedCreate]]:
    if len(wave) > core.FEW_CREATES:
        first_replica = next((index for index, create in enumerate(wave) if create.slot is not None), 0)
        return [wave[: first_replica + 1], wave[first_replica + 1 :]]
    return [list(part) for _, part in itertools.groupby(wave, lambda create: create.slot is None)]

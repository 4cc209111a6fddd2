"""A scenario: a job that is submitted, and what then happens to it and to its pods, step by step.

A step is a JSON object, so that a recording has all that a replay needs:

| step | what the driver does |
|---|---|
| `{"create": "job"}` | submits the manifest; the first step of each scenario |
| `{"pods": [PATTERN, ...], "phase": PHASE, ...}` | patches the status of these pods, as a kubelet would |
| `{"deletePods": [PATTERN, ...]}` | deletes them at once |
| `{"evictPods": [PATTERN, ...]}` | patches them to Failed with reason Evicted |
| `{"patch": {...}}` | a merge patch of the job |
| `{"scale": N}` | sets the replicas in the subresource `scale` |
| `{"podGroup": PHASE}` | patches the phase of the job's PodGroup, as its scheduler would |
| `{"wait": SECONDS}` | lets the time pass |
| `{"delete": "job"}` | deletes the job in the background |

PATTERN is a shell pattern of pod names. `phase` is Pending, Running, Succeeded or Failed. With `exitCode` containers
have ended with it, or only `container` if one is named; `restarts` is their restartCount. With `from`, a pod in another
phase than that is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainyard.objects import Json

TRAINING, MPI, TRAINER = "training-operator", "mpi-operator", "trainer"
VOLCANO, SCHEDULER_PLUGINS = "volcano", "scheduler-plugins"


@dataclass(frozen=True, slots=True)
class Scenario:
    """`kind` names the folder of its recording. `operator`: who answers. `gang`: its gang scheduler, if it has one.
    `objects` are there before the job is submitted."""

    kind: str
    name: str
    manifest: Json
    steps: tuple[Json, ...] = ()
    operator: str = TRAINING
    gang: str = ""
    objects: tuple[Json, ...] = ()

    @property
    def path(self) -> str:
        return f"{self.kind}/{self.name}"


def pods(phase: str, *patterns: str, **more: Any) -> Json:
    return {"pods": list(patterns), "phase": phase, **more}


def running(*patterns: str, **more: Any) -> Json:
    return pods("Running", *patterns, **more)


def succeeded(*patterns: str) -> Json:
    return pods("Succeeded", *patterns, exitCode=0)


def failed(pattern: str, code: int | None = 1, **more: Any) -> Json:
    """The pod has failed; with no code, as one whose containers nobody knows of."""
    return pods("Failed", pattern, **({} if code is None else {"exitCode": code}), **more)


def evicted(*patterns: str) -> Json:
    return {"evictPods": list(patterns)}


def deleted(*patterns: str) -> Json:
    return {"deletePods": list(patterns)}


def patch(**spec: Any) -> Json:
    """A merge patch of the job's spec."""
    return {"patch": {"spec": spec}}


def policy(**run_policy: Any) -> Json:
    return patch(runPolicy=run_policy)


def scale(replicas: int) -> Json:
    return {"scale": replicas}


def wait(seconds: float) -> Json:
    return {"wait": seconds}


START: Json = running("j-*", **{"from": "Pending"})
"""Every pod that waits runs."""
FINISH: Json = pods("Succeeded", "j-*", exitCode=0, **{"from": "Running"})
"""Every pod that runs succeeds."""
SUSPEND, RESUME = policy(suspend=True), policy(suspend=False)
TOUCH: Json = {"patch": {"metadata": {"annotations": {"touched": "yes"}}}}
DELETE: Json = {"delete": "job"}
SCHEDULED: Json = {"podGroup": "Running"}


def merged(base: Any, change: Any) -> Any:
    """`base` with `change` laid over it, as a JSON merge patch: None removes a key."""
    if not isinstance(base, Mapping) or not isinstance(change, Mapping):
        return change
    keys = [*base, *(key for key in change if key not in base)]
    return {
        key: merged(base.get(key), change[key]) if key in change else base[key]
        for key in keys
        if key not in change or change[key] is not None
    }


def unique(scenarios: Sequence[Scenario]) -> tuple[Scenario, ...]:
    """The scenarios themselves. Raises ValueError when two have one path."""
    paths = [scenario.path for scenario in scenarios]
    if twice := {path for path in paths if paths.count(path) > 1}:
        raise ValueError(f"two scenarios have the same name: {sorted(twice)}")
    return tuple(scenarios)

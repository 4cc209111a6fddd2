"""Records the answers of Kubeflow's operators to all scenarios, and checks that they are still as recorded.

Each scenario runs several times at once, in namespaces of its own: where the answers differ, the operator has no one
answer, and the recording says so. What is stored of the same scenario and version is one run more.

A check tells a change of theirs from a race of theirs, which ends one way on a busy machine and the other way on a
quiet one: a scenario that differs runs again in many copies, with a random pause before each write of the driver, and
counts as different where none of its runs is as recorded.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import replace
from fnmatch import fnmatchcase

from tests.drop_in.compare import Difference, common_differences, unstable_paths
from tests.drop_in.driver import Driver
from tests.drop_in.operators import (
    MpiOperator,
    OperatorUnderTest,
    TrainingOperator,
    install_pod_groups,
)
from tests.drop_in.operators_build import MODULES, TRAINER_MODULE
from tests.drop_in.recordings import FOLDER, Recording, load, save
from tests.drop_in.scenario import MPI, TRAINER, TRAINING, Scenario
from tests.drop_in.scenarios import all_scenarios
from tests.drop_in.trainer import PROBE, Trainer
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_flags import Options
from tests.support.watched_objects import until_gone
from trainyard.client import ApiClient
from trainyard.objects import GVK, Json, name_of, uid_of
from trainyard.objects.resources import CONFIG_MAP

RUNS = 2
PAUSES = (0.0, 0.02, 0.1, 0.5)  # seconds, the longest pause before a write of the driver, in each turn of a check
BATCH = 80  # runs at one time
SETTLE = {TRAINING: 1.2, MPI: 2.5, TRAINER: 2.5}  # seconds; the controller of Jobs writes a status once a second
GARBAGE_SECONDS = 90.0

OPTIONS = Options(more={"kube-controller-manager": ["--controllers=-horizontal-pod-autoscaler-controller"]})
"""Without metrics the autoscaler would only write that it has none, every 15 seconds."""


def record(patterns: Sequence[str], *, write: bool) -> int:
    """Run the scenarios that a pattern matches, and write what the operators answered, or compare it with what is
    stored. The exit code: 1 when a scenario failed, or differs."""
    candidates = all_scenarios([pattern.partition("/")[0] for pattern in patterns])
    selected = [scenario for scenario in candidates if any(fnmatchcase(scenario.path, pattern) for pattern in patterns)]
    begin, failures = time.monotonic(), 0
    for name, operator in ((TRAINING, TrainingOperator), (MPI, MpiOperator), (TRAINER, Trainer)):
        if scenarios := [scenario for scenario in selected if scenario.operator == name]:
            failures += _record_operator(operator(), scenarios, write)
    _print(f"{len(selected)} scenarios, {failures} failed or differ, {time.monotonic() - begin:.0f} s")
    if write and list(patterns) == ["*"]:
        _remove_stale({scenario.path for scenario in selected})
    return 1 if failures else 0


def quiet_control_plane() -> ControlPlane:
    """A control plane whose pods nobody schedules or autoscales. Use as a context; then `without_scheduler`."""
    return ControlPlane(OPTIONS)


def _record_operator(operator: OperatorUnderTest, scenarios: Sequence[Scenario], write: bool) -> int:
    failures = 0
    with quiet_control_plane() as plane:
        plane.stop("kube-scheduler")
        install_pod_groups(plane)
        operator.install(plane)
        collected = False
        for gang in sorted(
            {scenario.gang for scenario in scenarios}, reverse=True
        ):  # an operator looks at all jobs that it finds
            chosen = [scenario for scenario in scenarios if scenario.gang == gang]
            with operator.running(plane, gang):
                if not collected:
                    manifest = PROBE if isinstance(operator, Trainer) else chosen[0].manifest
                    asyncio.run(_collect_garbage(plane, operator, manifest))
                    collected = True
                failures += asyncio.run(_record_all(plane, operator.job_kinds, chosen, write))
    return failures


async def _collect_garbage(plane: ControlPlane, operator: OperatorUnderTest, manifest: Json) -> None:
    """The garbage collector learns new kinds every 30 seconds: wait until it has removed the child of a job."""
    async with plane.api() as api:
        await collect_garbage(api, operator.job_kinds, manifest)


async def collect_garbage(api: ApiClient, job_kinds: Iterable[GVK], manifest: Json) -> None:
    """Delete a job that no operator touches, and wait until what it owns is gone."""
    (gvk,) = (kind for kind in job_kinds if (kind.api_version, kind.kind) == (manifest["apiVersion"], manifest["kind"]))
    job = deepcopy(manifest)
    job["metadata"] = {"name": "unmanaged", "namespace": "default"}
    policy = job["spec"] if "runtimeRef" in job["spec"] else job["spec"].setdefault("runPolicy", {})
    policy["managedBy"] = "kueue.x-k8s.io/multikueue"
    owner = await api.create(gvk, "default", job)
    reference = {"apiVersion": gvk.api_version, "kind": gvk.kind, "name": name_of(owner), "uid": uid_of(owner)}
    metadata = {"name": "owned", "ownerReferences": [reference]}
    await api.create(CONFIG_MAP, "default", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    await api.delete(gvk, "default", "unmanaged")
    await until_gone(api, CONFIG_MAP, "default", "owned", seconds=GARBAGE_SECONDS)


async def _record_all(plane: ControlPlane, job_kinds: Sequence[GVK], scenarios: Sequence[Scenario], write: bool) -> int:
    """Returns how many scenarios differ. One that differs runs again, with the next of PAUSES."""
    async with plane.api() as api, Driver(api, job_kinds, SETTLE[scenarios[0].operator]) as driver:
        runs: dict[str, list[list[Json]]] = {scenario.path: [] for scenario in scenarios}
        left = list(scenarios)
        for pause in PAUSES[:1] if write else PAUSES:
            copies = max(RUNS, BATCH // len(left)) if pause and left else RUNS
            for batch in batches(left, BATCH // copies):
                answers = await driver.run([scenario for scenario in batch for _ in range(copies)], pause)
                for number, scenario in enumerate(batch):
                    runs[scenario.path] += answers[number * copies : (number + 1) * copies]
                    if write:
                        _write(scenario, runs[scenario.path])
            left = [] if write else [scenario for scenario in left if _differing(scenario, runs[scenario.path])]
    for scenario in left:
        for difference in _differing(scenario, runs[scenario.path]):
            _print(f"{scenario.path}: {difference}")
    return len(left)


def batches(scenarios: Sequence[Scenario], size: int) -> list[Sequence[Scenario]]:
    """The scenarios in groups that run at one time. Those in which a time passes are first, in small groups of their
    own: their other steps must take less than that time, so no job of another scenario may be left that writes, and
    all of a group wait in the same step. The others are grouped by their number of steps: a group goes in step."""
    waits = {
        scenario.path: [number for number, step in enumerate(scenario.steps) if "wait" in step]
        for scenario in scenarios
    }
    others = sorted((item for item in scenarios if not waits[item.path]), key=lambda item: len(item.steps))
    small = max(1, size // 8)
    groups: list[Sequence[Scenario]] = []
    for numbers in sorted({tuple(numbers) for numbers in waits.values() if numbers}):
        timed = [scenario for scenario in scenarios if tuple(waits[scenario.path]) == numbers]
        groups += [timed[start : start + small] for start in range(0, len(timed), small)]
    return [*groups, *(others[start : start + size] for start in range(0, len(others), size))]


def _write(scenario: Scenario, runs: Sequence[list[Json]]) -> None:
    """Store the answers; a stored answer to the same scenario stays, and is one run more."""
    module = next(module for module in (*MODULES, TRAINER_MODULE) if module.name == scenario.operator)
    recording = Recording(
        scenario.path,
        f"{module.name} {module.version}",
        scenario.gang,
        list(scenario.objects),
        scenario.manifest,
        runs[0],
        unstable_paths(runs),
    )
    path = FOLDER / f"{scenario.path}.json"
    if path.exists() and (stored := load(path)).is_of_the_same(recording):
        more = unstable_paths([stored.steps, *runs])
        recording = replace(stored, unstable=sorted({*stored.unstable, *more}))
    for step in runs[0]:
        if "absent" in step:
            _print(f"{scenario.path}: no pods {step['absent']} for {step['do']}")
    save(recording)


def _differing(scenario: Scenario, runs: Sequence[list[Json]]) -> list[Difference]:
    """What is in no run as it is stored."""
    stored = load(FOLDER / f"{scenario.path}.json")
    return common_differences(stored.steps, runs, stored.unstable)


def _remove_stale(current: set[str]) -> None:
    for path in FOLDER.glob("*/*.json"):
        if f"{path.parent.name}/{path.stem}" not in current:
            path.unlink()


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

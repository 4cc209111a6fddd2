"""What `trainyard plan` prints is what the operator sends: every golden case, pass after pass, by the operator's shell.

The decision is the same function in both. What each makes of it is not: which status and which spec the bodies of
children are rendered from, in which order, and what a patch holds.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from tests.model.simulated_job import simulate
from tests.support.samples import sample
from trainyard import kinds
from trainyard.cli import offline
from trainyard.cli.offline import OfflineCluster
from trainyard.cli.output.printing import as_yaml
from trainyard.cli.plan import read_world
from trainyard.client import ApiClient
from trainyard.controller_runtime.event_recorder import EventRecorder
from trainyard.controller_runtime.in_flight_writes import InFlightWrites
from trainyard.core import Kind
from trainyard.objects import GVK, Json, parse_time
from trainyard.objects.structs import replace
from trainyard.operator.plan_executor import PlanExecutor
from trainyard.operator.reconcile import JobState, ReconcileContext
from trainyard.server.patch.json_patch import merge_patch

DATA = Path(__file__).parents[2] / "testdata"
CASES = sorted(path.relative_to(DATA) for path in DATA.glob("*/*.input.yaml"))
PASSES = 6


class RecordingApi(ApiClient):
    """Takes every write and keeps it."""

    def __init__(self) -> None:
        self.creates: list[Json] = []
        self.patches: list[tuple[str, str, str, Json]] = []
        self.deletes: list[tuple[str, str, str]] = []
        self._versions = itertools.count(1000)

    def _stored(self, obj: Json) -> Json:
        number = next(self._versions)
        meta = {"uid": f"made-{number}", **obj.get("metadata", {}), "resourceVersion": str(number)}
        return {**obj, "metadata": meta}

    async def create(self, gvk: GVK, namespace: str, obj: Json, *_: Any, **options: Any) -> Json:
        self.creates.append(obj)
        return self._stored(obj)

    async def patch(
        self, gvk: GVK, namespace: str, name: str, body: Json, subresource: str = "", *, version_only: bool = False
    ) -> Json:
        self.patches.append((gvk.kind, name, subresource, body))
        return self._stored(body if subresource else {})

    async def delete(self, gvk: GVK, namespace: str, name: str, uid: str = "", *options: Any) -> Json:
        self.deletes.append((gvk.kind, name, uid))
        return {}


async def _operate(world: OfflineCluster, job: Json, kind: Kind) -> tuple[RecordingApi, Json]:
    """Passes of the operator until one has done more than to store the defaults; and the job with its last status."""
    api, memory = RecordingApi(), JobState()
    shell = PlanExecutor(api, world.config, InFlightWrites({}), EventRecorder(api), now=lambda: world.now)
    plan = world.plan(job, kind)
    if plan.spec_patch:
        await shell.apply(ReconcileContext(kind, job, plan, memory, world.now))
        ((_, _, subresource, body),) = api.patches
        assert not subresource and not api.creates
        api.patches.clear()
        job = {**job, "spec": merge_patch(job["spec"], body["spec"])}
        plan = world.plan(job, kind)
        assert not plan.spec_patch
    await shell.apply(ReconcileContext(kind, job, plan, memory, world.now))
    for _, _, subresource, body in api.patches:
        if subresource == "status" and "status" in body:
            job = {**job, "status": merge_patch(job.get("status") or {}, body["status"])}
    return api, job


def compare(world: OfflineCluster, job: Json, kind: Kind) -> int:
    """How many bodies were compared."""
    fresh = replace(world, ids={space: set(taken) for space, taken in world.ids.items()})  # ids taken are remembered
    shown = offline.plan_as_json(world, job, kind)
    api, after = asyncio.run(_operate(fresh, job, kind))
    assert api.creates == shown["creates"]
    assert not api.creates or after["spec"] == shown["spec"]
    assert (after.get("status") or {}) == shown["status"]
    assert api.deletes == [(delete["kind"], delete["name"], delete["uid"]) for delete in shown["deletes"]]
    sent = [(of, name, body) for of, name, subresource, body in api.patches if subresource != "status"]
    printed = [patch for patch in shown["patches"] if patch["kind"] != kind.gvk.kind]
    assert sent == [(write["kind"], write["name"], write["patch"]) for write in printed]
    return len(api.creates) + len(sent)


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case).removesuffix(".input.yaml"))
def test_the_operator_sends_the_writes_that_plan_prints(
    case: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir((DATA / case).parent)  # where the config names its file
    own = Path(case.name.replace(".input.", ".config."))
    settings = own if own.exists() else Path("controller.yaml")
    file, clock = tmp_path / "world.yaml", re.search(r"^# now: (\S+)$", case_text(case), re.MULTILINE)
    now = parse_time(clock[1]) if clock else None
    assert now is not None
    file.write_text(case_text(case))
    for _ in range(PASSES):
        world = read_world((str(file),), now, settings)
        for job, kind in world.jobs:
            compare(world, job, kind)
        before, after = file.read_text(), as_yaml(offline.apply_plans(world))
        if before == after or "kind: List" not in after or not read_jobs(after):
            return
        file.write_text(after)


def case_text(case: Path) -> str:
    return (DATA / case).read_text()


def read_jobs(text: str) -> list[str]:
    """The kinds of the jobs that are left."""
    return re.findall(rf"^  kind: ({'|'.join(kind.gvk.kind for kind in kinds.KINDS)})$", text, re.MULTILINE)


@pytest.mark.parametrize("kind", kinds.KINDS, ids=lambda kind: kind.api.singular)
def test_plan_and_operator_agree_over_failures_and_two_suspensions(kind: Kind) -> None:
    simulated = simulate(kind, sample(kind.gvk.kind))
    bodies = 0

    def settle() -> None:
        nonlocal bodies
        for _ in range(PASSES):
            world = OfflineCluster(
                [(simulated.job, kind)], list(simulated.objects.values()), simulated.config, simulated.now
            )
            bodies += compare(world, simulated.job, kind)
            if simulated.step().idle:
                return

    for _ in range(2):
        simulated.run()
        settle()
        ended = next(name for name in simulated.names("Job") + simulated.names("Pod") if simulated.pods(name))
        simulated.end(ended, 137)
        simulated.now += 600
        settle()
        simulated.edit(suspend=True)
        settle()
        simulated.edit(suspend=False)
        settle()
    assert bodies > 3

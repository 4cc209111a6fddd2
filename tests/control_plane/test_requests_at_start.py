"""What a new operator asks a real API server when there are a thousand finished jobs: their list, and nothing else."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from functools import partial

import pytest

from tests.control_plane.real_operator import (
    Served,
    account,
    again,
    bare,
    ending,
    idle,
    serving,
    together,
    until_condition,
)
from tests.support.control_plane import ControlPlane
from tests.support.waiting import until_async
from trainyard import kinds
from trainyard.client import ApiClient
from trainyard.controller_runtime.reflector import PAGE_SIZE
from trainyard.core import Config, Kind
from trainyard.objects import GVK, Json, name_of, uid_of

pytestmark = pytest.mark.cluster
JOBS = ((kinds.TFJOB, 550), (kinds.MXJOB, 150), (kinds.CHAINERJOB, 150), (kinds.ELASTICJOB, 150))
TOTAL = sum(count for _, count in JOBS)
REAL_SECONDS = 5.0


async def test_a_thousand_finished_jobs_cost_a_new_operator_their_list(peopled: ControlPlane, namespace: str) -> None:
    async with peopled.api() as api:
        statuses = await lives(peopled, api, namespace)
        await asyncio.gather(*(copies(api, namespace, kind, count, statuses[kind.gvk]) for kind, count in JOBS))
        user, token = await account(peopled, namespace)
        mark = await asyncio.to_thread(peopled.audit.mark)
        async with again(peopled, namespace, user, token) as served:
            await until_async(lambda: served.passes() == TOTAL and idle(served.operator), "every job is reconciled")
            await assert_no_further_request(served)
            counts = Counter((request.verb, request.resource, request.group) for request in await served.requests(mark))
        held = {gvk: len((await api.list(gvk, namespace))["items"]) for gvk in {*watched()}}
    wanted = Counter({("watch", gvk.plural, gvk.group): 1 for gvk in watched()})
    wanted += Counter({("list", gvk.plural, gvk.group): pages(held[gvk]) for gvk in watched()})
    assert sum(held[kind.gvk] for kind, _ in JOBS) == TOTAL == 1000
    assert counts == wanted


def watched() -> list[GVK]:
    """Every kind of job, under each of its groups, and every kind of child."""
    return list(
        dict.fromkeys(
            [
                *(kind.gvk for kind in kinds.ALL),
                *(gvk for kind in kinds.KINDS for gvk in kind.roles.children_in(Config())),
            ]
        )
    )


def pages(objects: int) -> int:
    return max(1, math.ceil(objects / PAGE_SIZE))


async def assert_no_further_request(served: Served) -> None:
    before = served.passes()
    await asyncio.sleep(REAL_SECONDS)
    assert served.passes() == before


async def lives(plane: ControlPlane, api: ApiClient, namespace: str) -> dict[GVK, Json]:
    """One job of each kind to its end: the status that the operator itself leaves."""
    async with serving(plane, namespace) as served:
        jobs = [await api.create(kind.gvk, namespace, bare(kind, "first")) for kind, _ in JOBS]
        async with ending(api, namespace, map(uid_of, jobs)):
            done = [await until_condition(api, kind, namespace, "first", "Succeeded") for kind, _ in JOBS]
            await served.quiet()
    return {kind.gvk: job["status"] for (kind, _), job in zip(JOBS, done, strict=True)}


async def copies(api: ApiClient, namespace: str, kind: Kind, count: int, status: Json) -> None:
    """As many more as make the number full, each finished as the first one."""

    async def create(number: int) -> None:
        created = await api.create(kind.gvk, namespace, bare(kind, f"done-{number}"))
        await api.patch(kind.gvk, namespace, name_of(created), {"status": status}, "status")

    await together([partial(create, number) for number in range(1, count)])

"""The way of a ChainerJob's master to its workers: the agent, through the API server, with the pod's own account."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections import Counter
from typing import Any

import pytest

from tests.stories.controlled_pods import ACTOR, ControlledPod
from tests.stories.harness import Harness
from tests.stories.job_fixtures import PLAYS, worker_set
from trainyard.objects import name_of

CHAINER = PLAYS["ChainerJob"]
AGENT = "os.environ['OMPI_MCA_plm_rsh_agent']"
HOSTFILE = "os.environ['OMPI_MCA_orte_default_hostfile']"


def lives(harness: Harness) -> Counter[str]:
    return Counter(controlled.place for controlled in harness.entered)


def at(pod: str, command: str, seconds: float = 300) -> str:
    """An expression: what the agent ends with, and prints."""
    return f"ran({AGENT}, {pod!r}, {command!r}, TRAINYARD_EXEC_TIMEOUT='{seconds}')"


@pytest.mark.slow
@pytest.mark.parametrize("network", ["shared", "namespace"])
async def test_the_master_may_exec_into_its_own_workers_only(harness: Harness, network: str) -> None:
    await harness.visitor(name="chainer")
    await CHAINER.begin(harness, workerSets={"ws": worker_set(mpiConfig={"slots": 2})})
    master = await harness.controlled_pod("master")
    own = name_of(await harness.pod("master"))
    assert await master.ask("os.environ['TRAINYARD_POD_NAME']") == own
    hosts = (await master.ask(f"open({HOSTFILE}).read()")).splitlines()
    assert hosts[:2] == ["story-workerset-ws-0 slots=2", "story-workerset-ws-1 slots=2"]
    assert hosts[2:] == ["127.0.0.1 slots=1" if network == "shared" else f"{own} slots=1"]  # where names do not resolve
    for index in (0, 1):
        name = f"story-workerset-ws-{index}"
        code, out, err = await master.ask(at(name, "echo $TRAINYARD_POD_NAME; echo oh >&2; exit 3"))
        assert (code, out, err) == (3, f"{name}\n", "oh\n")
    code, out, err = await master.ask(at("visitor", "echo in", 0.2))
    assert (code, out) == (255, "") and "forbidden (403)" in err
    assert f"system:serviceaccount:{harness.namespace}:story-launcher" in err


def an_actor() -> str:
    """A command that becomes a controlled pod, a visitor of the pod that it is run in."""
    return f"ROLE=visitor exec {sys.executable} -I -S -c {shlex.quote(ACTOR)}"


async def remote(harness: Harness) -> tuple[ControlledPod, asyncio.Task[Any]]:
    """A process that the master has started in a worker, and what it will end with."""
    await CHAINER.begin(harness)
    master = await harness.controlled_pod("master")
    end = asyncio.create_task(master.ask(at("story-workerset-ws-0", an_actor())))
    return await harness.controlled_pod("visitor"), end


@pytest.mark.slow
@pytest.mark.parametrize("network", ["shared", "namespace"])
async def test_a_killed_process_in_a_worker_ends_with_its_code_and_affects_no_other(
    harness: Harness, network: str
) -> None:
    process, end = await remote(harness)
    await process.ask("print('begun', flush=True)")
    await process.kill()
    assert (await end)[:2] == [137, "begun\n"]
    assert harness.running() == CHAINER.cast and max(lives(harness).values()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("network", ["shared", "namespace"])
async def test_a_deleted_worker_ends_its_processes_and_the_master_gets_the_error(
    harness: Harness, network: str
) -> None:
    process, end = await remote(harness)
    await harness.operator()  # that nobody in the pods notices
    await (await harness.controlled_pod("ws", 0)).kill()
    await asyncio.wait_for(process.gone.wait(), harness.patience)
    code, _, err = await end
    assert code != 0, err
    await harness.until_holds(lambda: lives(harness)["ws-0"] == 2)
    assert lives(harness)["master-0"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("network", ["shared", "namespace"])
@pytest.mark.parametrize("how", ["suspended", "deleted"])
async def test_no_process_is_left_in_a_worker_of_a_job_that_is_stopped(
    harness: Harness, network: str, how: str
) -> None:
    process, end = await remote(harness)
    if how == "deleted":
        await harness.api.delete(harness.kind.gvk, harness.namespace, "story")
        await harness.nothing_left()
    else:
        await harness.edit({"suspend": True})
    await harness.until_holds(lambda: not harness.running() and process.gone.is_set())
    end.cancel()


@pytest.mark.slow
async def test_a_process_in_a_worker_outlives_the_exec_that_started_it(harness: Harness) -> None:
    process, end = await remote(harness)
    await (await harness.controlled_pod("master")).kill()
    harness.later(10)
    await harness.until_holds(lambda: lives(harness)["master-0"] == 2)
    assert await process.ask("os.getpid()") > 0
    with pytest.raises(AssertionError, match="has ended"):
        await end


@pytest.mark.slow
async def test_the_service_account_of_a_job_has_no_other_permission(harness: Harness) -> None:
    await CHAINER.begin(harness)
    master = await harness.controlled_pod("master")
    there = f"/api/v1/namespaces/{harness.namespace}"
    allowed = {
        f"{there}/pods/story-workerset-ws-0": 200,
        f"{there}/pods/story-workerset-ws-2": 403,
        f"{there}/pods/{name_of(await harness.pod('master'))}": 403,
        f"{there}/pods": 403,
        f"{there}/secrets": 403,
        f"{there}/configmaps/story-assets": 403,
        "/api/v1/namespaces/kube-system/pods/story-workerset-ws-0": 403,
        f"/apis/kubeflow.org/v1alpha1/namespaces/{harness.namespace}/chainerjobs/story": 403,
    }
    assert {path: await master.ask(f"answer({path!r})") for path in allowed} == allowed
    await harness.edit({"workerSets": {"ws": {"replicas": 3}}})
    await harness.every_replica_runs(master=1, ws=3)
    code, out, _ = await master.ask(at("story-workerset-ws-2", "echo in"))
    assert (code, out) == (0, "in\n")

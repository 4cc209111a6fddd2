"""The way of a ChainerJob's master to its workers: the agent, through the API server, with the pod's own account."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections import Counter
from typing import Any

import pytest

from tests.stories.controlled_pods import ACTOR, Actor
from tests.stories.harness import Stage
from tests.stories.job_fixtures import PLAYS, worker_set
from trainyard.objects import name_of

CHAINER = PLAYS["ChainerJob"]
AGENT = "os.environ['OMPI_MCA_plm_rsh_agent']"
HOSTFILE = "os.environ['OMPI_MCA_orte_default_hostfile']"


def lives(stage: Stage) -> Counter[str]:
    return Counter(one.place for one in stage.entered)


def at(pod: str, command: str, seconds: float = 300) -> str:
    """An expression: what the agent ends with, and prints."""
    return f"ran({AGENT}, {pod!r}, {command!r}, TRAINYARD_EXEC_TIMEOUT='{seconds}')"


@pytest.mark.slow
@pytest.mark.parametrize("network", ["shared", "namespace"])
async def test_the_master_reaches_its_own_workers_and_nobody_else(stage: Stage, network: str) -> None:
    await stage.visitor(name="chainer")
    await CHAINER.begin(stage, workerSets={"ws": worker_set(mpiConfig={"slots": 2})})
    master = await stage.actor("master")
    own = name_of(await stage.pod("master"))
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
    assert f"system:serviceaccount:{stage.namespace}:story-launcher" in err


def an_actor() -> str:
    """A command that becomes an actor, a visitor of the pod that it is run in."""
    return f"ROLE=visitor exec {sys.executable} -I -S -c {shlex.quote(ACTOR)}"


async def remote(stage: Stage) -> tuple[Actor, asyncio.Task[Any]]:
    """A process that the master has started in a worker, and what it will end with."""
    await CHAINER.begin(stage)
    master = await stage.actor("master")
    end = asyncio.create_task(master.ask(at("story-workerset-ws-0", an_actor())))
    return await stage.actor("visitor"), end


@pytest.mark.slow
@pytest.mark.parametrize("network", ["shared", "namespace"])
async def test_a_killed_process_in_a_worker_ends_with_its_code_and_nobody_else_does(stage: Stage, network: str) -> None:
    process, end = await remote(stage)
    await process.ask("print('begun', flush=True)")
    await process.kill()
    assert (await end)[:2] == [137, "begun\n"]
    assert stage.running() == CHAINER.cast and max(lives(stage).values()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("network", ["shared", "namespace"])
async def test_what_was_started_in_a_worker_goes_with_it_and_the_master_hears_of_it(stage: Stage, network: str) -> None:
    process, end = await remote(stage)
    await stage.operator()  # that nobody in the pods notices
    await (await stage.actor("ws", 0)).kill()
    await asyncio.wait_for(process.gone.wait(), stage.patience)
    code, _, err = await end
    assert code != 0, err
    await stage.happens(lambda: lives(stage)["ws-0"] == 2)
    assert lives(stage)["master-0"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("network", ["shared", "namespace"])
@pytest.mark.parametrize("how", ["suspended", "deleted"])
async def test_no_process_is_left_in_a_worker_of_a_job_that_is_stopped(stage: Stage, network: str, how: str) -> None:
    process, end = await remote(stage)
    if how == "deleted":
        await stage.api.delete(stage.kind.gvk, stage.namespace, "story")
        await stage.nothing_left()
    else:
        await stage.edit({"suspend": True})
    await stage.happens(lambda: not stage.running() and process.gone.is_set())
    end.cancel()


@pytest.mark.slow
async def test_a_process_in_a_worker_outlives_who_has_started_it(stage: Stage) -> None:
    process, end = await remote(stage)
    await (await stage.actor("master")).kill()
    stage.later(10)
    await stage.happens(lambda: lives(stage)["master-0"] == 2)
    assert await process.ask("os.getpid()") > 0
    with pytest.raises(AssertionError, match="has ended"):
        await end


@pytest.mark.slow
async def test_the_account_of_a_job_may_do_nothing_else(stage: Stage) -> None:
    await CHAINER.begin(stage)
    master = await stage.actor("master")
    there = f"/api/v1/namespaces/{stage.namespace}"
    allowed = {
        f"{there}/pods/story-workerset-ws-0": 200,
        f"{there}/pods/story-workerset-ws-2": 403,
        f"{there}/pods/{name_of(await stage.pod('master'))}": 403,
        f"{there}/pods": 403,
        f"{there}/secrets": 403,
        f"{there}/configmaps/story-assets": 403,
        "/api/v1/namespaces/kube-system/pods/story-workerset-ws-0": 403,
        f"/apis/kubeflow.org/v1alpha1/namespaces/{stage.namespace}/chainerjobs/story": 403,
    }
    assert {path: await master.ask(f"answer({path!r})") for path in allowed} == allowed
    await stage.edit({"workerSets": {"ws": {"replicas": 3}}})
    await stage.everybody(master=1, ws=3)
    code, out, _ = await master.ask(at("story-workerset-ws-2", "echo in"))
    assert (code, out) == (0, "in\n")

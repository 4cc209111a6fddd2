"""An MxJob: in dist mode whoever dies takes the gang along (docs/rules.md S33), in local mode there is one worker."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.stories.crash_injection import deaths
from tests.stories.harness import JOB, POD, SERVICE, Stage, attempt_of, failures, looked, restarts
from tests.stories.job_fixtures import PLAYS, mx_job, mx_local, mx_set, mx_tally
from trainyard.client import Invalid
from trainyard.objects import GVK, Json, is_condition_true, name_of, uid_of

pytestmark = pytest.mark.slow

DIST = PLAYS["MxJob"]


def lives(stage: Stage) -> Counter[str]:
    """How many processes each slot has had."""
    return Counter(one.place for one in stage.entered)


ONCE = Counter({"scheduler-0": 1, "server-0": 1, "worker-0": 1, "worker-1": 1})
TWICE = Counter(dict.fromkeys(ONCE, 2))


@pytest.mark.parametrize("role", ["scheduler", "server", "worker"])
async def test_whoever_is_killed_all_are_made_again_and_that_counts_once(stage: Stage, role: str) -> None:
    await DIST.begin(stage)
    before = await stage.children(JOB)
    await (await stage.actor(role)).kill()
    said = await stage.condition("Restarting")
    assert f"{role.upper()} 0: container mxnet exited with code 137" in said["message"]
    assert failures(await stage.job()) == 1 and restarts(await stage.job()) == 0
    stage.later(10)
    await stage.happens(lambda: lives(stage) == TWICE)
    job = await DIST.runs(stage)
    after = await stage.children(JOB)
    assert after.keys() == before.keys()
    assert {attempt_of(one) for one in after.values()} == {"1"}
    assert not {uid_of(one) for one in after.values()} & {uid_of(one) for one in before.values()}
    await stage.until(lambda job: not is_condition_true(job["status"]["conditions"], "Restarting"))
    assert restarts(job) == 1
    await DIST.succeed(stage)


async def test_several_ends_of_one_attempt_count_as_one(stage: Stage) -> None:
    await DIST.begin(stage, backoffLimit=1)
    for role in ("worker", "server", "scheduler"):
        await (await stage.actor(role)).exit(137)
    for role in ("worker", "server", "scheduler"):
        pod = name_of(await stage.pod(role))
        await stage.until(lambda pod: pod["status"].get("phase") == "Failed", POD, pod)
    operator, _ = await stage.operator()
    await looked(operator)
    assert failures(await stage.job()) == 1
    stage.later(10)
    await DIST.runs(stage)
    await (await stage.actor("worker", 1)).kill()
    failed = await stage.condition("Failed")
    assert failed["reason"] == "BackoffLimitExceeded" and "2 failed attempts, backoffLimit is 1" in failed["message"]
    await stage.happens(lambda: not stage.running())


async def test_one_that_ended_well_is_made_again_with_its_gang(stage: Stage) -> None:
    await DIST.begin(stage)
    await (await stage.actor("worker", 1)).exit(0)
    await stage.until(lambda job: mx_tally(job)["WORKER"] == {"Running": 1, "Succeeded": 1})
    await (await stage.actor("worker", 0)).kill()
    await stage.condition("Restarting")
    stage.later(10)
    await DIST.runs(stage)
    assert lives(stage) == TWICE


@pytest.mark.parametrize("role", ["scheduler", "server", "worker"])
async def test_a_permanent_end_of_any_replica_fails_the_job_at_once(stage: Stage, role: str) -> None:
    await DIST.begin(stage)
    await (await stage.actor(role)).ask("print('MXNetError: shape mismatch', flush=True)")
    pod = await stage.pod(role)
    await (await stage.actor(role)).exit(1)
    failed = await stage.condition("Failed")
    assert failed["reason"] == "PermanentFailure"
    assert f"{role.upper()} 0: container mxnet exited with code 1" in failed["message"]
    assert "MXNetError: shape mismatch" in failed["message"]
    job = await stage.job()
    assert (job["status"]["phase"], job["status"]["state"]) == ("Done", "Failed")
    operator, api = await stage.operator()
    stage.later(3600)
    await looked(operator)
    assert api.writes == [] and lives(stage) == ONCE
    assert await stage.logs(name_of(pod)) == "MXNetError: shape mismatch\n"


@pytest.mark.parametrize("role", ["scheduler", "worker"])
async def test_a_deleted_pod_restarts_the_gang_at_once_and_is_not_counted(stage: Stage, role: str) -> None:
    await DIST.begin(stage, backoffLimit=0)
    await stage.api.delete(POD, stage.namespace, name_of(await stage.pod(role)))
    await stage.happens(lambda: lives(stage) == TWICE)
    job = await DIST.runs(stage)
    assert restarts(job) == 0 and {attempt_of(one) for one in (await stage.children(JOB)).values()} == {"1"}
    await DIST.succeed(stage)


@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
async def test_operators_that_die_at_every_write_of_a_restart_restart_the_gang_once(
    stage: Stage, applied: bool
) -> None:
    await DIST.begin(stage)
    await stage.cluster.stop_operator()
    await (await stage.actor("server")).kill()
    await stage.until(lambda pod: pod["status"].get("phase") == "Failed", POD, name_of(await stage.pod("server")))
    stage.later(15)

    async def again() -> None:
        await stage.happens(lambda: lives(stage) == TWICE)
        await DIST.runs(stage)

    # Of four deletes or creates side by side several may be done before one operator dies of one.
    assert await deaths(stage, applied, again) >= 3
    assert lives(stage) == TWICE
    assert restarts(await stage.job()) == 1
    assert {attempt_of(one) for one in (await stage.children(JOB)).values()} == {"1"}


async def test_a_job_suspended_while_its_gang_waits_counts_that_once_and_goes_on(stage: Stage) -> None:
    await DIST.begin(stage)
    await (await stage.actor("worker")).kill()
    await stage.condition("Restarting")
    await stage.edit({"suspend": True})
    await stage.condition("Suspended")
    await stage.happens(lambda: not stage.running())
    stage.later(3600)
    await stage.edit({"suspend": False})
    job = await DIST.runs(stage)
    assert restarts(job) == 1 and lives(stage) == TWICE


@pytest.mark.parametrize(
    ("policy", "runs", "left"),
    [
        (None, {"server": 1, "worker": 1}, {"scheduler": 1, "server": 1, "worker": 2}),
        ("None", {"server": 1, "worker": 1}, {"scheduler": 1, "server": 1, "worker": 2}),
        ("Running", {}, {"scheduler": 1, "worker": 1}),
        ("All", {}, {}),
    ],
)
async def test_clean_pod_policy_says_what_stays_after_the_end(
    stage: Stage, policy: str | None, runs: dict[str, int], left: dict[str, int]
) -> None:
    await DIST.begin(stage, **({"cleanPodPolicy": policy} if policy else {}))
    await (await stage.actor("worker", 0)).exit(0)
    await stage.until(lambda job: mx_tally(job)["WORKER"] == {"Running": 1, "Succeeded": 1})
    await DIST.succeed(stage)
    operator, _ = await stage.operator()
    await looked(operator)
    await stage.happens(lambda: stage.running() == runs)
    if policy == "All":
        await stage.nothing_left()
    assert Counter(name.split("-")[1] for name in await stage.children(JOB)) == left
    assert len(await stage.children(SERVICE)) == (0 if policy == "All" else 1)


@pytest.mark.parametrize("network", ["shared", "namespace"])
async def test_each_replica_is_told_where_the_scheduler_is_and_reaches_it(stage: Stage, network: str) -> None:
    await DIST.begin(stage, RuntimeId="1kkf")
    scheduler, worker = await stage.actor("scheduler"), await stage.actor("worker", 1)
    told = await worker.ask("{k: v for k, v in os.environ.items() if k.startswith('DMLC_')}")
    address = told.pop("DMLC_PS_ROOT_URI"), told.pop("DMLC_PS_ROOT_PORT")
    if network == "shared":  # names do not resolve there, and each job has a port of its own
        assert address[0] == "127.0.0.1" and address[1] != "9091"
    else:
        assert address == ("story-scheduler-1kkf-0", "9091")
    assert told == {
        "DMLC_NUM_SERVER": "1",
        "DMLC_NUM_WORKER": "2",
        "DMLC_ROLE": "worker",
        "DMLC_USE_KUBERNETES": "1",
    }
    where = "(os.environ['DMLC_PS_ROOT_URI'], int(os.environ['DMLC_PS_ROOT_PORT']))"
    listen = f"globals().__setitem__('door', socket.create_server({where}))"
    await scheduler.ask(listen)
    assert await worker.ask(f"socket.create_connection({where}, 5).sendall(b'hello')") is None
    assert await scheduler.ask("door.accept()[0].recv(5).decode()") == "hello"


async def test_a_local_job_runs_one_worker_without_a_service_and_a_killed_one_comes_back(stage: Stage) -> None:
    await stage.submit(mx_local())
    worker = await stage.actor("worker")
    assert await worker.ask("[k for k in os.environ if k.startswith('DMLC_')]") == []
    assert await stage.children(SERVICE) == {}
    await worker.kill()
    await stage.condition("Restarting")
    stage.later(10)
    await stage.happens(lambda: lives(stage) == {"worker-0": 2})
    assert restarts(await stage.job()) == 1
    await PLAYS["MxJob-local"].runs(stage)
    await PLAYS["MxJob-local"].succeed(stage)
    assert (await stage.job())["status"]["phase"] == "Done"


@pytest.mark.parametrize("code", [1, 127, 128, 255])
async def test_a_local_worker_is_tried_again_from_128_on(stage: Stage, code: int) -> None:
    await stage.submit(mx_local())
    await (await stage.actor("worker")).exit(code)
    await stage.condition("Failed" if code < 128 else "Restarting")
    assert is_condition_true((await stage.job())["status"]["conditions"], "Failed") == (code < 128)


async def test_under_the_other_group_it_is_the_same_job(stage: Stage) -> None:
    job = mx_job() | {"apiVersion": "mxnet.mlkube.io/v1beta1"}
    await stage.submit(job)
    await DIST.runs(stage)
    (child, *_) = (await stage.children(JOB)).values()
    assert child["metadata"]["ownerReferences"][0]["apiVersion"] == "mxnet.mlkube.io/v1beta1"
    assert "mxnet.mlkube.io" in child["metadata"]["labels"]
    await DIST.succeed(stage)


@pytest.mark.parametrize("what", ["Service mxjob-1kkf", "Job story-server-1kkf-0"])
async def test_a_foreign_object_with_our_name_is_said_and_left_alone(stage: Stage, what: str) -> None:
    kind, name = what.split()
    other = await stage.api.create(_foreign(kind)[0], stage.namespace, _foreign(kind)[1] | {"metadata": {"name": name}})
    operator, _ = await stage.operator()
    await stage.submit(mx_job(RuntimeId="1kkf"))
    said = await stage.condition("NameConflict")
    assert f'{kind} "{name}" exists already and belongs to nobody' in said["message"]
    rest = {role: count for role, count in DIST.cast.items() if not (kind == "Job" and role == "server")}
    await stage.everybody(**rest)
    await looked(operator)
    gvk = _foreign(kind)[0]
    assert uid_of(await stage.api.get(gvk, stage.namespace, name)) == uid_of(other)
    await stage.api.delete(gvk, stage.namespace, name)
    await stage.gone(gvk, name)
    stage.later(3600)
    await DIST.runs(stage)
    await stage.until(lambda job: not is_condition_true(job["status"]["conditions"], "NameConflict"))
    await DIST.succeed(stage)


def _foreign(kind: str) -> tuple[GVK, Json]:
    """An object of somebody else's that runs nothing."""
    if kind == "Service":
        return SERVICE, {"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 80}]}}
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "example.invalid/none"}]}
    return JOB, {"apiVersion": "batch/v1", "kind": "Job", "spec": {"suspend": True, "template": {"spec": pod}}}


async def test_an_edit_after_the_start_is_refused_and_holds_while_suspended(stage: Stage) -> None:
    await DIST.begin(stage)
    sets = (await stage.job())["spec"]["replicaSpecs"]
    sets[2]["replicas"] = 1
    with pytest.raises(Invalid) as refused:
        await stage.edit({"replicaSpecs": sets})
    assert "spec.replicaSpecs" in refused.value.message
    assert "fixed once the job has started: suspend it and edit it then, or make a new job" in refused.value.message
    await stage.edit({"suspend": True})
    await stage.condition("Suspended")
    await stage.happens(lambda: not stage.running())
    await stage.edit({"replicaSpecs": sets})
    await stage.edit({"suspend": False})
    await stage.everybody(scheduler=1, server=1, worker=1)
    assert await (await stage.actor("worker")).ask("os.environ['DMLC_NUM_WORKER']") == "1"
    assert len(await stage.children(JOB)) == 3


@pytest.mark.parametrize(
    ("job", "path", "text"),
    [
        (mx_job(mx_set("SERVER"), mx_set("WORKER")), "spec.replicaSpecs", "without replica type SCHEDULER"),
        (
            mx_job(mx_set("SCHEDULER", 2), mx_set("SERVER"), mx_set("WORKER")),
            "spec.replicaSpecs[0].replicas",
            "The SCHEDULER must have Replicas = 1",
        ),
        (
            mx_job(mx_set("SCHEDULER"), mx_set("SCHEDULER"), mx_set("WORKER")),
            "spec.replicaSpecs",
            "a type may be listed only once",
        ),
        (mx_job(mx_set("WORKER", 3), jobMode="local"), "spec.jobMode", "it has more than 1 worker"),
        (mx_job(jobMode="ring"), "spec.jobMode", "write jobMode: local or jobMode: dist"),
    ],
    ids=["no scheduler", "two schedulers", "the scheduler twice", "three local workers", "unknown mode"],
)
async def test_a_wrong_job_is_refused_with_path_and_fix(stage: Stage, job: Json, path: str, text: str) -> None:
    with pytest.raises(Invalid) as refused:
        await stage.submit(job)
    assert path in refused.value.message and text in refused.value.message

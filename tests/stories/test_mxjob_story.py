"""An MxJob: in dist mode whoever dies takes the gang along (docs/rules.md S33), in local mode there is one worker."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.stories.crash_injection import deaths
from tests.stories.harness import JOB, POD, SERVICE, Harness, attempt_of, failures, looked, restarts
from tests.stories.job_fixtures import PLAYS, mx_job, mx_local, mx_set, mx_tally
from trainyard.client import Invalid
from trainyard.objects import GVK, Json, is_condition_true, name_of, uid_of

pytestmark = pytest.mark.slow

DIST = PLAYS["MxJob"]


def lives(harness: Harness) -> Counter[str]:
    """How many processes each slot has had."""
    return Counter(controlled.place for controlled in harness.entered)


ONCE = Counter({"scheduler-0": 1, "server-0": 1, "worker-0": 1, "worker-1": 1})
TWICE = Counter(dict.fromkeys(ONCE, 2))


@pytest.mark.parametrize("role", ["scheduler", "server", "worker"])
async def test_a_killed_replica_restarts_the_gang_and_counts_once(harness: Harness, role: str) -> None:
    await DIST.begin(harness)
    before = await harness.children(JOB)
    await harness.had_failed()
    await (await harness.controlled_pod(role)).kill()
    condition = await harness.condition("Restarting")
    assert f"{role.upper()} 0: container mxnet exited with code 137" in condition["message"]
    assert failures(await harness.job()) == 1 and restarts(await harness.job()) == 0
    harness.later(360)
    await harness.until_holds(lambda: lives(harness) == TWICE)
    job = await DIST.runs(harness)
    after = await harness.children(JOB)
    assert after.keys() == before.keys()
    assert {attempt_of(child) for child in after.values()} == {"1"}
    assert not {uid_of(child) for child in after.values()} & {uid_of(child) for child in before.values()}
    await harness.until(lambda job: not is_condition_true(job["status"]["conditions"], "Restarting"))
    assert restarts(job) == 1
    await DIST.succeed(harness)


async def test_several_ends_of_one_attempt_count_as_one(harness: Harness) -> None:
    await DIST.begin(harness, backoffLimit=1)
    await harness.had_failed()
    for role in ("worker", "server", "scheduler"):
        await (await harness.controlled_pod(role)).exit(137)
    for role in ("worker", "server", "scheduler"):
        pod = name_of(await harness.pod(role))
        await harness.until(lambda pod: pod["status"].get("phase") == "Failed", POD, pod)
    operator, _ = await harness.operator()
    await looked(operator)
    assert failures(await harness.job()) == 1
    harness.later(360)
    await DIST.runs(harness)
    await (await harness.controlled_pod("worker", 1)).kill()
    failed = await harness.condition("Failed")
    assert failed["reason"] == "BackoffLimitExceeded" and "2 failed attempts, backoffLimit is 1" in failed["message"]
    await harness.until_holds(lambda: not harness.running())


async def test_a_succeeded_replica_restarts_with_its_gang(harness: Harness) -> None:
    await DIST.begin(harness)
    await (await harness.controlled_pod("worker", 1)).exit(0)
    await harness.until(lambda job: mx_tally(job)["WORKER"] == {"Running": 1, "Succeeded": 1})
    await harness.had_failed()
    await (await harness.controlled_pod("worker", 0)).kill()
    await harness.condition("Restarting")
    harness.later(360)
    await DIST.runs(harness)
    assert lives(harness) == TWICE


@pytest.mark.parametrize("role", ["scheduler", "server", "worker"])
async def test_a_permanent_end_of_any_replica_fails_the_job_at_once(harness: Harness, role: str) -> None:
    await DIST.begin(harness)
    await (await harness.controlled_pod(role)).ask("print('MXNetError: shape mismatch', flush=True)")
    pod = await harness.pod(role)
    await (await harness.controlled_pod(role)).exit(1)
    failed = await harness.condition("Failed")
    assert failed["reason"] == "PermanentFailure"
    assert f"{role.upper()} 0: container mxnet exited with code 1" in failed["message"]
    assert "MXNetError: shape mismatch" in failed["message"]
    job = await harness.job()
    assert (job["status"]["phase"], job["status"]["state"]) == ("Done", "Failed")
    operator, api = await harness.operator()
    harness.later(3600)
    await looked(operator)
    assert api.writes == [] and lives(harness) == ONCE
    assert await harness.logs(name_of(pod)) == "MXNetError: shape mismatch\n"


@pytest.mark.parametrize("role", ["scheduler", "worker"])
async def test_a_deleted_pod_restarts_the_gang_at_once_and_is_not_counted(harness: Harness, role: str) -> None:
    await DIST.begin(harness, backoffLimit=0)
    await harness.api.delete(POD, harness.namespace, name_of(await harness.pod(role)))
    await harness.until_holds(lambda: lives(harness) == TWICE)
    job = await DIST.runs(harness)
    assert restarts(job) == 0 and {attempt_of(child) for child in (await harness.children(JOB)).values()} == {"1"}
    await DIST.succeed(harness)


@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
async def test_operators_that_die_at_every_write_of_a_restart_restart_the_gang_once(
    harness: Harness, applied: bool
) -> None:
    await DIST.begin(harness)
    await harness.cluster.stop_operator()
    await (await harness.controlled_pod("server")).kill()
    await harness.until(lambda pod: pod["status"].get("phase") == "Failed", POD, name_of(await harness.pod("server")))
    harness.later(15)

    async def again() -> None:
        await harness.until_holds(lambda: lives(harness) == TWICE)
        await DIST.runs(harness)

    # Of four deletes or creates side by side several may be done before one operator dies of one.
    assert await deaths(harness, applied, again) >= 3
    assert lives(harness) == TWICE
    assert restarts(await harness.job()) == 1
    assert {attempt_of(child) for child in (await harness.children(JOB)).values()} == {"1"}


async def test_a_job_suspended_during_the_gangs_back_off_counts_the_failure_once_and_continues(
    harness: Harness,
) -> None:
    await DIST.begin(harness)
    await harness.had_failed()
    await (await harness.controlled_pod("worker")).kill()
    await harness.condition("Restarting")
    await harness.edit({"suspend": True})
    await harness.condition("Suspended")
    await harness.until_holds(lambda: not harness.running())
    harness.later(3600)
    await harness.edit({"suspend": False})
    job = await DIST.runs(harness)
    assert restarts(job) == 1 and lives(harness) == TWICE


@pytest.mark.parametrize(
    ("policy", "runs", "left"),
    [
        (None, {"server": 1, "worker": 1}, {"scheduler": 1, "server": 1, "worker": 2}),
        ("None", {"server": 1, "worker": 1}, {"scheduler": 1, "server": 1, "worker": 2}),
        ("Running", {}, {"scheduler": 1, "worker": 1}),
        ("All", {}, {}),
    ],
)
async def test_clean_pod_policy_determines_what_is_kept_after_the_end(
    harness: Harness, policy: str | None, runs: dict[str, int], left: dict[str, int]
) -> None:
    await DIST.begin(harness, **({"cleanPodPolicy": policy} if policy else {}))
    await (await harness.controlled_pod("worker", 0)).exit(0)
    await harness.until(lambda job: mx_tally(job)["WORKER"] == {"Running": 1, "Succeeded": 1})
    await DIST.succeed(harness)
    operator, _ = await harness.operator()
    await looked(operator)
    await harness.until_holds(lambda: harness.running() == runs)
    if policy == "All":
        await harness.nothing_left()
    assert Counter(name.split("-")[1] for name in await harness.children(JOB)) == left
    assert len(await harness.children(SERVICE)) == (0 if policy == "All" else 1)


@pytest.mark.parametrize("network", ["shared", "namespace"])
async def test_each_replica_gets_the_schedulers_address_and_reaches_it(harness: Harness, network: str) -> None:
    await DIST.begin(harness, RuntimeId="1kkf")
    scheduler, worker = await harness.controlled_pod("scheduler"), await harness.controlled_pod("worker", 1)
    variables = await worker.ask("{k: v for k, v in os.environ.items() if k.startswith('DMLC_')}")
    address = variables.pop("DMLC_PS_ROOT_URI"), variables.pop("DMLC_PS_ROOT_PORT")
    if network == "shared":  # names do not resolve there, and each job has a port of its own
        assert address[0] == "127.0.0.1" and address[1] != "9091"
    else:
        assert address == ("story-scheduler-1kkf-0", "9091")
    assert variables == {
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


async def test_a_local_job_runs_one_worker_without_a_service_and_restarts_it(harness: Harness) -> None:
    await harness.submit(mx_local())
    worker = await harness.controlled_pod("worker")
    assert await worker.ask("[k for k in os.environ if k.startswith('DMLC_')]") == []
    assert await harness.children(SERVICE) == {}
    await harness.had_failed()
    await worker.kill()
    await harness.condition("Restarting")
    harness.later(360)
    await harness.until_holds(lambda: lives(harness) == {"worker-0": 2})
    assert restarts(await harness.job()) == 1
    await PLAYS["MxJob-local"].runs(harness)
    await PLAYS["MxJob-local"].succeed(harness)
    assert (await harness.job())["status"]["phase"] == "Done"


@pytest.mark.parametrize("code", [1, 127, 128, 255])
async def test_a_local_worker_is_tried_again_from_128_on(harness: Harness, code: int) -> None:
    await harness.submit(mx_local())
    await harness.had_failed()
    await (await harness.controlled_pod("worker")).exit(code)
    await harness.condition("Failed" if code < 128 else "Restarting")
    assert is_condition_true((await harness.job())["status"]["conditions"], "Failed") == (code < 128)


async def test_a_job_of_the_other_api_group_behaves_the_same(harness: Harness) -> None:
    job = mx_job() | {"apiVersion": "mxnet.mlkube.io/v1beta1"}
    await harness.submit(job)
    await DIST.runs(harness)
    (child, *_) = (await harness.children(JOB)).values()
    assert child["metadata"]["ownerReferences"][0]["apiVersion"] == "mxnet.mlkube.io/v1beta1"
    assert "mxnet.mlkube.io" in child["metadata"]["labels"]
    await DIST.succeed(harness)


@pytest.mark.parametrize("object_name", ["Service mxjob-1kkf", "Job story-server-1kkf-0"])
async def test_a_foreign_object_with_a_childs_name_is_reported_and_not_changed(
    harness: Harness, object_name: str
) -> None:
    kind, name = object_name.split()
    other = await harness.api.create(
        _foreign(kind)[0], harness.namespace, _foreign(kind)[1] | {"metadata": {"name": name}}
    )
    operator, _ = await harness.operator()
    await harness.submit(mx_job(RuntimeId="1kkf"))
    condition = await harness.condition("NameConflict")
    assert f'{kind} "{name}" exists already and belongs to nobody' in condition["message"]
    rest = {role: count for role, count in DIST.cast.items() if not (kind == "Job" and role == "server")}
    await harness.every_replica_runs(**rest)
    await looked(operator)
    gvk = _foreign(kind)[0]
    assert uid_of(await harness.api.get(gvk, harness.namespace, name)) == uid_of(other)
    await harness.api.delete(gvk, harness.namespace, name)
    await harness.gone(gvk, name)
    harness.later(3600)
    await DIST.runs(harness)
    await harness.until(lambda job: not is_condition_true(job["status"]["conditions"], "NameConflict"))
    await DIST.succeed(harness)


def _foreign(kind: str) -> tuple[GVK, Json]:
    """An object of another owner that runs nothing."""
    if kind == "Service":
        return SERVICE, {"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 80}]}}
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "example.invalid/none"}]}
    return JOB, {"apiVersion": "batch/v1", "kind": "Job", "spec": {"suspend": True, "template": {"spec": pod}}}


async def test_an_edit_after_the_start_is_refused_and_holds_while_suspended(harness: Harness) -> None:
    await DIST.begin(harness)
    sets = (await harness.job())["spec"]["replicaSpecs"]
    sets[2]["replicas"] = 1
    with pytest.raises(Invalid) as refused:
        await harness.edit({"replicaSpecs": sets})
    assert "spec.replicaSpecs" in refused.value.message
    assert "fixed once the job has started: suspend it and edit it then, or make a new job" in refused.value.message
    await harness.edit({"suspend": True})
    await harness.condition("Suspended")
    await harness.until_holds(lambda: not harness.running())
    await harness.edit({"replicaSpecs": sets})
    await harness.edit({"suspend": False})
    await harness.every_replica_runs(scheduler=1, server=1, worker=1)
    assert await (await harness.controlled_pod("worker")).ask("os.environ['DMLC_NUM_WORKER']") == "1"
    assert len(await harness.children(JOB)) == 3


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
async def test_a_wrong_job_is_refused_with_path_and_fix(harness: Harness, job: Json, path: str, text: str) -> None:
    with pytest.raises(Invalid) as refused:
        await harness.submit(job)
    assert path in refused.value.message and text in refused.value.message

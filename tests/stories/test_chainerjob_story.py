"""A ChainerJob: a master that tries again by itself, and sets of workers that follow the spec while it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.stories.crash_injection import deaths
from tests.stories.harness import CONFIG_MAP, JOB, POD, STATEFUL_SET, Harness, looked, place_of, restarts
from tests.stories.job_fixtures import PLAYS, all_ready, chainer_alone, chainer_job, template, worker_set
from tests.support.waiting import SLOW_PAUSE, until_async
from trainyard.client import Invalid
from trainyard.objects import GVK, Json, is_condition_true, name_of, uid_of
from trainyard.objects.resources import ROLE, SERVICE_ACCOUNT

CHAINER = PLAYS["ChainerJob"]


def lives(harness: Harness) -> Counter[str]:
    return Counter(controlled.place for controlled in harness.entered)


async def test_a_killed_worker_is_started_again_by_its_node_and_counted(harness: Harness) -> None:
    await CHAINER.begin(harness)
    pod = await harness.pod("ws", 1)
    await (await harness.controlled_pod("ws", 1)).kill()
    await harness.until_holds(lambda: lives(harness) == {"master-0": 1, "ws-0": 1, "ws-1": 2})
    job = await harness.until(lambda job: restarts(job) == 1)
    assert uid_of(await harness.pod("ws", 1)) == uid_of(pod) and not is_condition_true(
        job["status"]["conditions"], "Failed"
    )
    await CHAINER.succeed(harness)


async def test_a_killed_master_is_tried_again_by_its_job_and_the_workers_stay(harness: Harness) -> None:
    await CHAINER.begin(harness)
    job = (await harness.children(JOB))["story-master"]
    await (await harness.controlled_pod("master")).kill()
    status = (await harness.until(lambda job: restarts(job) == 1))["status"]
    assert status["failed"] == 1 and not is_condition_true(status["conditions"], "Failed")
    harness.later(10)
    await harness.until_holds(lambda: lives(harness) == {"master-0": 2, "ws-0": 1, "ws-1": 1})
    assert uid_of((await harness.children(JOB))["story-master"]) == uid_of(job)
    await CHAINER.runs(harness)
    await CHAINER.succeed(harness)
    status = (await harness.job())["status"]
    assert (status["restarts"], status["succeeded"], status["failed"]) == (1, 1, 1) and "active" not in status


@pytest.mark.slow
async def test_under_on_failure_the_node_starts_the_master_again(harness: Harness) -> None:
    master = {"template": template("chainer", restartPolicy="OnFailure")}
    await harness.submit(chainer_alone(master=master))
    await (await harness.controlled_pod("master")).exit(1)
    await harness.until_holds(lambda: lives(harness) == {"master-0": 2})
    await harness.until(lambda job: restarts(job) == 1)
    await (await harness.controlled_pod("master")).exit(0)
    await harness.condition("Succeeded")
    assert is_condition_true((await harness.job())["status"]["conditions"], "Complete")  # as the documents call it


@pytest.mark.slow
@pytest.mark.parametrize(
    "limits",
    [{"backoffLimit": 0}, {"backoffLimit": 9, "master": {"template": template("chainer"), "backoffLimit": 0}}],
    ids=["of the job", "of the master"],
)
async def test_at_its_limit_the_master_has_failed_and_the_workers_go(harness: Harness, limits: Json) -> None:
    await CHAINER.begin(harness, **limits)
    master = await harness.controlled_pod("master")
    await master.ask("print('ValueError: shapes differ', flush=True)")
    await master.exit(1)
    failed = await harness.condition("Failed")
    assert failed["reason"] == "BackoffLimitExceeded"
    assert "master 0: container chainer exited with code 1" in failed["message"]
    assert "ValueError: shapes differ" in failed["message"]
    await harness.until_holds(lambda: not harness.running())
    assert (await harness.children(STATEFUL_SET))["story-workerset-ws"]["spec"]["replicas"] == 0
    job = await harness.job()
    assert (job["status"]["state"], job["status"]["failed"]) == ("Failed", 1)
    operator, api = await harness.operator()
    harness.later(3600)
    await looked(operator)
    assert api.writes == []


@pytest.mark.slow
async def test_the_masters_own_deadline_wins(harness: Harness) -> None:
    master = {"template": template("chainer"), "activeDeadlineSeconds": 100}
    await CHAINER.begin(harness, master=master, activeDeadlineSeconds=10)
    operator, _ = await harness.operator()
    harness.later(50)
    await looked(operator)
    assert harness.running() == CHAINER.cast
    harness.later(60)
    assert (await harness.condition("Failed"))["reason"] == "DeadlineExceeded"
    await harness.until_holds(lambda: not harness.running())


@pytest.mark.slow
@pytest.mark.parametrize("whose", ["master-0", "ws-0"])
async def test_a_pod_deleted_by_another_client_is_replaced_and_not_counted(harness: Harness, whose: str) -> None:
    await CHAINER.begin(harness)
    role, _, index = whose.partition("-")
    pod = await harness.pod(role, int(index))
    await harness.api.delete(POD, harness.namespace, name_of(pod))
    await harness.gone(POD, name_of(pod), uid_of(pod))
    harness.later(10)
    await harness.until_holds(
        lambda: lives(harness) == Counter({"master-0": 1, "ws-0": 1, "ws-1": 1}) + Counter([whose])
    )
    job = await CHAINER.runs(harness)
    assert restarts(job) == 0
    await CHAINER.succeed(harness)
    assert restarts(await harness.job()) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "runs", "size"), [(None, {}, 0), ("None", {"ws": 2}, 2), ("Running", {}, 0), ("All", {}, None)]
)
async def test_clean_pod_policy_determines_what_is_kept_after_the_end(
    harness: Harness, policy: str | None, runs: dict[str, int], size: int | None
) -> None:
    await CHAINER.begin(harness, **({"cleanPodPolicy": policy} if policy else {}))
    master = await harness.pod("master")
    await (await harness.controlled_pod("master")).ask("print('trained', flush=True)")
    await CHAINER.succeed(harness)
    operator, _ = await harness.operator()
    await looked(operator)
    await harness.until_holds(lambda: harness.running() == runs)
    if policy == "All":
        await harness.nothing_left()
    else:
        assert await harness.logs(name_of(master)) == "trained\n"
    sizes = [child["spec"]["replicas"] for child in (await harness.children(STATEFUL_SET)).values()]
    assert sizes == ([] if size is None else [size])


@pytest.mark.slow
async def test_a_finished_jobs_master_that_disappears_is_not_run_again(harness: Harness) -> None:
    await CHAINER.begin(harness)
    await CHAINER.succeed(harness)
    await harness.api.delete(JOB, harness.namespace, "story-master")
    await harness.gone(JOB, "story-master")
    operator, api = await harness.operator()
    harness.later(3600)
    await looked(operator)
    assert api.writes == [] and await harness.children(JOB) == {}
    assert (await harness.job())["status"]["state"] == "Succeeded"


# --- edits


def sets(**changes: Any) -> Json:
    return {"workerSets": changes}


async def until_listed(harness: Harness, line: str) -> None:
    """Wait until the ConfigMap lists these worker sets, and no others. Pods may run before that is written."""

    async def lines() -> str:
        return str((await harness.children(CONFIG_MAP))["story-assets"]["data"]["statefulsets_and_slots"])

    await until_async(lines, "the ConfigMap lists the worker sets", accept=lambda text: text == line, pause=SLOW_PAUSE)


async def until_reachable(harness: Harness, *pods: str) -> None:
    """Wait until the Role allows exec in these pods, and in no others."""

    async def names() -> set[str]:
        rules = (await harness.children(ROLE))["story-launcher-role"]["rules"]
        return {name for rule in rules for name in rule["resourceNames"]}

    await until_async(names, "the Role names the pods", accept=lambda named: named == set(pods), pause=SLOW_PAUSE)


@pytest.mark.slow
async def test_scaling_a_worker_set_updates_its_role_and_config_map_and_disturbs_no_other(harness: Harness) -> None:
    await CHAINER.begin(harness)
    await harness.edit(sets(ws={"replicas": 3}))
    await harness.every_replica_runs(master=1, ws=3)
    await until_listed(harness, "story-workerset-ws slots=1 replicas=3\n")
    await until_reachable(harness, *(f"story-workerset-ws-{index}" for index in range(3)))
    await harness.edit(sets(ws={"replicas": 1}))
    await harness.every_replica_runs(master=1, ws=1)
    await harness.gone(POD, "story-workerset-ws-1")
    await until_listed(harness, "story-workerset-ws slots=1 replicas=1\n")
    await until_reachable(harness, "story-workerset-ws-0")
    assert lives(harness) == {"master-0": 1, "ws-0": 1, "ws-1": 1, "ws-2": 1}
    await CHAINER.succeed(harness)


@pytest.mark.slow
async def test_editing_the_template_of_a_worker_set_restarts_that_set_only(harness: Harness) -> None:
    await harness.submit(chainer_job(sets={"ws": worker_set(1), "more": worker_set(1)}))
    await harness.every_replica_runs(master=1, ws=1, more=1)
    edited = (await harness.job())["spec"]["workerSets"]["ws"]["template"]
    edited["spec"]["containers"][0]["env"].append({"name": "RATE", "value": "0.5"})
    await harness.edit(sets(ws={"template": edited}))
    await harness.until_holds(lambda: lives(harness) == {"master-0": 1, "ws-0": 2, "more-0": 1})
    assert await (await harness.controlled_pod("ws")).ask("os.environ['RATE']") == "0.5"
    await (await harness.controlled_pod("master")).exit(0)
    await harness.condition("Succeeded")


@pytest.mark.slow
async def test_an_invalid_edit_of_a_worker_set_is_reported_and_the_master_keeps_running(harness: Harness) -> None:
    await CHAINER.begin(harness)
    good = (await harness.job())["spec"]["workerSets"]["ws"]["template"]
    mount = {"name": "not-there", "mountPath": "/data"}
    bad = {"spec": {**good["spec"], "containers": [{**good["spec"]["containers"][0], "volumeMounts": [mount]}]}}
    await harness.edit(sets(ws={"template": bad}))
    condition = await harness.condition("Blocked")
    assert "StatefulSet story-workerset-ws" in condition["message"] and "not-there" in condition["message"]
    await harness.every_replica_runs(master=1)
    await harness.edit(sets(ws={"template": good}))
    harness.later(3600)
    await harness.every_replica_runs(master=1, ws=2)
    await harness.until(lambda job: not is_condition_true(job["status"]["conditions"], "Blocked"))
    assert lives(harness) == {"master-0": 1, "ws-0": 2, "ws-1": 2}
    await CHAINER.succeed(harness)


async def test_worker_sets_are_added_and_removed_with_the_spec(harness: Harness) -> None:
    await CHAINER.begin(harness)
    more = (await harness.job())["spec"]["workerSets"]["ws"] | {"replicas": 1, "mpiConfig": {"slots": 4}}
    await harness.edit(sets(more=more))
    await harness.every_replica_runs(master=1, ws=2, more=1)
    both = "story-workerset-more slots=4 replicas=1\nstory-workerset-ws slots=1 replicas=2\n"
    await until_listed(harness, both)
    await until_reachable(harness, "story-workerset-more-0", "story-workerset-ws-0", "story-workerset-ws-1")
    await harness.edit(sets(ws=None))
    await harness.every_replica_runs(master=1, more=1)
    await harness.gone(STATEFUL_SET, "story-workerset-ws")
    await until_listed(harness, "story-workerset-more slots=4 replicas=1\n")
    await harness.edit(sets(ws=more | {"mpiConfig": None}))
    await harness.every_replica_runs(master=1, ws=1, more=1)
    assert lives(harness)["master-0"] == lives(harness)["more-0"] == 1


@pytest.mark.slow
async def test_the_master_keeps_the_template_that_it_was_started_with(harness: Harness) -> None:
    await CHAINER.begin(harness)
    master = (await harness.job())["spec"]["master"]
    master["template"]["spec"]["containers"][0]["image"] = "other"
    with pytest.raises(Invalid) as refused:
        await harness.edit({"master": master})
    assert "spec.master" in refused.value.message and "suspend it" in refused.value.message
    await harness.edit({"suspend": True})
    await harness.condition("Suspended")
    await harness.until_holds(lambda: not harness.running())
    await harness.edit({"master": master, "suspend": False})
    await CHAINER.runs(harness)
    job = (await harness.children(JOB))["story-master"]
    assert job["spec"]["template"]["spec"]["containers"][0]["image"] == "other"


async def _grown(harness: Harness) -> None:
    await harness.every_replica_runs(master=1, ws=3)
    await harness.until(lambda role: len(role["rules"][0]["resourceNames"]) == 3, ROLE, "story-launcher-role")


async def _moved(harness: Harness) -> None:
    await harness.gone(STATEFUL_SET, "story-workerset-ws")
    await harness.every_replica_runs(master=1, more=1)


async def _renewed(harness: Harness) -> None:
    await harness.until_holds(lambda: lives(harness)["ws-0"] == lives(harness)["ws-1"] == 2)
    await CHAINER.runs(harness)


def _renew(spec: Json) -> Json:
    containers = spec["workerSets"]["ws"]["template"]["spec"]["containers"]
    containers[0]["env"].append({"name": "RATE", "value": "0.5"})
    return sets(ws={"template": spec["workerSets"]["ws"]["template"]})


@pytest.mark.slow
@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("edit", "done"),
    [
        (lambda spec: sets(ws={"replicas": 3}), _grown),
        (lambda spec: sets(ws=None, more=spec["workerSets"]["ws"] | {"replicas": 1}), _moved),
        (_renew, _renewed),
    ],
    ids=["2 to 3", "another set", "another template"],
)
async def test_operators_that_die_at_every_write_follow_an_edit_once(
    harness: Harness, applied: bool, edit: Callable[[Json], Json], done: Any
) -> None:
    before = await CHAINER.begin(harness)
    await harness.cluster.stop_operator()
    await harness.edit(edit(before["spec"]))
    assert await deaths(harness, applied, lambda: done(harness)) >= 2
    operator, api = await harness.operator()
    await looked(operator)
    assert {
        write.body for write in api.writes if b'"conditions"' in (write.body or b"") or write.method != "PATCH"
    } == set()
    await harness.until(all_ready)
    assert lives(harness)["master-0"] == 1 and max(lives(harness).values()) == (2 if done is _renewed else 1)


# --- names of others


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gvk", "name", "runs"),
    [
        (JOB, "story-master", {"ws": 2}),
        (STATEFUL_SET, "story-workerset-ws", {}),
        (SERVICE_ACCOUNT, "story-launcher", None),  # nobody is made who would run as that account
        (CONFIG_MAP, "story-assets", None),
    ],
    ids=["Job", "StatefulSet", "ServiceAccount", "ConfigMap"],
)
async def test_a_foreign_object_with_a_childs_name_is_reported_and_not_changed(
    harness: Harness, gvk: GVK, name: str, runs: dict[str, int] | None
) -> None:
    other = await harness.api.create(gvk, harness.namespace, _foreign(gvk, name))
    operator, _ = await harness.operator()
    await harness.submit(chainer_job())
    condition = await harness.condition("NameConflict")
    assert condition["message"].startswith(f'Resource "{name}" already exists and is not managed by ChainerJob')
    assert f'{gvk.kind} "{name}" exists already and belongs to nobody' in condition["message"]
    if runs:
        await harness.every_replica_runs(**runs)
    await looked(operator)
    if gvk == SERVICE_ACCOUNT:
        assert not await harness.children(JOB) and not await harness.children(STATEFUL_SET)
    assert untouched(await harness.api.get(gvk, harness.namespace, name)) == untouched(other)
    await harness.api.delete(gvk, harness.namespace, name)
    await harness.gone(gvk, name)
    harness.later(3600)
    await CHAINER.runs(harness)
    await harness.until(lambda job: not is_condition_true(job["status"]["conditions"], "NameConflict"))
    await CHAINER.succeed(harness)


def untouched(obj: Json) -> Json:
    """Permissions on objects that only their owner may change."""
    meta = {key: obj["metadata"].get(key) for key in ("uid", "labels", "annotations", "ownerReferences")}
    return {"metadata": meta, **{key: obj.get(key) for key in ("spec", "data")}}


def _foreign(gvk: GVK, name: str) -> Json:
    """An object of another owner that runs nothing."""
    body: Json = {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": {"name": name}}
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "example.invalid/none"}]}
    labels = {"app": "other"}
    if gvk == JOB:
        return body | {"spec": {"suspend": True, "template": {"spec": pod}}}
    if gvk == STATEFUL_SET:
        whole = {"metadata": {"labels": labels}, "spec": pod | {"restartPolicy": "Always"}}
        return body | {"spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": whole}}
    return body


@pytest.mark.slow
async def test_a_job_alone_has_no_files_and_no_rights(harness: Harness) -> None:
    await harness.submit(chainer_alone())
    await harness.controlled_pod("master")
    assert (await harness.children(ROLE))["story-launcher-role"]["rules"] in ([], None)
    assert await harness.children(CONFIG_MAP) == await harness.children(STATEFUL_SET) == {}
    assert await (await harness.controlled_pod("master")).ask("'OMPI_MCA_plm_rsh_agent' in os.environ") is False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"workerSets": {"ws": worker_set(0)}}, "spec.workerSets.ws.replicas"),
        ({"workerSets": {"ws": worker_set(100_000)}}, "spec.workerSets.ws.replicas"),
        ({"workerSets": {"ws": worker_set(mpiConfig={"slots": "many"})}}, "spec.workerSets.ws.mpiConfig.slots"),
        ({"workerSets": {"ws": worker_set(mpiConfig={"slots": 0})}}, "spec.workerSets.ws.mpiConfig.slots"),
        ({"backend": "gloo"}, "spec.backend"),
        ({"master": None}, "spec.master"),
        ({"master": {"template": template("other", {"name": "side", "image": "x"})}}, "spec.master.template"),
    ],
    ids=["no workers", "too many", "slots are no number", "no slots", "unknown backend", "no master", "no container"],
)
async def test_a_wrong_job_is_refused_with_its_path(harness: Harness, change: Json, path: str) -> None:
    with pytest.raises(Invalid) as refused:
        await harness.submit(chainer_job(name="story") | {"spec": {**chainer_job()["spec"], **change}})
    assert path in place_of(refused.value)

"""`suspend` and `managedBy` are what Kueue's job integration expects of them, for each kind and on both back ends."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stories.harness import POD, Stage, looked, replicas, tf_job
from tests.stories.job_fixtures import PLAYS, Play
from tests.stories.kueue import QUEUE, Flavor, Kueue, pod_sets
from trainyard.client import Invalid
from trainyard.objects import Json, find_condition, is_condition_true, labels_of, name_of

pytestmark = pytest.mark.slow
each = pytest.mark.parametrize("play", PLAYS.values(), ids=PLAYS)
PRIORITY = "system-cluster-critical"


def queued(play: Play, **spec: Any) -> Json:
    """A job as its user sends it to a queue."""
    job = play.make(suspend=True, **spec)
    job["metadata"]["labels"] = dict(QUEUE)
    for one in pod_sets(job["spec"]).values():
        one["template"]["spec"]["priorityClassName"] = PRIORITY
    return job


async def wait_in_line(stage: Stage, play: Play, **spec: Any) -> Kueue:
    await stage.submit(queued(play, **spec))
    await stage.condition("Suspended")
    return Kueue(stage)


def counts(job: Json) -> str:
    """What the status says about replicas that live."""
    told = {name: job["status"].get(name) for name in ("active", "replicaStatuses")}
    return str(told)


def lives(job: Json) -> bool:
    return "Running" in counts(job) or "'active': " in counts(job).replace("'active': None", "")


def has_exactly(pod: Json, flavor: Flavor) -> None:
    """What the admission said, once, and nothing of another one."""
    spec, meta = pod["spec"], pod["metadata"]
    assert labels_of(pod)["kueue.x-k8s.io/podset"] == flavor.name
    assert meta["annotations"]["kueue.x-k8s.io/workload"] == f"admitted-{flavor.name}"
    assert spec["nodeSelector"] == flavor.selector
    assert [one for one in spec["tolerations"] if one["key"] == "example.com/flavor"] == [flavor.toleration]
    assert spec["priorityClassName"] == PRIORITY
    assert not QUEUE.keys() & labels_of(pod).keys()  # the job stands in the queue, and not each of its parts


def partial(play: Play) -> dict[str, int]:
    """One worker for two, where there are two."""
    return {role: 1 for role, count in play.cast.items() if count == 2}


def cast(play: Play, flavor: Flavor) -> dict[str, int]:
    return {**play.cast, **flavor.counts}


@each
async def test_a_queued_job_is_admitted_evicted_and_admitted_again_each_time_by_one_update(
    stage: Stage, play: Play
) -> None:
    operator, _ = await stage.operator()
    kueue = await wait_in_line(stage, play)
    await looked(operator)
    assert [await stage.children(gvk) for gvk in stage.kind.roles.child_resources] == [{}] * len(
        stage.kind.roles.child_resources
    )
    assert not lives(await stage.job())

    spot = Flavor("spot", counts=partial(play))
    await kueue.admit(spot)
    await stage.everybody(**cast(play, spot))
    await stage.until(lives)
    pods = await kueue.pods()
    assert len(pods) == sum(cast(play, spot).values())
    for pod in pods:
        has_exactly(pod, spot)
    for gvk in stage.kind.roles.child_resources:
        assert [name for name, one in (await stage.children(gvk)).items() if QUEUE.keys() & labels_of(one).keys()] == []

    await kueue.evict()
    await stage.condition("Suspended")
    await stage.happens(lambda: not stage.running())
    evicted = await stage.until(
        lambda job: not lives(job) and not is_condition_true(job["status"]["conditions"], "Running")
    )
    for pod in pods:
        await stage.gone(POD, name_of(pod), pod["metadata"]["uid"])
    assert pod_sets(evicted["spec"]) == kueue.original and labels_of(evicted).items() >= QUEUE.items()
    assert find_condition(evicted["status"]["conditions"], "SpecChangeIgnored") is None
    assert not evicted["status"]["restarts"]

    standard = Flavor("standard")
    await kueue.admit(standard)
    await stage.everybody(**play.cast)
    await stage.until(lives)
    for pod in await kueue.pods():
        has_exactly(pod, standard)
    job = await stage.job()
    assert (job["status"]["resumes"], job["status"].get("restarts", 0)) == (1, 0)
    await play.succeed(stage)
    done = await stage.condition("Succeeded")
    assert done["reason"] and done["message"]


@each
async def test_a_failed_job_says_so_with_reason_and_message_and_is_over(stage: Stage, play: Play) -> None:
    kueue = await wait_in_line(stage, play, backoffLimit=0)
    await kueue.admit(Flavor("spot"))
    await stage.everybody(**play.cast)
    await (await stage.actor(*play.last[0])).exit(1)
    failed = await stage.condition("Failed")
    assert failed["reason"] and failed["message"]


@each
async def test_gated_pods_wait_until_the_gates_are_taken_away(stage: Stage, play: Play) -> None:
    kueue = await wait_in_line(stage, play)
    await kueue.admit(Flavor("spot", gates=("kueue.x-k8s.io/topology",)))
    await stage.until(lambda pods: True, POD, await first_pod(stage, play))
    for role, count in play.cast.items():
        for index in range(count):
            pod = await stage.pod(role, index)
            assert pod["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/topology"}]
    assert not stage.running() and not is_condition_true((await stage.job())["status"]["conditions"], "Running")
    await kueue.ungate()
    await play.runs(stage)


async def first_pod(stage: Stage, play: Play) -> str:
    role, index = play.slots[0]
    return name_of(await stage.pod(role, index))


@each
async def test_a_template_is_not_edited_under_a_running_job_unless_it_is_suspended_with_it(
    stage: Stage, play: Play
) -> None:
    kueue = await wait_in_line(stage, play)
    await kueue.admit(Flavor("spot"))
    await play.runs(stage)
    if stage.kind.gvk.kind == "ElasticJob":  # its edits hold for replicas that are made later (S11)
        return
    job = await stage.job()
    sets = pod_sets(job["spec"])
    Flavor("other").put_into(sets[play.last[0][0]]["template"])
    with pytest.raises(Invalid, match="suspend it and edit it then"):
        await stage.edit(job["spec"])
    await looked((await stage.operator())[0])
    assert stage.running() == play.cast


@each
async def test_a_job_of_another_manager_is_left_alone_until_it_is_given_to_us(stage: Stage, play: Play) -> None:
    operator, api = await stage.operator()
    sent = len(api.sent)
    await stage.submit(play.make(managedBy="kueue.x-k8s.io/multikueue"))
    await looked(operator)
    assert [one.path for one in api.sent[sent:] if "watch" not in dict(one.query)] == []
    assert "status" not in await stage.job()
    await stage.edit({"managedBy": "trainyard.dev/operator"})
    await play.runs(stage)
    await looked(operator)
    sent = len(api.sent)
    await stage.edit({"managedBy": "kueue.x-k8s.io/multikueue", "suspend": True})
    await looked(operator)
    assert [one.path for one in api.sent[sent:] if one.method != "GET"] == []
    assert stage.running() == play.cast


@pytest.mark.parametrize("within", ["runPolicy", "RunPolicy"])
async def test_an_elastic_job_may_be_held_and_given_away_in_its_run_policy_too(stage: Stage, within: str) -> None:
    play = PLAYS["ElasticJob"]
    operator, api = await stage.operator()
    await stage.submit(play.make(**{within: {"suspend": True}}))
    await stage.condition("Suspended")
    await stage.edit({within: {"suspend": False}})
    await play.runs(stage)
    await looked(operator)
    sent = len(api.sent)
    await stage.edit({within: {"managedBy": "kueue.x-k8s.io/multikueue", "suspend": True}})
    await looked(operator)
    assert [one.path for one in api.sent[sent:] if one.method != "GET"] == []
    assert stage.running() == play.cast


async def test_a_queue_sees_the_pods_of_standard_parameter_servers_before_it_admits_them(stage: Stage) -> None:
    """Their template is ours, and is stored while the job is still held back."""
    await stage.submit(tf_job(replicas("MASTER"), {"replicas": 2, "tfReplicaType": "PS"}, suspend=True))
    job = await stage.until(lambda job: is_condition_true(job.get("status", {}).get("conditions"), "Suspended"))
    servers = pod_sets(job["spec"])["ps"]
    assert servers["replicas"] == 2 and servers["template"]["spec"]["containers"][0]["name"] == "tensorflow"

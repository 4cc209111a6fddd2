"""What a job's policies do, seen from its processes: who runs, who is stopped, what can still be looked at."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.stories.harness import DEPLOYMENT, JOB, POD, SERVICE, TFJOB, Stage, attempt_of, looked, replicas, tf_job
from trainyard.objects import Json, find_condition, is_condition_true, name_of, uid_of

pytestmark = pytest.mark.slow


def phase_and_state(job: Json) -> tuple[str, str]:
    return job["status"]["phase"], job["status"]["state"]


@pytest.mark.parametrize(
    ("policy", "runs", "jobs", "services"),
    [
        (None, {"worker": 1, "ps": 1}, {"master", "ps", "worker"}, 1),
        ("None", {"worker": 1, "ps": 1}, {"master", "ps", "worker"}, 1),
        ("Running", {}, {"master", "worker"}, 1),
        ("All", {}, set(), 0),
    ],
)
async def test_clean_pod_policy_says_what_stays_after_the_end(
    stage: Stage, policy: str | None, runs: dict[str, int], jobs: set[str], services: int
) -> None:
    await stage.submit(tf_job(**({"cleanPodPolicy": policy} if policy else {})))
    await stage.everybody()
    worker = await stage.pod("worker", 0)
    await (await stage.actor("worker", 0)).ask("print('I am done', flush=True)")
    await (await stage.actor("worker", 0)).exit(0)
    await stage.until(lambda pod: pod["status"].get("phase") == "Succeeded", POD, name_of(worker))
    await (await stage.actor("master")).exit(0)
    await stage.condition("Succeeded")
    operator, _ = await stage.operator()
    await looked(operator)
    await stage.happens(lambda: stage.running() == runs)
    if policy == "All":
        await stage.nothing_left()
    assert {name.partition("-")[0] for name in await stage.children(JOB)} == jobs
    assert len(await stage.children(SERVICE)) == services
    if policy != "All":
        assert await stage.logs(name_of(worker)) == "I am done\n"
    assert phase_and_state(await stage.job()) == ("Done", "Succeeded")


async def test_a_suspended_job_runs_nothing_and_goes_on_one_attempt_later(stage: Stage) -> None:
    await stage.submit(tf_job(activeDeadlineSeconds=60))
    await stage.everybody()
    done = await stage.pod("worker", 0)
    await (await stage.actor("worker", 0)).exit(0)
    await stage.until(lambda pod: pod["status"].get("phase") == "Succeeded", POD, name_of(done))
    await stage.api.patch(TFJOB, stage.namespace, "story", {"spec": {"suspend": True}})
    await stage.condition("Suspended")
    await stage.happens(lambda: not stage.running())
    job = await stage.job()
    assert phase_and_state(job) == ("Creating", "Suspended") and "startTime" not in job["status"]
    await stage.until(lambda job: not is_condition_true(job["status"]["conditions"], "Running"))
    assert uid_of(await stage.pod("worker", 0)) == uid_of(done)
    stage.later(3600)  # the deadline's clock stands still
    operator, api = await stage.operator()
    await looked(operator)
    assert api.writes == []

    await stage.api.patch(TFJOB, stage.namespace, "story", {"spec": {"suspend": False}})
    await stage.happens(lambda: stage.running() == {"master": 1, "worker": 1, "ps": 1})
    job = await stage.until(lambda job: job["status"]["state"] == "Running")
    assert not is_condition_true(job["status"]["conditions"], "Suspended") and "startTime" in job["status"]
    attempts = {name.partition("-")[0] + name[-1]: attempt_of(one) for name, one in (await stage.children(JOB)).items()}
    assert attempts == {"master0": "1", "ps0": "1", "worker0": "0", "worker1": "1"}
    assert len(stage.entrances("worker", 0)) == 1 and not job["status"]["restarts"]
    await (await stage.actor("master")).exit(0)
    await stage.condition("Succeeded")


async def test_a_job_suspended_while_its_master_waits_for_its_back_off_counts_that_once(stage: Stage) -> None:
    await stage.submit(tf_job())
    await stage.everybody()
    await (await stage.actor("master")).exit(137)
    await stage.condition("Restarting")
    await stage.api.patch(TFJOB, stage.namespace, "story", {"spec": {"suspend": True}})
    await stage.condition("Suspended")
    await stage.happens(lambda: not stage.running())
    stage.later(3600)
    operator, _ = await stage.operator()
    await looked(operator)
    assert not stage.running() and len(stage.entrances("master")) == 1
    for _ in range(3):  # and again, and again
        await stage.api.patch(TFJOB, stage.namespace, "story", {"spec": {"suspend": False}})
        await stage.everybody()
        await stage.api.patch(TFJOB, stage.namespace, "story", {"spec": {"suspend": True}})
        await stage.condition("Suspended")
        await stage.happens(lambda: not stage.running())
    await stage.api.patch(TFJOB, stage.namespace, "story", {"spec": {"suspend": False}})
    await stage.everybody()
    job = await stage.job()
    assert (job["status"]["restarts"], job["status"]["resumes"]) == (1, 4)
    assert len(stage.entrances("master")) == 5


async def test_a_template_may_be_edited_while_suspended_and_holds_from_then_on(stage: Stage) -> None:
    await stage.submit(tf_job(replicas("MASTER")))
    await stage.actor("master")
    await stage.api.patch(TFJOB, stage.namespace, "story", {"spec": {"suspend": True}})
    await stage.condition("Suspended")
    await stage.happens(lambda: not stage.running())
    sets = (await stage.job())["spec"]["replicaSpecs"]
    sets[0]["template"]["spec"]["containers"][0]["env"].append({"name": "RATE", "value": "0.5"})
    await stage.api.patch(TFJOB, stage.namespace, "story", {"spec": {"replicaSpecs": sets}})
    await stage.api.patch(TFJOB, stage.namespace, "story", {"spec": {"suspend": None}})
    await stage.happens(lambda: len(stage.entrances("master")) == 2)
    assert await (await stage.actor("master")).ask("os.environ['RATE']") == "0.5"


async def test_a_job_born_suspended_makes_nothing_until_it_is_resumed_and_then_begins_at_0(stage: Stage) -> None:
    operator, _ = await stage.operator()
    await stage.submit(tf_job(suspend=True, tensorboard={"logDir": "/logs"}))
    await stage.condition("Suspended")
    await looked(operator)
    assert [await stage.children(gvk) for gvk in (JOB, SERVICE, DEPLOYMENT)] == [{}, {}, {}]
    await stage.api.patch(TFJOB, stage.namespace, "story", {"spec": {"suspend": False}})
    await stage.everybody()
    assert {attempt_of(one) for one in (await stage.children(JOB)).values()} == {"0"}
    assert "resumes" not in (await stage.job())["status"]


async def test_a_deadline_stops_everything_whatever_clean_pod_policy_says(stage: Stage) -> None:
    await stage.submit(tf_job(activeDeadlineSeconds=100, cleanPodPolicy="None"))
    await stage.everybody()
    await stage.everybody_is_said()
    operator, api = await stage.operator()
    stage.set_to((await stage.job())["status"]["startTime"], 95)
    await looked(operator)
    assert api.writes == [] and stage.running().total() == 4
    stage.later(5)
    failed = await stage.condition("Failed")
    assert failed["reason"] == "DeadlineExceeded" and "activeDeadlineSeconds (100 s)" in failed["message"]
    await stage.happens(lambda: not stage.running())
    assert phase_and_state(await stage.job()) == ("Done", "Failed")


async def test_a_finished_job_is_deleted_when_its_time_is_over_and_takes_everything_along(stage: Stage) -> None:
    await stage.submit(tf_job(ttlSecondsAfterFinished=100))
    await stage.everybody()
    await (await stage.actor("master")).exit(0)
    await stage.condition("Succeeded")
    operator, api = await stage.operator()
    stage.set_to((await stage.job())["status"]["completionTime"], 95)
    await looked(operator)
    assert api.writes == [] and stage.running() == {"worker": 2, "ps": 1}
    stage.later(5)
    await stage.gone(TFJOB, "story")
    await stage.nothing_left()
    await stage.happens(lambda: not stage.running())
    assert [one.method for one in api.writes] == ["PATCH", "DELETE"]  # the fence, the job; the rest is the owner's way


async def test_a_time_to_live_that_ended_while_no_operator_was_there_is_over_all_the_same(stage: Stage) -> None:
    await stage.submit(tf_job(replicas("MASTER"), ttlSecondsAfterFinished=0, cleanPodPolicy="Running"))
    await stage.actor("master")
    await stage.cluster.stop_operator()
    await (await stage.actor("master")).exit(0)
    stage.later(10)
    await stage.operator()
    await stage.gone(TFJOB, "story")
    await stage.nothing_left()


async def test_a_job_that_somebody_else_manages_costs_no_request_at_all(stage: Stage) -> None:
    operator, api = await stage.operator()
    sent = len(api.sent)
    await stage.submit(tf_job(managedBy="example.com/other"))
    await looked(operator)
    assert [one for one in api.sent[sent:] if "watch" not in dict(one.query)] == []
    assert "status" not in await stage.job()
    await stage.submit(tf_job(name="ours", managedBy="trainyard.dev/operator"))
    await stage.everybody()
    assert not [one for one in api.sent if "/story" in one.path]


async def test_a_job_deleted_in_the_middle_goes_with_all_processes_and_nothing_is_made_for_it_again(
    stage: Stage,
) -> None:
    operator, api = await stage.operator()
    await stage.submit(tf_job(tensorboard={"logDir": "/"}))
    await stage.everybody()
    await stage.until(lambda one: one, DEPLOYMENT, f"tensorboard-{(await stage.job())['spec']['RuntimeId']}")
    await looked(operator)
    written = len(api.writes)
    await stage.api.delete(TFJOB, stage.namespace, "story")
    await stage.gone(TFJOB, "story")
    await stage.nothing_left()
    await stage.happens(lambda: not stage.running())
    operator.resync()
    assert [one.method for one in api.writes[written:] if one.method == "POST"] == []
    assert Counter(one.place for one in stage.entered).most_common(1)[0][1] == 1


async def test_a_job_that_is_held_by_somebodys_finalizer_gets_nothing_new(stage: Stage) -> None:
    job = tf_job()
    job["metadata"]["finalizers"] = ["example.com/hold"]
    await stage.submit(job)
    await stage.everybody()
    await stage.everybody_is_said()
    operator, api = await stage.operator()
    await stage.api.delete(TFJOB, stage.namespace, "story")
    pod = await stage.pod("master")
    await stage.api.delete(POD, stage.namespace, name_of(pod))
    await stage.gone(POD, name_of(pod))
    stage.later(60)
    await looked(operator)
    assert api.writes == [] and find_condition((await stage.job())["status"]["conditions"], "Failed") is None
    await stage.api.patch(TFJOB, stage.namespace, "story", {"metadata": {"finalizers": None}})
    await stage.gone(TFJOB, "story")
    await stage.nothing_left()
    await stage.happens(lambda: not stage.running())

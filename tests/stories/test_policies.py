"""The policies of a job, by its processes: which run, which are stopped, and which logs are kept."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.stories.harness import DEPLOYMENT, JOB, POD, SERVICE, TFJOB, Harness, attempt_of, looked, replicas, tf_job
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
async def test_clean_pod_policy_determines_what_is_kept_after_the_end(
    harness: Harness, policy: str | None, runs: dict[str, int], jobs: set[str], services: int
) -> None:
    await harness.submit(tf_job(**({"cleanPodPolicy": policy} if policy else {})))
    await harness.every_replica_runs()
    worker = await harness.pod("worker", 0)
    await (await harness.controlled_pod("worker", 0)).ask("print('I am done', flush=True)")
    await (await harness.controlled_pod("worker", 0)).exit(0)
    await harness.until(lambda pod: pod["status"].get("phase") == "Succeeded", POD, name_of(worker))
    await (await harness.controlled_pod("master")).exit(0)
    await harness.condition("Succeeded")
    operator, _ = await harness.operator()
    await looked(operator)
    await harness.until_holds(lambda: harness.running() == runs)
    if policy == "All":
        await harness.nothing_left()
    assert {name.partition("-")[0] for name in await harness.children(JOB)} == jobs
    assert len(await harness.children(SERVICE)) == services
    if policy != "All":
        assert await harness.logs(name_of(worker)) == "I am done\n"
    assert phase_and_state(await harness.job()) == ("Done", "Succeeded")


async def test_a_suspended_job_runs_nothing_and_resumes_with_the_next_attempt(harness: Harness) -> None:
    await harness.submit(tf_job(activeDeadlineSeconds=60))
    await harness.every_replica_runs()
    done = await harness.pod("worker", 0)
    await (await harness.controlled_pod("worker", 0)).exit(0)
    await harness.until(lambda pod: pod["status"].get("phase") == "Succeeded", POD, name_of(done))
    await harness.api.patch(TFJOB, harness.namespace, "story", {"spec": {"suspend": True}})
    await harness.condition("Suspended")
    await harness.until_holds(lambda: not harness.running())
    job = await harness.job()
    assert phase_and_state(job) == ("Creating", "Suspended") and "startTime" not in job["status"]
    await harness.until(lambda job: not is_condition_true(job["status"]["conditions"], "Running"))
    assert uid_of(await harness.pod("worker", 0)) == uid_of(done)
    harness.later(3600)  # the deadline's clock stands still
    operator, api = await harness.operator()
    await looked(operator)
    assert api.writes == []

    await harness.api.patch(TFJOB, harness.namespace, "story", {"spec": {"suspend": False}})
    await harness.until_holds(lambda: harness.running() == {"master": 1, "worker": 1, "ps": 1})
    job = await harness.until(lambda job: job["status"]["state"] == "Running")
    assert not is_condition_true(job["status"]["conditions"], "Suspended") and "startTime" in job["status"]
    attempts = {
        name.partition("-")[0] + name[-1]: attempt_of(child) for name, child in (await harness.children(JOB)).items()
    }
    assert attempts == {"master0": "1", "ps0": "1", "worker0": "0", "worker1": "1"}
    assert len(harness.entrances("worker", 0)) == 1 and not job["status"]["restarts"]
    await (await harness.controlled_pod("master")).exit(0)
    await harness.condition("Succeeded")


async def test_a_job_suspended_while_its_master_waits_for_its_back_off_counts_that_once(harness: Harness) -> None:
    await harness.submit(tf_job())
    await harness.every_replica_runs()
    await harness.had_failed()
    await (await harness.controlled_pod("master")).exit(137)
    await harness.condition("Restarting")
    await harness.api.patch(TFJOB, harness.namespace, "story", {"spec": {"suspend": True}})
    await harness.condition("Suspended")
    await harness.until_holds(lambda: not harness.running())
    harness.later(3600)
    operator, _ = await harness.operator()
    await looked(operator)
    assert not harness.running() and len(harness.entrances("master")) == 1
    for _ in range(3):  # and again, and again
        await harness.api.patch(TFJOB, harness.namespace, "story", {"spec": {"suspend": False}})
        await harness.every_replica_runs()
        await harness.api.patch(TFJOB, harness.namespace, "story", {"spec": {"suspend": True}})
        await harness.condition("Suspended")
        await harness.until_holds(lambda: not harness.running())
    await harness.api.patch(TFJOB, harness.namespace, "story", {"spec": {"suspend": False}})
    await harness.every_replica_runs()
    job = await harness.job()
    assert (job["status"]["restarts"], job["status"]["resumes"]) == (1, 4)
    assert len(harness.entrances("master")) == 5


async def test_a_template_may_be_edited_while_suspended_and_holds_from_then_on(harness: Harness) -> None:
    await harness.submit(tf_job(replicas("MASTER")))
    await harness.controlled_pod("master")
    await harness.api.patch(TFJOB, harness.namespace, "story", {"spec": {"suspend": True}})
    await harness.condition("Suspended")
    await harness.until_holds(lambda: not harness.running())
    sets = (await harness.job())["spec"]["replicaSpecs"]
    sets[0]["template"]["spec"]["containers"][0]["env"].append({"name": "RATE", "value": "0.5"})
    await harness.api.patch(TFJOB, harness.namespace, "story", {"spec": {"replicaSpecs": sets}})
    await harness.api.patch(TFJOB, harness.namespace, "story", {"spec": {"suspend": None}})
    await harness.until_holds(lambda: len(harness.entrances("master")) == 2)
    assert await (await harness.controlled_pod("master")).ask("os.environ['RATE']") == "0.5"


async def test_a_job_created_suspended_creates_no_children_until_it_is_resumed_at_attempt_0(harness: Harness) -> None:
    operator, _ = await harness.operator()
    await harness.submit(tf_job(suspend=True, tensorboard={"logDir": "/logs"}))
    await harness.condition("Suspended")
    await looked(operator)
    assert [await harness.children(gvk) for gvk in (JOB, SERVICE, DEPLOYMENT)] == [{}, {}, {}]
    await harness.api.patch(TFJOB, harness.namespace, "story", {"spec": {"suspend": False}})
    await harness.every_replica_runs()
    assert {attempt_of(child) for child in (await harness.children(JOB)).values()} == {"0"}
    assert "resumes" not in (await harness.job())["status"]


async def test_a_deadline_stops_all_replicas_under_every_clean_pod_policy(harness: Harness) -> None:
    await harness.submit(tf_job(activeDeadlineSeconds=100, cleanPodPolicy="None"))
    await harness.every_replica_runs()
    await harness.status_counts_every_replica()
    operator, api = await harness.operator()
    harness.set_to((await harness.job())["status"]["startTime"], 95)
    await looked(operator)
    assert api.writes == [] and harness.running().total() == 4
    harness.later(5)
    failed = await harness.condition("Failed")
    assert failed["reason"] == "DeadlineExceeded" and "activeDeadlineSeconds (100 s)" in failed["message"]
    await harness.until_holds(lambda: not harness.running())
    assert phase_and_state(await harness.job()) == ("Done", "Failed")


async def test_a_finished_job_is_deleted_when_its_time_is_over_and_takes_everything_along(harness: Harness) -> None:
    await harness.submit(tf_job(ttlSecondsAfterFinished=100))
    await harness.every_replica_runs()
    await (await harness.controlled_pod("master")).exit(0)
    await harness.condition("Succeeded")
    operator, api = await harness.operator()
    harness.set_to((await harness.job())["status"]["completionTime"], 95)
    await looked(operator)
    assert api.writes == [] and harness.running() == {"worker": 2, "ps": 1}
    harness.later(5)
    await harness.gone(TFJOB, "story")
    await harness.nothing_left()
    await harness.until_holds(lambda: not harness.running())
    assert [write.method for write in api.writes] == [
        "PATCH",
        "DELETE",
    ]  # the fence, the job; the rest is the owner's way


async def test_a_ttl_that_expired_while_no_operator_ran_still_deletes_the_job(harness: Harness) -> None:
    await harness.submit(tf_job(replicas("MASTER"), ttlSecondsAfterFinished=0, cleanPodPolicy="Running"))
    await harness.controlled_pod("master")
    await harness.cluster.stop_operator()
    await (await harness.controlled_pod("master")).exit(0)
    harness.later(10)
    await harness.operator()
    await harness.gone(TFJOB, "story")
    await harness.nothing_left()


async def test_a_job_managed_by_another_controller_causes_no_requests(harness: Harness) -> None:
    operator, api = await harness.operator()
    sent = len(api.sent)
    await harness.submit(tf_job(managedBy="example.com/other"))
    await looked(operator)
    assert [request for request in api.sent[sent:] if "watch" not in dict(request.query)] == []
    assert "status" not in await harness.job()
    await harness.submit(tf_job(name="ours", managedBy="trainyard.dev/operator"))
    await harness.every_replica_runs()
    assert not [request for request in api.sent if "/story" in request.path]


async def test_a_deleted_running_job_ends_all_its_processes_and_no_child_is_created_again(
    harness: Harness,
) -> None:
    operator, api = await harness.operator()
    await harness.submit(tf_job(tensorboard={"logDir": "/"}))
    await harness.every_replica_runs()
    await harness.until(
        lambda deployment: deployment, DEPLOYMENT, f"tensorboard-{(await harness.job())['spec']['RuntimeId']}"
    )
    await looked(operator)
    written = len(api.writes)
    await harness.api.delete(TFJOB, harness.namespace, "story")
    await harness.gone(TFJOB, "story")
    await harness.nothing_left()
    await harness.until_holds(lambda: not harness.running())
    operator.resync()
    assert [write.method for write in api.writes[written:] if write.method == "POST"] == []
    assert Counter(controlled.place for controlled in harness.entered).most_common(1)[0][1] == 1


async def test_a_job_held_by_a_finalizer_gets_no_new_children(harness: Harness) -> None:
    job = tf_job()
    job["metadata"]["finalizers"] = ["example.com/hold"]
    await harness.submit(job)
    await harness.every_replica_runs()
    await harness.status_counts_every_replica()
    operator, api = await harness.operator()
    await harness.api.delete(TFJOB, harness.namespace, "story")
    pod = await harness.pod("master")
    await harness.api.delete(POD, harness.namespace, name_of(pod))
    await harness.gone(POD, name_of(pod))
    harness.later(60)
    await looked(operator)
    assert api.writes == [] and find_condition((await harness.job())["status"]["conditions"], "Failed") is None
    await harness.api.patch(TFJOB, harness.namespace, "story", {"metadata": {"finalizers": None}})
    await harness.gone(TFJOB, "story")
    await harness.nothing_left()
    await harness.until_holds(lambda: not harness.running())

"""Why a job waits, in few words: the words of `why`, from less."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.views.test_stragglers import usage
from tests.views.test_why_findings import CASES
from tests.views.why_values import NOW, RUNNING, Case, ended, facts, pod, tfjob, unplaced, waits
from trainyard.objects import Json, uid_of
from trainyard.views.diagnosis import why
from trainyard.views.diagnosis.brief import Observer, brief_progress, brief_why, first_words, may_wait
from trainyard.views.job_row import job_row
from trainyard.views.job_view import JobView, job_result


def brief(job: Json, *pods: Json, are_processes: bool = False, now: float = NOW) -> str:
    view = JobView.of([job], pods, now)
    slots = view.slots(uid_of(job))
    if not may_wait(job, job_row(view, uid_of(job), slots)):
        return ""
    return brief_why(
        view, uid_of(job), slots, {uid_of(listed_pod): listed_pod for listed_pod in pods}, Observer(now, are_processes)
    )


@pytest.mark.parametrize("case", [case for case in CASES if not job_result(case.job)], ids=lambda case: case.name)
def test_the_words_are_those_of_why(case: Case) -> None:
    """Either the beginning of a summary, or the message of a condition."""
    words = brief(case.job, *case.pods, are_processes="process_nodes" in case.more)
    findings = why(facts(case.job, *case.pods, **case.more))
    messages = [" ".join(line.split()) for finding in findings for line in finding.evidence]
    assert any(finding.summary.startswith(words) for finding in findings) or words in messages, words


@pytest.mark.parametrize(
    ("job", "pods", "words"),
    [
        (tfjob(RUNNING), (pod("MASTER-0"), pod("WORKER-0"), pod("WORKER-1")), ""),
        (tfjob(RUNNING), (pod("MASTER-0"), pod("WORKER-0")), ""),  # nothing is wrong with what is there
        (tfjob(("Suspended", "JobSuspended", "m")), (), ""),  # its state says it
        (tfjob(("Blocked", "QuotaExceeded", "exceeded quota: small,\n used: 8")), (), "exceeded quota: small, used: 8"),
        (tfjob(RUNNING), (unplaced("WORKER-0", "0/1 nodes"), unplaced("WORKER-1", "0/1 nodes")),
         "worker-0, worker-1: no node fits its pod (unschedulable)"),
        (tfjob(RUNNING), (pod("WORKER-0", waits("ImagePullBackOff"), "Pending"),),
         "worker-0: its image cannot be pulled (ImagePullBackOff)"),
        (tfjob(RUNNING), (pod("WORKER-0", waits("ContainerCreating"), "Pending"),),
         "worker-0: its container is being prepared"),
        (tfjob(RUNNING), (pod("WORKER-0", waits("CrashLoopBackOff", restartCount=3, lastState=ended(1))),),
         "worker-0: its program ends and is started again, 3 times so far"),
        (tfjob(RUNNING), (pod("WORKER-0", {"state": ended(9)}, "Failed"),),
         "worker-0: its pod has failed, and is made again later"),
        (tfjob(), (), "no operator reconciles it"),
    ],
)  # fmt: skip
def test_why_a_job_waits(job: Json, pods: tuple[Json, ...], words: str) -> None:
    assert brief(job, *pods) == words


def test_a_job_that_has_just_been_made_waits_for_nothing_yet() -> None:
    job = tfjob()
    assert brief(job, now=NOW - 195) == ""
    assert brief(job, now=NOW - 185) == "no operator reconciles it"


def test_the_words_name_no_time() -> None:
    """A list would have to be told them anew all the time."""
    late = pod("WORKER-0", waits("ContainerCreating"), "Pending")
    assert brief(tfjob(RUNNING), late, now=NOW) == brief(tfjob(RUNNING), late, now=NOW + 3600)


@pytest.mark.parametrize(
    ("late", "words"),
    [
        ({"lag": 130.0}, "worker-1: behind"),
        ({"stopped_pid": 4711}, "worker-1: its process is stopped by a signal (SIGSTOP, SIGTSTP) or a debugger"),
        ({"lag": 130.0, "metrics_source": "pattern"}, ""),  # a guess: a note in `why`, and not in a list
        ({"metrics": {"loss": math.nan}, "not_finite_since": {"loss": 21.0}}, "worker-1: loss is nan since step 21"),
    ],
)
def test_what_is_wrong_with_the_progress(late: dict[str, Any], words: str) -> None:
    usages = (usage(1, 70.0, **late), usage(0, 200.0), usage(2, 200.0))
    running = facts(tfjob(RUNNING), usages=usages)
    assert brief_progress(running.kind, running.job, usages, NOW) == words
    assert not words or words in [first_words(finding) for finding in why(running)]

"""What depends on the clock of kube-controller-manager, which no story can move: the tests wait for it."""

from __future__ import annotations

import pytest

from tests.stories.back_ends import REAL
from tests.stories.harness import JOB, Harness
from tests.stories.job_fixtures import PLAYS, template
from trainyard.objects import parse_time

pytestmark = pytest.mark.parametrize("back_end", [REAL])

CHAINER = PLAYS["ChainerJob"]
SECONDS = 20  # all replicas run by then


async def test_the_masters_own_deadline_takes_precedence_and_its_batch_job_has_it(harness: Harness) -> None:
    master = {"template": template("chainer"), "activeDeadlineSeconds": SECONDS}
    await CHAINER.begin(harness, master=master, activeDeadlineSeconds=1, cleanPodPolicy="None")
    began = (await harness.children(JOB))["story-master"]["status"]["startTime"]
    failed = await harness.condition("Failed")
    assert failed["reason"] == "DeadlineExceeded"
    ended, started = parse_time(failed["lastTransitionTime"]), parse_time(began)
    assert ended is not None and started is not None and ended - started >= SECONDS - 1  # they say whole seconds
    await harness.until_holds(lambda: not harness.running())

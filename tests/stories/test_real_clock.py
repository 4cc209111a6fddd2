"""What goes by the clock of kube-controller-manager, which no story moves: it is waited for."""

from __future__ import annotations

import pytest

from tests.stories.back_ends import REAL
from tests.stories.harness import JOB, Stage
from tests.stories.job_fixtures import PLAYS, template
from trainyard.objects import parse_time

pytestmark = pytest.mark.parametrize("back_end", [REAL])

CHAINER = PLAYS["ChainerJob"]
SECONDS = 20  # all replicas run by then


async def test_the_masters_own_deadline_wins_and_its_batch_job_keeps_it(stage: Stage) -> None:
    master = {"template": template("chainer"), "activeDeadlineSeconds": SECONDS}
    await CHAINER.begin(stage, master=master, activeDeadlineSeconds=1, cleanPodPolicy="None")
    began = (await stage.children(JOB))["story-master"]["status"]["startTime"]
    failed = await stage.condition("Failed")
    assert failed["reason"] == "DeadlineExceeded"
    ended, started = parse_time(failed["lastTransitionTime"]), parse_time(began)
    assert ended is not None and started is not None and ended - started >= SECONDS - 1  # they say whole seconds
    await stage.happens(lambda: not stage.running())

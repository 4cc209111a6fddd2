"""One success of each kind with its real framework, on a real control plane; torch is in test_elastic_training.py.

A person has typed it all: `trainyard node`, `trainyard operator`, `trainyard submit`.
"""

from __future__ import annotations

import pytest

from tests.stories.back_ends import REAL
from tests.stories.runs import EXAMPLES
from tests.stories.test_chainer_training import complete, trained_by_three
from tests.stories.test_mxnet_training import all_have_learnt_the_same
from tests.stories.test_training import all_have_learnt
from tests.stories.users import Watched, Yard
from trainyard.objects import Json

pytestmark = [pytest.mark.frameworks, pytest.mark.slow, pytest.mark.parametrize("back_end", [REAL])]


def submitted(yard: Yard, example: str) -> Watched:
    yard.up("namespace")
    watched = yard.submit(str(EXAMPLES / example))
    assert watched.end() == 0, watched.text
    return watched


def succeeded(job: Json) -> None:
    assert (job["status"]["phase"], job["status"]["state"]) == ("Done", "Succeeded")
    assert not job["status"]["restarts"]


def test_tensorflow(yard: Yard) -> None:
    all_have_learnt(submitted(yard, "tf_job_dist_train.yaml"))
    succeeded(yard.job("tfjob", "dist-train"))


def test_mxnet(yard: Yard) -> None:
    all_have_learnt_the_same(submitted(yard, "mx_job_dist.yaml"))
    succeeded(yard.job("mxjob", "example-dist-job"))


def test_chainermn(yard: Yard) -> None:
    """mpiexec reaches its workers through the real API server's exec."""
    trained_by_three(submitted(yard, "chainerjob-mn.yaml"))
    complete(yard.job("chainerjob", "example-job-mn"))

"""One success of each kind with its real framework, on a real control plane; torch is in test_elastic_training.py.

A person has typed it all: `trainyard node`, `trainyard operator`, `trainyard submit`.
"""

from __future__ import annotations

import pytest

from tests.stories.back_ends import REAL
from tests.stories.runs import EXAMPLES
from tests.stories.test_chainer_training import assert_complete, assert_trained_by_three
from tests.stories.test_mxnet_training import assert_all_learned_the_same
from tests.stories.test_training import assert_all_learned
from tests.stories.users import UserCluster, Watched
from trainyard.objects import Json

pytestmark = [pytest.mark.frameworks, pytest.mark.slow, pytest.mark.parametrize("back_end", [REAL])]


def submitted(user_cluster: UserCluster, example: str) -> Watched:
    user_cluster.up("namespace")
    watched = user_cluster.submit(str(EXAMPLES / example))
    assert watched.end() == 0, watched.text
    return watched


def assert_succeeded(job: Json) -> None:
    assert (job["status"]["phase"], job["status"]["state"]) == ("Done", "Succeeded")
    assert not job["status"]["restarts"]


def test_tensorflow(user_cluster: UserCluster) -> None:
    assert_all_learned(submitted(user_cluster, "tf_job_dist_train.yaml"))
    assert_succeeded(user_cluster.job("tfjob", "dist-train"))


def test_mxnet(user_cluster: UserCluster) -> None:
    assert_all_learned_the_same(submitted(user_cluster, "mx_job_dist.yaml"))
    assert_succeeded(user_cluster.job("mxjob", "example-dist-job"))


def test_chainermn(user_cluster: UserCluster) -> None:
    """mpiexec reaches its workers through the real API server's exec."""
    assert_trained_by_three(submitted(user_cluster, "chainerjob-mn.yaml"))
    assert_complete(user_cluster.job("chainerjob", "example-job-mn"))

"""Which run of a container is the one that failed."""

from __future__ import annotations

import pytest

from trainyard.objects import Json
from trainyard.objects.container_statuses import ContainerStatus, container_statuses
from trainyard.views.diagnosis.failures import failed_run
from trainyard.views.recorded import recorded_pod

FAILED, STOPPED = {"exitCode": 1, "reason": "Error"}, {"exitCode": 143, "reason": "Error"}
LIMIT = "BackoffLimitExceeded"


def status(state: Json, last: Json | None = None, restarts: int = 0) -> ContainerStatus:
    previous = {"lastState": {"terminated": last}} if last else {}
    return ContainerStatus("node", {"name": "node", "restartCount": restarts, "state": state, **previous}, False)


@pytest.mark.parametrize(
    ("container", "cause", "expected"),
    [
        (status({"running": {}}, FAILED, 1), LIMIT, None),
        (status({"terminated": FAILED}), LIMIT, (1, FAILED)),
        (status({"waiting": {"reason": "CrashLoopBackOff"}}, FAILED, 2), LIMIT, (3, FAILED)),
        (status({"terminated": STOPPED}), LIMIT, (1, STOPPED)),
        (status({"terminated": STOPPED}, FAILED, 1), LIMIT, (1, FAILED)),
        (status({"terminated": STOPPED}, FAILED, 1), "ReachedMaxRestarts", (1, FAILED)),
        (status({"terminated": STOPPED}, {"exitCode": 0}, 1), LIMIT, (2, STOPPED)),
        (status({"terminated": STOPPED}, FAILED, 1), "PermanentFailure", (2, STOPPED)),
        (status({"terminated": STOPPED}, FAILED, 1), "DeadlineExceeded", (2, STOPPED)),
    ],
)
def test_the_run_that_failed(container: ContainerStatus, cause: str, expected: tuple[int, Json] | None) -> None:
    assert failed_run(container, cause) == expected


def test_a_recorded_pod_has_the_last_two_runs_of_a_container() -> None:
    runs = [{"run": number, "exitCode": code} for number, code in ((1, 3), (2, 1), (3, 143))]
    entry = {"name": "p", "replica": "node-0", "containers": [{"name": "node", "restarts": 2, "runs": runs}]}
    (container,) = container_statuses(recorded_pod({}, entry)["status"])
    assert failed_run(container, LIMIT) == (2, {"exitCode": 1})

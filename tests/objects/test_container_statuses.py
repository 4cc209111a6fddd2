"""The reader of a pod's container statuses."""

from __future__ import annotations

from trainyard.objects.container_statuses import container_statuses


def test_init_containers_come_first_and_malformed_entries_are_left_out() -> None:
    status = {"containerStatuses": [{"name": "main"}, None, "x"], "initContainerStatuses": [{"name": "sidecar"}]}
    assert [(container.name, container.init) for container in container_statuses(status)] == [
        ("sidecar", True),
        ("main", False),
    ]
    assert container_statuses(None) == container_statuses({"containerStatuses": None}) == []


def test_the_state_of_a_container() -> None:
    ended, earlier = {"exitCode": 1}, {"exitCode": 2}
    entry = {"name": "c", "state": {"running": {}}, "lastState": {"terminated": earlier}, "restartCount": 3}
    (running,) = container_statuses({"containerStatuses": [entry]})
    assert running.state("running") == {} and running.state("waiting") is None and running.restarts == 3
    assert running.last_terminated == earlier
    (over,) = container_statuses({"containerStatuses": [{**entry, "state": {"terminated": ended}}]})
    assert over.last_terminated == ended
    (bare,) = container_statuses({"containerStatuses": [{"name": "c", "state": None}]})
    assert bare.last_terminated is None and bare.restarts == 0

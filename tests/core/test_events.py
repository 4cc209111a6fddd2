"""The events of a plan that are recorded."""

from __future__ import annotations

from trainyard.core import Event, recorded_events
from trainyard.objects import Ref


def created(count: int) -> list[Event]:
    names = [f"j-worker-{number}" for number in range(count)]
    return [Event("Normal", "SuccessfulCreatePod", f"Created pod: {name}", Ref("Pod", name)) for name in names]


def test_a_small_job_has_an_event_for_each_pod_and_a_large_one_for_all_of_them() -> None:
    end = Event("Normal", "PyTorchJobSucceeded", "PyTorchJob j is successfully completed.")
    assert recorded_events([*created(4), end], {}) == (*created(4), end)
    (pods, last) = recorded_events([*created(1000), end], {})
    assert (pods.message, last) == ("Created pod: j-worker-0 and 999 more", end)


def test_an_event_of_a_child_whose_write_was_refused_is_not_recorded() -> None:
    refused = {Ref("Pod", "j-worker-0"), Ref("Pod", "j-worker-3")}
    messages = [event.message for event in recorded_events(created(5), refused)]
    assert messages == [f"Created pod: j-worker-{number}" for number in (1, 2, 4)]
    (event,) = recorded_events(created(7), refused)
    assert event.message == "Created pod: j-worker-1 and 4 more"


def test_equal_events_of_several_pods_are_one() -> None:
    warnings = [Event("Warning", "SetPodTemplateRestartPolicy", "overwritten", Ref("Pod", f"p{n}")) for n in range(9)]
    assert recorded_events(warnings, {}) == (warnings[0],)

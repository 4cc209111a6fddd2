"""Which events a pod gets: the kubelet's events for the steps of its lifecycle."""

from __future__ import annotations

import pytest

from tests.node.node_cluster import NodeCluster
from trainyard.node.kubelet import events, lifecycle
from trainyard.node.kubelet.events import BURST, REFILL_SECONDS, REPEAT_SECONDS, EventWriter, PodEvent
from trainyard.node.kubelet.pod_state import Blocked, Container, Ended, Event, Pod, Started, Stop, Tick
from trainyard.objects.labels import OWNER
from trainyard.objects.resources import EVENT

IMAGES = {"main": "busybox"}
STARTED = [
    ("Pulled", 'Container image "busybox" already present on machine and can be accessed by the pod'),
    ("Created", "Container created"),
    ("Started", "Container started"),
]
ABOUT_THE_POD = ("FailedMount", "DeadlineExceeded")
MISSING = 'MountVolume.SetUp failed for volume "v" : configmap "c" not found'


def events_of(policy: str, *steps: Event) -> list[tuple[str, str]]:
    """Reasons and messages of a pod with one container that takes these events in."""
    pod = Pod("web_default", "u-1", policy, (Container("main"),))
    recorded: list[PodEvent] = []
    for step in (Tick(0), *steps):
        after, _ = lifecycle.step(pod, step)
        recorded += events.of_step(pod, after, step, IMAGES)
        pod = after
    assert all(event.field == ("" if event.reason in ABOUT_THE_POD else "spec.containers{main}") for event in recorded)
    return [(event.reason, event.message) for event in recorded]


@pytest.mark.parametrize(
    ("policy", "steps", "expected"),
    [
        ("Never", [Started(1, "main")], STARTED),
        ("Never", [Started(1, "main"), Ended(2, "main", 1)], STARTED),
        ("Never", [Started(1, "main"), Stop(2, 30)], [*STARTED, ("Killing", "Stopping container main")]),
        ("Never", [Started(1, "main"), Stop(2, 30), Stop(3, 0)], [*STARTED, ("Killing", "Stopping container main")]),
        # What it had been stopping had ended by itself.
        ("Never", [Started(1, "main"), Ended(2, "main", 0), Stop(3, 30)], STARTED),
        ("Never", [Ended(1, "main", 128, "StartError", "no command")], [*STARTED[:2], ("Failed", "Error: no command")]),
        ("Never", [Blocked(1, "main", "ContainerCreating", MISSING)], [("FailedMount", MISSING)]),
        (
            "Never",
            [Blocked(1, "main", "PullingImage", 'Pulling image "busybox"'), Started(5, "main")],
            [
                ("Pulling", 'Pulling image "busybox"'),
                ("Pulled", 'Successfully pulled image "busybox"'),
                *STARTED[1:],
            ],
        ),
        (
            "Never",
            [Blocked(1, "main", "ErrImagePull", "not in the catalogue")],
            [("Failed", 'Failed to pull image "busybox": not in the catalogue')],
        ),
        (
            "Always",
            [Blocked(1, "main", "CreateContainerConfigError", 'secret "s" not found')],
            [STARTED[0], ("Failed", 'Error: secret "s" not found')],
        ),
        # The first restart comes at once, the second after a pause.
        (
            "Always",
            [Started(1, "main"), Ended(2, "main", 1), Started(3, "main"), Ended(4, "main", 1)],
            [
                *STARTED,
                *STARTED,
                ("BackOff", "Back-off restarting failed container main in pod web_default(u-1)"),
            ],
        ),
    ],
)
def test_each_step_has_the_events_of_a_kubelet(
    policy: str, steps: list[Event], expected: list[tuple[str, str]]
) -> None:
    assert events_of(policy, *steps) == expected


async def test_an_equal_event_is_written_once_in_ten_minutes() -> None:
    written: list[PodEvent] = []
    now = 0.0

    async def write(event: PodEvent) -> None:
        written.append(event)

    writer = EventWriter(write, lambda: now)
    started, other = PodEvent("Normal", "Started", "Started container a"), PodEvent("Normal", "Started", "container b")
    assert writer.enqueue([started, other, started])
    await writer.run()
    assert written == [started, other] and not writer.enqueue([started])
    now = REPEAT_SECONDS
    assert writer.enqueue([started])
    await writer.run()
    assert written == [started, other, started]


async def test_a_pod_gets_25_events_and_then_one_in_five_minutes() -> None:
    now, written = 0.0, []

    async def write(event: PodEvent) -> None:
        written.append(event.message)

    writer = EventWriter(write, lambda: now)
    writer.enqueue(PodEvent("Warning", "Unhealthy", f"at {number}") for number in range(40))
    await writer.run()
    assert written == [f"at {number}" for number in range(BURST)]
    now = REFILL_SECONDS
    writer.enqueue(PodEvent("Warning", "Unhealthy", f"later {number}") for number in range(2))
    await writer.run()
    assert written[BURST:] == ["later 0"]


async def test_a_pod_of_its_own_gets_events_and_one_of_a_training_job_gets_none(cluster: NodeCluster) -> None:
    await cluster.pod("trained", "", metadata={"labels": {OWNER: "u-1"}})
    await cluster.phase("trained", "Succeeded")
    await cluster.pod("mine", "")
    about = await cluster.events("mine")
    assert [
        event["reason"] for event in sorted(about, key=lambda event: int(event["metadata"]["resourceVersion"]))
    ] == [
        "Pulled",
        "Created",
        "Started",
    ]
    assert {event["source"]["component"] for event in about} == {"kubelet"}
    listed = await cluster.api.list(EVENT, "default")
    assert {item["involvedObject"]["name"] for item in listed["items"]} == {"mine"}

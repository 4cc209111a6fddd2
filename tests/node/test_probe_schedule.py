"""When a probe is due, and which results change the state of its container."""

from __future__ import annotations

import pytest

from trainyard.node.kubelet.pod_state import ProbeKind
from trainyard.node.kubelet.probes.schedule import Probe, after, begin, probes_of

STARTUP, LIVENESS, READINESS = ProbeKind.STARTUP, ProbeKind.LIVENESS, ProbeKind.READINESS


@pytest.mark.parametrize(
    ("kind", "delay", "now", "due"),
    [
        # The container was started at 100; the period is 10.
        (STARTUP, 0, 100, 110),
        (STARTUP, 5, 100, 110),
        (STARTUP, 10, 100, 110),
        (STARTUP, 15, 100, 120),
        (LIVENESS, 0, 100, 110),
        (LIVENESS, 0, 123, 130),  # the startup probe has succeeded after 23 seconds
        (LIVENESS, 45, 123, 150),
        (READINESS, 0, 100, 100),
        (READINESS, 0, 123, 123),
        (READINESS, 5, 100, 110),
        (READINESS, 25, 123, 133),
        (READINESS, 20, 123, 123),
    ],
)
def test_the_first_run_of_a_probe(kind: ProbeKind, delay: float, now: float, due: float) -> None:
    assert begin(Probe(kind, {}, delay, 10), 100, now).due == due


@pytest.mark.parametrize(
    ("ended", "due"),
    [(110.2, 120), (119.9, 120), (127, 127)],
    ids=["fast", "nearly a period", "longer than its period"],
)
def test_the_next_run_of_a_probe(ended: float, due: float) -> None:
    probe = Probe(LIVENESS, {}, period=10)
    assert after(probe, begin(probe, 100, 100), True, ended)[0].due == due


def changes(results: str, success: int, failure: int) -> str:
    """What a probe with these thresholds reports after each result: `+` passed, `-` failed, `?` could not be run, `.`
    nothing."""
    probe = Probe(READINESS, {}, success_threshold=success, failure_threshold=failure)
    progress, reported = begin(probe, 0, 0), ""
    for result in results:
        progress, state = after(probe, progress, {"+": True, "-": False, "?": None}[result], progress.due)
        reported += {True: "+", False: "-", None: "."}[state]
    return reported


@pytest.mark.parametrize(
    ("results", "success", "failure", "expected"),
    [
        ("+++", 1, 3, "+.."),
        ("---+", 1, 3, "..-+"),
        ("+--+---", 1, 3, "+.....-"),
        ("+-+-+-", 1, 2, "+....."),
        ("-++-++", 2, 1, "-.+-.+"),
        ("--?--", 1, 3, "...-."),  # a probe that could not be run neither counts nor interrupts
        ("???", 1, 1, "..."),
    ],
)
def test_thresholds(results: str, success: int, failure: int, expected: str) -> None:
    assert changes(results, success, failure) == expected


def test_the_probes_of_a_container_have_the_defaults_of_the_api_server() -> None:
    action = {"exec": {"command": ["true"]}}
    container = {
        "livenessProbe": action,
        "readinessProbe": {**action, "periodSeconds": 0, "timeoutSeconds": 5, "successThreshold": 2},
        "startupProbe": {**action, "initialDelaySeconds": 3, "terminationGracePeriodSeconds": 7},
    }
    probes = probes_of(container)
    assert probes[LIVENESS] == Probe(LIVENESS, action, 0, 10, 1, 1, 3, None)
    assert (probes[READINESS].period, probes[READINESS].timeout, probes[READINESS].success_threshold) == (10, 5, 2)
    assert (probes[STARTUP].initial_delay, probes[STARTUP].grace) == (3, 7)
    assert not probes_of({"name": "main"})

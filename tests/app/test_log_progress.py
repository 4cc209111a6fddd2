"""The steps in the log of a pod on a real cluster, with their times."""

from __future__ import annotations

import pytest

from trainyard.app.evidence.log_progress import progress_of_lines, without_times
from trainyard.objects import parse_time
from trainyard.objects.usage import Progress


def log(*lines: tuple[str, str]) -> bytes:
    """Lines as a kubelet prints them, with the second of a minute that each was written in."""
    return "".join(f"2026-11-29T01:50:{second}Z {text}\n" for second, text in lines).encode()


def at(second: float) -> float:
    return (parse_time("2026-11-29T01:50:00Z") or 0.0) + second


STEPS = (("00.000000001", "step=1 loss=2"), ("02.000000001", "step=2 loss=1"), ("04.000000001", "step=3 loss=nan"))
FLUSH = tuple((f"00.00000{n}", f"step={n}") for n in range(1, 10))  # a pipe's buffer is written as a whole


@pytest.mark.parametrize(
    ("text", "step", "silent_since", "pace", "source"),
    [
        (log(*STEPS), 3.0, at(4.0), 2.0, "pattern"),
        (log(*STEPS, ("40.0", "validating")), 3.0, at(4.0), 2.0, "pattern"),
        (log(*STEPS, ("40.0", "step=3")), 3.0, at(4.0), 2.0, "pattern"),
        (log(("00.0", '{"step": 7}'), *STEPS), 7.0, at(0.0), None, "output"),
        (log(("00.0", "step=7 loss=1")), 7.0, at(0.0), None, "pattern"),
        (log(("00.0", "step=7"), ("00.0", "step=8")), 8.0, at(0.0), None, "pattern"),
        (log(*FLUSH), 9.0, at(0.0), None, "pattern"),
        (log(*FLUSH, ("40.0", "step=10"), ("40.000001", "step=11")), 11.0, at(40.0), None, "pattern"),
        (log(("09.0", "step=7"), ("08.0", "step=8"), ("07.0", "step=9")), 9.0, at(9.0), None, "pattern"),
    ],
)
def test_the_last_step_and_its_time(
    text: bytes, step: float, silent_since: float, pace: float | None, source: str
) -> None:
    progress = progress_of_lines(text)
    assert progress is not None
    assert (progress.values["step"], progress.source) == (step, source)
    assert (progress.step_time, progress.seconds_per_step) == (pytest.approx(silent_since), pace)
    assert (progress.steps_per_second is None) == (pace is None)


def test_a_value_that_is_not_finite_has_its_step() -> None:
    progress = progress_of_lines(log(*STEPS))
    assert isinstance(progress, Progress) and progress.not_finite_since == {"loss": 3.0}


@pytest.mark.parametrize(
    "text", [b"", b"step=3\n", log(("00.0", "hello")), b"\xff\xfe step=1\n", log(("99.0", "step=1"))]
)
def test_lines_without_a_step_or_a_time_have_none(text: bytes) -> None:
    assert progress_of_lines(text) is None


def test_patterns_can_be_switched_off() -> None:
    assert progress_of_lines(log(*STEPS), has_patterns=False) is None


def test_a_line_without_a_time_is_kept() -> None:
    """The first one is cut where the log is long."""
    assert without_times(b"of a line\n" + log(STEPS[0], ("05.0", ""))) == b"of a line\nstep=1 loss=2\n\n"

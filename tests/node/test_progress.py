"""What counts as a step in what a program writes, and how fast it makes them."""

from __future__ import annotations

import json
import math
import os
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.node.kubelet.usage import progress, progress_sampler
from trainyard.node.kubelet.usage.progress import (
    METRICS_FILE,
    GrowingFile,
    ProgressReader,
    StepRate,
    parse_object,
    parse_pattern,
    parse_samples,
)
from trainyard.node.kubelet.usage.progress_sampler import ProgressFiles, ProgressSampler
from trainyard.objects.usage import Progress, progress_of

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ('{"step": 10, "loss": 0.4}', {"step": 10.0, "loss": 0.4}),
        ('{"step": 10, "name": "x", "ok": true, "none": null, "list": [1]}', {"step": 10.0}),
        ('{"loss": NaN, "a": Infinity, "b": -1e999, "step": 3}', {"loss": NAN, "a": INF, "b": -INF, "step": 3.0}),
        ('{"loss": "NaN", "a": "-Infinity", "b": "inf", "c": "3", "d": null}', {"loss": NAN, "a": -INF, "b": INF}),
        ('{"step": NaN, "epoch": Infinity, "loss": 1}', {"loss": 1.0}),
        ('{"' + "n" * 65 + '": 1, "m": 2}', {"m": 2.0}),
        ('{"\\ud800": 1, "\\n": 1, "": 1, "\u00e9 0": 2}', {"\u00e9 0": 2.0}),
        ('{"step": 1' + "0" * 400 + "}", {}),
        ('{"step": 10', {}),
        ("[1, 2]", {}),
        ("{'step': 10}", {}),
        ("", {}),
        ("{" * 5000, {}),
    ],
)
def test_an_object_of_numbers(line: str, values: dict[str, float]) -> None:
    assert parse_object(line) == pytest.approx(values, nan_ok=True)


def test_an_object_has_at_most_so_many_values() -> None:
    fields = ", ".join(f'"m{number}": {number}' for number in range(100))
    assert len(parse_object(f"{{{fields}}}")) == progress.MOST_VALUES


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("step=10 loss=0.4", {"step": 10.0, "loss": 0.4}),
        ("step: 1,200, loss: 4.1e-2", {"step": 1200.0, "loss": 0.041}),
        ("Step 14201 loss 0.41", {"step": 14201.0, "loss": 0.41}),
        ("step   100  loss 0.4112  accuracy 0.901  (own step 51)", {"step": 100.0, "loss": 0.4112, "accuracy": 0.901}),
        ("stopped at step 12.", {"step": 12.0}),
        ("step 10/100: loss 0.4", {"step": 10.0, "total_steps": 100.0, "loss": 0.4}),
        ("step: 1,200 of 2,400.", {"step": 1200.0, "total_steps": 2400.0}),
        (
            "Epoch [3/10], Step [100/600], Loss: 0.1",
            {"epoch": 3.0, "total_epochs": 10.0, "step": 100.0, "total_steps": 600.0, "loss": 0.1},
        ),
        ("Epoch 3/10", {"epoch": 3.0, "total_epochs": 10.0}),
        ("step 10/11/2026 loss 3/4", {"step": 10.0, "loss": 3.0}),
        ("step 10/100s, epoch 2 of 3.5", {"step": 10.0, "epoch": 2.0}),
        ("step 1/2 step 2/4", {"step": 1.0, "total_steps": 2.0}),
        ("{'loss': 2.31, 'learning_rate': 5e-05, 'epoch': 0.5}", {"loss": 2.31, "epoch": 0.5}),
        ("global_step = 7 | train_loss = 1.5", {"step": 7.0, "loss": 1.5}),
        ("[12:00:01] iter: 3, val_loss: 9", {"step": 3.0}),
        ("INFO:tensorflow:loss = 0.5, step = 100 (0.2 sec)", {"loss": 0.5, "step": 100.0}),
        ("step=1 step=2", {"step": 1.0}),
        ("step=21 loss=nan", {"step": 21.0, "loss": NAN}),
        ("{'loss': nan, 'grad_norm': inf, 'epoch': 0.5}", {"loss": NAN, "epoch": 0.5}),
        ("Loss: -Inf, acc inf", {"loss": -INF, "accuracy": INF}),
        ("train_loss = Infinity | step nan", {"loss": INF}),
        ("loss: nano accuracy information loss infinite", {}),
        ("time-step=4 my_step=5 xstep 6 step=0x10 step=1.2.3 step=abc", {}),
        ("steps_per_second: 4", {}),
        ("the next step: load the data", {}),
        ("", {}),
    ],
)
def test_known_names_in_a_line_of_text(line: str, values: dict[str, float]) -> None:
    assert parse_pattern(line) == pytest.approx(values, nan_ok=True)


@pytest.mark.parametrize(
    ("text", "is_output", "samples", "source"),
    [
        (b'{"step": 1, "loss": 3}\n{"step": 2}\n', False, [{"step": 1.0, "loss": 3.0}, {"step": 2.0}], "file"),
        (b'{"loss": 3}\n{"acc": 1}\n', False, [{"loss": 3.0}, {"acc": 1.0}], "file"),
        (b'hello\nstep=8\n{"step": 2}\nstep=9\n', True, [{"step": 2.0}], "output"),
        (b"step=1 loss=2\nstep=2\nsaved\n", True, [{"step": 1.0, "loss": 2.0}, {"step": 2.0}], "pattern"),
        (b"\x1b[32mstep\x1b[0m=5\n", True, [{"step": 5.0}], "pattern"),
        (b"step=5\rstep=6\r", True, [{"step": 5.0}, {"step": 6.0}], "pattern"),
        (b"step=5\n" + b"x" * 3000 + b" step=6\n", True, [{"step": 5.0}], "pattern"),
        (b"step=5\n", False, [], "pattern"),
        (b"\xff\xfe step=5\n", True, [{"step": 5.0}], "pattern"),
        (b"", True, [], "pattern"),
    ],
)
def test_the_values_of_lines(text: bytes, is_output: bool, samples: list[dict[str, float]], source: str) -> None:
    assert parse_samples(text, is_output) == (samples, source)


@given(st.binary(max_size=4096), st.booleans())
def test_no_bytes_are_an_error(text: bytes, is_output: bool) -> None:
    samples, _ = parse_samples(text, is_output)
    assert all(isinstance(value, float) for sample in samples for value in sample.values())
    assert all(math.isfinite(sample.get("step", 0.0)) for sample in samples)


@pytest.mark.parametrize("piece", ["step=", "step ", "1,", "step=1,", "{", "loss: 1e", " ", "a"])
def test_the_longest_lines_take_a_moment_only(piece: str) -> None:
    text = ((piece * progress.LONGEST_LINE)[: progress.LONGEST_LINE - 1] + "\n").encode() * 32
    begin = time.process_time()
    parse_samples(text, is_output=True)
    assert time.process_time() - begin < 0.5


def test_only_whole_lines_that_are_new_are_read(tmp_path: Path) -> None:
    path = tmp_path / "f"
    file = GrowingFile(lambda: os.open(path, os.O_RDONLY))
    assert file.read() == b""
    path.write_bytes(b"one\ntw")
    assert [file.read(), file.read()] == [b"one\n", b""]
    path.write_bytes(b"one\ntwo\nthree\n")
    assert [file.read(), file.read()] == [b"two\nthree\n", b""]
    path.write_bytes(b"new\n")  # written anew
    assert file.read() == b"new\n"
    path.write_bytes(b"new\nlast\n")
    assert file.read() == b"last\n"


def test_of_many_new_bytes_the_last_are_read(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x" * 10 * progress.LONGEST_READ + b"\nlast\n")
    assert len(GrowingFile(lambda: os.open(path, os.O_RDONLY)).read()) == progress.LONGEST_READ


def rate_of(at: float, *steps: tuple[float, float]) -> float | None:
    rate = StepRate()
    for when, step in steps:
        rate.add(when, step)
        rate.per_second(when)
    return rate.per_second(at)


@pytest.mark.parametrize(
    ("at", "steps", "rate"),
    [
        (2.0, ((2.0, 5.0),), None),
        (4.0, ((2.0, 5.0), (4.0, 15.0)), 5.0),
        (6.0, ((2.0, 5.0), (4.0, 15.0)), 2.5),  # it stands since
        (4.0, ((2.0, 5.0), (4.0, 5.0)), None),
        (2.0, ((2.0, 5.0), (2.0, 15.0)), None),
        (2.1, ((2.0, 5.0), (2.1, 15.0)), None),  # too short to measure
        (1.0, ((2.0, 5.0), (1.0, 15.0)), None),  # the clock was set back
        (8.0, ((2.0, 50.0), (4.0, 60.0), (6.0, 1.0), (8.0, 5.0)), 2.0),  # restarted
        (202.0, ((2.0, 1.0), (102.0, 2.0), (202.0, 3.0)), 0.01),  # slow steps
        (62.0, tuple((2.0 * n, float(n if n < 16 else 16 + 10 * (n - 16))) for n in range(1, 32)), 5.0),
    ],
)
def test_steps_per_second(at: float, steps: tuple[tuple[float, float], ...], rate: float | None) -> None:
    assert rate_of(at, *steps) == (rate if rate is None else pytest.approx(rate))


def shown(progress: Progress | None) -> Progress | None:
    """The progress without its times."""
    return progress and Progress(progress.values, progress.steps_per_second, progress.source)


def test_the_file_comes_before_the_output_and_the_object_before_the_pattern(tmp_path: Path) -> None:
    log = tmp_path / "main" / "1.log"
    log.parent.mkdir()
    log.write_text("step=1 loss=9\n")
    reader = ProgressReader(tmp_path)
    assert shown(reader.read([log], 2.0)) == Progress({"step": 1.0, "loss": 9.0}, None, "pattern")
    with log.open("a") as output:
        output.write('{"step": 2}\nstep=3\n')
    assert shown(reader.read([log], 4.0)) == Progress({"step": 2.0}, 0.5, "output")
    with log.open("a") as output:
        output.write("step=50\n")
    assert shown(reader.read([log], 4.0)) == Progress({"step": 2.0}, 0.5, "output")
    (tmp_path / METRICS_FILE).write_text('{"step": 4, "lr": 1}\n')
    assert shown(reader.read([log], 6.0)) == Progress({"step": 4.0, "lr": 1.0}, 0.75, "file")
    with log.open("a") as output:
        output.write('{"step": 7}\n')
    last = reader.read([log], 6.0)
    assert shown(last) == Progress({"step": 4.0, "lr": 1.0}, 0.75, "file")
    assert last == progress_of(last.annotation if last else {})


@pytest.mark.parametrize(
    ("at", "steps", "last"),
    [
        (2.0, (), None),
        (5.0, ((2.0, 7.0),), (3.0, None)),
        (900.0, ((2.0, 0.0), (4.0, 20.0), (6.0, 40.0)), (894.0, 0.1)),
        (900.0, ((2.0, 0.0), (4.0, 20.0), (6.0, 20.0)), (896.0, 0.1)),
        (900.0, ((2.0, 0.0), (4.0, 20.0), (6.0, 21.0)), (894.0, 0.1)),  # it stood before the last reading
        (300.0, ((2.0, 1.0), (102.0, 2.0)), (198.0, 100.0)),
        (300.0, ((2.0, 1.0), (2.0, 2.0), (2.0, 3.0)), (298.0, None)),
        (300.0, ((2.0, 1.0), (1.0, 2.0), (4.0, 3.0), (4.0, 4.0)), (296.0, 1.0)),  # the clock was set back
        (20.0, ((2.0, 50.0), (4.0, 60.0), (6.0, 1.0)), (14.0, None)),  # restarted
    ],
)
def test_the_last_step_and_the_time_of_those_before(
    at: float, steps: tuple[tuple[float, float], ...], last: tuple[float, float | None] | None
) -> None:
    """However often the rate is asked for meanwhile."""
    rate = StepRate()
    for when, step in steps:
        rate.add(when, step)
    for now in (at - 60.0, at):
        rate.per_second(now)
    assert rate.last(at) == (last and pytest.approx(last))


def test_the_time_of_the_last_step_is_unix_time(tmp_path: Path) -> None:
    log = tmp_path / "main" / "1.log"
    log.parent.mkdir()
    log.touch()
    reader = ProgressReader(tmp_path)
    for at, text in ((10.0, "step=1\n"), (12.0, "step=5\n"), (40.0, "saving\n")):
        with log.open("a") as output:
            output.write(text)
        last = reader.read([log], at, 1000.0 + at)
    assert last is not None and (last.step_time, last.seconds_per_step, last.time) == (1012.0, 0.5, 1012.0)
    assert progress_of(last.annotation) == last


def test_the_last_value_of_each_name_counts(tmp_path: Path) -> None:
    (tmp_path / METRICS_FILE).touch()
    reader = ProgressReader(tmp_path)
    (tmp_path / METRICS_FILE).write_text('{"step": 1, "loss": 3}\n{"step": 2}\n')
    assert shown(reader.read([], 2.0)) == Progress({"step": 2.0, "loss": 3.0}, None, "file")


@pytest.mark.parametrize(
    ("lines", "since"),
    [
        (("step=1 loss=2", "step=2 loss=nan", "step=3 loss=inf"), {"loss": 2.0}),
        (("step=1 loss=nan", "step=2 loss=3"), {}),
        (("step=1 loss=nan", "step=2 loss=3", "step=4 loss=nan acc=nan"), {"loss": 4.0, "accuracy": 4.0}),
        (("step=1 loss=nan", "step=2 acc=1"), {"loss": 1.0}),
        (("loss=nan", "step=2 loss=nan"), {"loss": None}),
    ],
)
def test_the_step_since_which_a_value_is_not_finite(
    tmp_path: Path, lines: tuple[str, ...], since: dict[str, float | None]
) -> None:
    """Whether the lines are read together or one by one. The last value is never an older one."""
    for name, size in (("whole", len(lines)), ("parts", 1)):
        log = tmp_path / name / "1.log"
        log.parent.mkdir()
        log.touch()
        reader, last = ProgressReader(tmp_path), None
        for begin in range(0, len(lines), size):
            with log.open("a") as output:
                output.write("".join(f"{line}\n" for line in lines[begin : begin + size]))
            last = reader.read([log], 2.0 + begin)
        assert last is not None and last.not_finite_since == since
        read = progress_of(json.loads(json.dumps(last.annotation, allow_nan=False)))
        assert read is not None and read.not_finite_since == since
        assert read.values == pytest.approx(last.values, nan_ok=True)
        assert {name for name, value in last.values.items() if not math.isfinite(value)} == since.keys()


def test_patterns_can_be_switched_off(tmp_path: Path) -> None:
    log = tmp_path / "main" / "1.log"
    log.parent.mkdir()
    log.write_text("step=1 loss=9\n")
    reader = ProgressReader(tmp_path, has_patterns=False)
    assert reader.read([log], 2.0) is None
    log.write_text('step=1 loss=9\n{"step": 2}\n')
    assert shown(reader.read([log], 2.0)) == Progress({"step": 2.0}, None, "output")


def test_a_link_or_a_pipe_in_place_of_the_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text('{"step": 4}\n')
    (tmp_path / METRICS_FILE).symlink_to(tmp_path / "secret")
    assert ProgressReader(tmp_path).read([], 2.0) is None
    (tmp_path / METRICS_FILE).unlink()
    os.mkfifo(tmp_path / METRICS_FILE)
    assert ProgressReader(tmp_path).read([tmp_path / "none" / "1.log"], 2.0) is None


def test_a_pod_has_so_many_names_and_no_more(tmp_path: Path) -> None:
    (tmp_path / METRICS_FILE).touch()
    reader = ProgressReader(tmp_path)
    for begin in range(0, 1000, 10):
        names = ", ".join(f'"m{number}": NaN' for number in range(begin, begin + 10))
        with (tmp_path / METRICS_FILE).open("a") as file:
            file.write(f'{{"step": {begin}, {names}}}\n')
    last = reader.read([], 2.0)
    assert last is not None and last.values["step"] == 990.0
    assert progress.MOST_NAMES <= len(last.values) < progress.MOST_NAMES + progress.MOST_VALUES
    assert last.not_finite_since.keys() < last.values.keys()


class Reports:
    """The reports of one pod with REPORT_PROGRESS, which a node reads every two seconds."""

    def __init__(self, tmp_path: Path, is_reported: bool = True) -> None:
        self.at = 100.0
        self.log = tmp_path / "main" / "1.log"
        self.log.parent.mkdir()
        self.log.touch()
        self.sampler = ProgressSampler(lambda: self.at, lambda: 1000.0 + self.at)
        self.sampler.container_starts("u/main/1", ProgressFiles(tmp_path, self.log, is_reported=is_reported))

    def pass_by(self, seconds: int, lines: str = "") -> int:
        """How many reports were due. `lines`: written before each pass."""
        count = 0
        for _ in range(0, seconds, 2):
            self.at += 2
            with self.log.open("a") as output:
                output.write(lines)
            self.sampler.read_all()()
            count += len(self.sampler.due_reports())
        return count


async def test_the_first_value_is_reported_at_once_and_others_every_ten_seconds(tmp_path: Path) -> None:
    reports = Reports(tmp_path)
    assert reports.pass_by(20) == 0 and await reports.sampler.report("u") is None
    assert reports.pass_by(2, "step=1\n") == 1
    assert reports.pass_by(8, "step=2\n") == 0
    assert (first := await reports.sampler.report("u")) is not None and first.values == {"step": 1.0}
    assert reports.pass_by(100, "step=3\n") == 10
    assert reports.pass_by(100) == 1  # what came since the report before
    assert reports.pass_by(100) == 0


async def test_what_a_pod_has_printed_before_its_end_is_in_its_last_report(tmp_path: Path) -> None:
    reports = Reports(tmp_path)
    reports.log.write_text("step=4/4\n")
    reports.sampler.container_ended("u/main/1")
    assert (last := await reports.sampler.report("u")) is not None
    assert last.values == {"step": 4.0, "total_steps": 4.0}
    assert await reports.sampler.report("u") == last and reports.sampler.due_reports() == []
    reports.sampler.forget("u")
    assert await reports.sampler.report("u") is None


async def test_a_disk_that_does_not_answer_does_not_keep_the_last_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports, answers = Reports(tmp_path), threading.Event()
    assert reports.pass_by(2, "step=1\n") == 1
    monkeypatch.setattr(progress_sampler, "LAST_READING_SECONDS", 0.01)
    monkeypatch.setattr(ProgressReader, "read", lambda *arguments: answers.wait() and None)
    reports.sampler.container_ended("u/main/1")
    assert (last := await reports.sampler.report("u")) is not None and last.values == {"step": 1.0}
    answers.set()


async def test_a_pod_without_the_annotation_reports_nothing(tmp_path: Path) -> None:
    reports = Reports(tmp_path, is_reported=False)
    assert reports.pass_by(20, "step=1\n") == 0
    reports.sampler.container_ended("u/main/1")
    assert await reports.sampler.report("u") is None


@pytest.mark.parametrize("value", ["", "3", "[]", "{}", '{"values": 3}', '{"values": {"a": "x"}}', "nonsense", "null"])
def test_an_annotation_that_is_none_of_ours_has_no_progress(value: str) -> None:
    assert progress_of({"trainyard.dev/progress": value}) is None

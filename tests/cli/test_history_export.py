"""The page that `trainyard history export` writes: complete, bounded, without secrets, and harmless whatever a pod or a
user has written."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.views.why_values import NOW, at, pod, tfjob
from trainyard.app.history.job_record import JobRecord
from trainyard.app.history.limits import RetentionLimits
from trainyard.app.history.records import HistoryRecord, folder_name, read_record
from trainyard.cli.command.cluster_command import CommandError
from trainyard.cli.export.curves import HEIGHT, WIDTH, curve_figure
from trainyard.cli.export.history_export import MAX_LOG_SIZE, MAX_LOGS, export_record, exported_run
from trainyard.cli.export.page import MAX_ROWS, POLICY, export_page
from trainyard.cli.export.timeline import AXIS_HEIGHT, LABEL_WIDTH, ROW_HEIGHT, USE_HEIGHT, timeline_svg
from trainyard.cli.export.timeline import MAX_ROWS as MAX_LANES
from trainyard.cli.export.timeline import WIDTH as CHART
from trainyard.cli.output.html import element, join
from trainyard.objects import Json
from trainyard.objects.metric_points import GPU_UTILIZATION, METRICS, NODE_SOURCE, MetricPoint, encode_points
from trainyard.page.series import Curve, curve_of
from trainyard.views.recorded import pod_log_folder
from trainyard.views.timeline import timeline

MARKUP = """</pre></td><script>alert(1)</script><img src=x onerror=alert(1)>&amp;"'\x1b[31m\x00\x85"""
UID = "c66e9c6e-0001"
EXTERNAL = ("src", "href", "srcset", "action", "data", "poster", "background", "xlink:href")


def failed_pod(index: int = 0, code: int = 1, reason: str = "Error", **more: Any) -> Json:
    end = {"exitCode": code, "reason": reason, "startedAt": at(60), "finishedAt": at(30), "message": MARKUP}
    ended_pod = pod(f"WORKER-{index}", {"state": {"terminated": end}}, "Failed", **more)
    ended_pod["metadata"]["labels"]["trainyard.dev/owner"] = UID
    ended_pod["metadata"]["uid"] = f"{index:08x}-pod"
    return ended_pod


def recorded(tmp_path: Path, job: Json, *pods: Json, log: bytes = b"line\n", end: str = "") -> HistoryRecord:
    folder = tmp_path / folder_name(UID, "default", "mnist", NOW)
    folder.mkdir(parents=True)
    record = JobRecord(folder, {"uid": UID, "result": "", "where": "run"}, RetentionLimits())
    job["metadata"]["uid"] = UID
    record.record_job(job, NOW)
    for ended_pod in pods:
        record.record_pod(ended_pod, gone=False)
        path = record.logs / pod_log_folder(ended_pod) / "tensorflow" / "1.log"
        path.parent.mkdir(parents=True)
        path.write_bytes(log)
    about = {"kind": "TfJob", "name": "mnist", "uid": UID}
    event = {
        "metadata": {"uid": "e"},
        "involvedObject": about,
        "type": "Normal",
        "reason": "Started",
        "message": MARKUP,
    }
    record.record_event({**event, "lastTimestamp": at(30)})
    if end:
        record.interrupt(NOW, end)
    record.snapshot("").write()
    read = read_record(folder)
    assert read is not None
    return read


def parsed(page: str) -> ElementTree.Element:
    """The page as XML: it is well-formed only if every text in it is escaped."""
    return ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>"))  # noqa: S314  (our own page)


def texts(root: ElementTree.Element) -> str:
    return "\n".join(root.itertext())


FAILED = ("Failed", "PermanentFailure", f"worker-0: {MARKUP}")


def test_the_page_has_all_that_is_kept(tmp_path: Path) -> None:
    record = recorded(tmp_path, tfjob(FAILED), failed_pod(code=137, reason="OOMKilled"), log=b"epoch 1\nno memory\n")
    root = parsed(export_page(exported_run(record, NOW)))
    for part in (
        "TfJob default/mnist",
        "problem: ",
        "worker-0 ended with exit code 137 (OOMKilled)",
        "worker-0, attempt 0, pod worker-0-abcd-x: running 1:30 to 2:00, exit code 137 (OOMKilled)",
        "✗137",
        "137 (OOMKilled)",
        "Started",
        "worker-0, attempt 0, container tensorflow, run 1: 2 lines",
        "epoch 1\nno memory",
        "tfReplicaType: MASTER",
    ):
        assert part in texts(root), part


def with_losses(record: HistoryRecord, name: str = "loss") -> None:
    for index in range(3):
        folder = record.logs / f"worker-{index}" / f"attempt-0-{index:08x}"
        folder.mkdir(parents=True, exist_ok=True)
        points = [MetricPoint(name, "file", NOW + step, step, 2 / (1 + step) + index) for step in range(0, 1000, 10)]
        (folder / METRICS).write_bytes(encode_points(points))


def test_the_page_has_curves(tmp_path: Path) -> None:
    record = recorded(tmp_path, tfjob(FAILED), failed_pod())
    with_losses(record)
    root = parsed(export_page(exported_run(record, NOW)))
    text = texts(root)
    assert "last 0.002018 at step 990, lowest 0.002018, highest 2; worker-0 from $TRAINYARD_METRICS" in text
    assert "lowest to highest of 3 replicas" in text
    (curve,) = (line for line in root.iter("polyline") if line.get("class") == "curve")
    heights = [float(point.split(",")[1]) for point in (curve.get("points") or "").split()]
    assert len(heights) == 100 and heights == sorted(heights), "values that fall are a line that falls"
    (area,) = root.iter("polygon")
    assert len((area.get("points") or "").split()) == 200
    assert "Metrics" not in texts(parsed(export_page(exported_run(recorded(tmp_path / "none", tfjob(FAILED)), NOW))))


def test_the_timeline_has_the_use_of_gpus(tmp_path: Path) -> None:
    record = recorded(tmp_path, tfjob(FAILED), failed_pod())
    folder = record.logs / pod_log_folder(failed_pod())
    use = [(-65, 99.0), (-60, 0.0), (-45, 50.0), (-30, 100.0), (-10, 99.0)]  # its program runs from -60 s to -30 s
    points = [MetricPoint(GPU_UTILIZATION, NODE_SOURCE, NOW + at, None, value) for at, value in use]
    (folder / METRICS).write_bytes(encode_points(points))
    run = exported_run(record, NOW)
    root = parsed(export_page(run))
    assert "worker-0: its GPUs 50 % busy on average, 100 % at most" in texts(root)
    assert "use: how busy its GPUs are" in texts(root)
    chart = ElementTree.fromstring(f"<p>{timeline_svg(run.lanes, NOW, run.device_use)}</p>")  # noqa: S314  (our own)
    (area,) = (path for path in chart.iter("path") if path.find("title") is not None)
    left, middle, right = (LABEL_WIDTH + (CHART - LABEL_WIDTH) * share for share in (0.6, 0.7, 0.8))
    base = AXIS_HEIGHT + ROW_HEIGHT + USE_HEIGHT - 2
    assert area.get("d") == (
        f"M{left:g} {base:g}H{left:g}V{base:g}H{middle:g}V{base - 5:g}H{right:g}V{base - 10:g}H{right:g}V{base:g}Z"
    )
    assert "use: how busy" not in timeline_svg(run.lanes, NOW)


def test_a_metric_of_the_program_with_that_name_is_no_use_of_gpus(tmp_path: Path) -> None:
    record = recorded(tmp_path, tfjob(FAILED), failed_pod())
    with_losses(record, GPU_UTILIZATION)
    assert exported_run(record, NOW).device_use == {}


def test_a_curve_marks_values_that_are_not_finite() -> None:
    points = [MetricPoint("loss", "file", n, n, value) for n, value in enumerate([3.0, math.inf, 2.0, math.nan])]
    figure = ElementTree.fromstring(curve_figure(curve_of("worker-0", 1, points, 500), None))  # noqa: S314  (our own)
    assert "last nan at step 3, not finite since step 3, lowest 2, highest 3; worker-0" in "".join(figure.itertext())
    assert len([line for line in figure.iter("line") if line.get("class") == "not-finite"]) == 2
    (curve,) = figure.iter("polyline")
    assert len((curve.get("points") or "").split()) == 2
    only_nan = curve_figure(curve_of("worker-0", 1, points[3:], 500), None)
    assert ">last nan at step 3, not finite since step 3; worker-0 " in only_nan


def test_the_record_of_a_training_that_diverged_says_since_when(tmp_path: Path) -> None:
    record = recorded(tmp_path, tfjob(FAILED), failed_pod())
    points = [MetricPoint("loss", "file", n, n, math.nan if n > 20 else 0.5) for n in range(30)]
    folder = record.logs / pod_log_folder(failed_pod())
    (folder / METRICS).write_bytes(encode_points(points))
    text = texts(parsed(export_page(exported_run(record, NOW))))
    assert "loss was nan since step 21" in text and "last nan at step 29, not finite since step 21" in text


@pytest.mark.parametrize("values", [[5.0], [0.0, 0.0], [-1.7e308, 1.7e308], [1e-320, 0.0], [3.0, -3.0]])
def test_a_curve_of_any_values_is_drawn_inside(values: list[float]) -> None:
    steps = [float(step) for step in range(len(values))]
    figure = curve_figure(Curve("a", "worker-0", 1, "file", steps, steps, values, values, values), None)
    (line,) = (line for line in ElementTree.fromstring(figure).iter("polyline"))  # noqa: S314  (our own page)
    for point in (line.get("points") or "").split():
        x, y = map(float, point.split(","))
        assert 0 <= x <= WIDTH and 0 <= y <= HEIGHT


def test_nothing_on_the_page_is_markup_or_leaves_it(tmp_path: Path) -> None:
    job = tfjob(FAILED)
    job["metadata"]["annotations"] = {"note": MARKUP}
    record = recorded(
        tmp_path, job, failed_pod(reason=MARKUP, name=f"x{MARKUP}"), log=f"{MARKUP}\n".encode() + b"\xff\xfe\x1b[2J\n"
    )
    with_losses(record, MARKUP)
    page = export_page(exported_run(record, NOW))
    root = parsed(page)
    assert not root.findall(".//script") and not root.findall(".//img") and not root.findall(".//iframe")
    names = {name.lower() for tag in root.iter() for name in tag.attrib}
    assert not [name for name in names if name in EXTERNAL or name.startswith("on") or name == "style"]
    (policy,) = (tag for tag in root.iter("meta") if tag.get("http-equiv"))
    assert (policy.get("http-equiv"), policy.get("content")) == ("Content-Security-Policy", POLICY)
    assert POLICY == "default-src 'none'; style-src 'unsafe-inline'"
    (style,) = root.iter("style")
    assert not re.search(r"url\(|@import|https?:", style.text or "")
    assert "prefers-color-scheme: dark" in (style.text or "")
    assert texts(root).count("<script>alert(1)</script>") >= 6, "it is text: log, event, reason, pod, message, manifest"
    assert not [letter for letter in page if letter != "\n" and not letter.isprintable()]


def secret_job() -> Json:
    job = tfjob(FAILED)
    container = job["spec"]["replicaSpecs"][1]["template"]["spec"]["containers"][0]
    reference = {"secretKeyRef": {"name": "wandb", "key": "key"}}
    container["env"] = [
        {"name": "WANDB_API_KEY", "value": "canary-of-a-key"},
        {"name": "DB_PASSWORD", "value": "abc"},
        {"name": "LR", "value": "0.1"},
        {"name": "HF_TOKEN", "valueFrom": reference},
    ]
    copy = '{"env": [{"name": "WANDB_API_KEY", "value": "canary-of-a-key"}]}'
    job["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": copy, "mine": "kept"}
    job["status"]["conditions"][0]["message"] = "it failed with canary-of-a-key"
    return job


def test_values_of_secrets_are_masked_wherever_they_are(tmp_path: Path) -> None:
    record = recorded(tmp_path, secret_job(), failed_pod(), log=b"key: canary-of-a-key, abc\n")
    root = parsed(export_page(exported_run(record, NOW)))
    text = texts(root)
    assert "canary-of-a-key" not in text and "key: (masked), abc" in text and "it failed with (masked)" in text
    manifest = root.findall(".//pre")[-1].text or ""
    assert manifest.count("value: (masked)") == 2 and "LR" in manifest and "0.1" in manifest
    assert "secretKeyRef" in manifest and "last-applied" not in manifest and "mine: kept" in manifest


def test_a_long_log_has_its_first_and_last_lines_and_their_number(tmp_path: Path) -> None:
    lines = [f"step {number:06}" for number in range(100_000)]
    record = recorded(tmp_path, tfjob(FAILED), failed_pod(), log="\n".join(lines).encode())
    (log,) = exported_run(record, NOW).logs
    assert log.first[0] == lines[0] and log.last[-1] == lines[-1]
    assert [*log.first, *log.last] == lines[: len(log.first)] + lines[-len(log.last) :]
    assert len(log.first) + log.omitted + len(log.last) == 100_000
    assert sum(len(line) + 1 for line in (*log.first, *log.last)) <= MAX_LOG_SIZE + 100
    page = export_page(exported_run(record, NOW))
    assert f"left out here: {log.omitted} lines" in page and len(page) < MAX_LOG_SIZE + 50_000


def test_a_log_of_one_endless_line_and_one_that_is_gone(tmp_path: Path) -> None:
    record = recorded(tmp_path, tfjob(FAILED), failed_pod(), log=b"x" * 1_000_000)
    (log,) = exported_run(record, NOW).logs
    assert sum(map(len, (*log.first, *log.last))) < MAX_LOG_SIZE and "more characters)" in log.first[0]
    next(record.logs.rglob("1.log")).unlink()
    assert exported_run(record, NOW).logs == []


def test_many_replicas_fit_a_page_and_those_that_failed_are_on_it(tmp_path: Path) -> None:
    pods = [failed_pod(index, code=1 if index == 1500 else 0) for index in range(MAX_LOGS + 600)]
    run = exported_run(recorded(tmp_path, tfjob(FAILED), *pods, log=b"y" * 999 + b"\n"), NOW)
    assert len(run.logs) == MAX_LOGS and run.omitted_logs == 600
    assert "worker-1500, attempt 0, container tensorflow, run 1" in [log.name for log in run.logs]
    chart = timeline_svg(run.lanes, NOW)
    assert "worker-1500<" in chart and f"and {MAX_LOGS + 600 - MAX_LANES} more replicas" in chart
    assert len(pods) < MAX_ROWS and len(export_page(run)) < 3_000_000


def test_a_run_that_was_cut_off_ends_there_on_the_timeline(tmp_path: Path) -> None:
    running = pod("WORKER-0")
    record = recorded(tmp_path, tfjob(("Running", "JobRunning", "x")), running, end="--timeout")
    (lane,) = exported_run(record, NOW + 500).lanes
    assert lane.segments[-1].end == NOW
    assert "it was cut short" in texts(parsed(export_page(exported_run(record, NOW))))


def test_a_job_without_pods_and_one_of_an_unknown_kind_have_a_page(tmp_path: Path) -> None:
    record = recorded(tmp_path, tfjob(FAILED))
    assert "No pod is recorded." in texts(parsed(export_page(exported_run(record, NOW))))
    (record.folder / "job.yaml").unlink()
    (record.folder / "manifest.yaml").write_text("{")
    text = texts(parsed(export_page(exported_run(record, NOW))))
    assert "The record has no job of a known kind." in text and "It cannot be read." in text


def test_the_file_of_a_user_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = recorded(tmp_path / "history", tfjob(FAILED))
    monkeypatch.chdir(tmp_path)
    path = export_record(record, None, False, NOW)
    assert path == Path("mnist-c66e9c6e.html") and path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(CommandError, match="exists; write another name, or --force"):
        export_record(record, None, False, NOW)
    path.write_text("mine")
    export_record(record, path, True, NOW)
    assert "mnist" in path.read_text()
    with pytest.raises(CommandError, match="cannot be written: no such file"):
        export_record(record, Path("none/a.html"), False, NOW)


def test_an_empty_timeline_has_no_chart() -> None:
    assert "<svg" not in timeline_svg(timeline(()), NOW)


def test_text_becomes_no_markup_and_markup_stays() -> None:
    assert element("p", "a<b", element("b", "&"), title='"><') == '<p title="&quot;&gt;&lt;">a&lt;b<b>&amp;</b></p>'
    assert (
        element("rect", x=1.50, class_="a") == '<rect x="1.5" class="a"/>'
        and join("<", element("i", "")) == "&lt;<i></i>"
    )


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("chromium"), reason="there is no chromium")
def test_a_browser_shows_the_page_from_its_file_and_runs_nothing(tmp_path: Path) -> None:
    record = recorded(tmp_path / "history", tfjob(FAILED), failed_pod(), log=f"{MARKUP}\n".encode())
    path = export_record(record, tmp_path / "a page.html", False, NOW)
    browser = ["chromium", "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
    offline = "--host-resolver-rules=MAP * ~NOTFOUND"
    line = [*browser, offline, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", path.absolute().as_uri()]
    ended = subprocess.run(line, capture_output=True, text=True, timeout=60, check=True)
    assert "<svg" in ended.stdout and "✗1" in ended.stdout
    assert "<script" not in ended.stdout and "<img" not in ended.stdout
    assert "Content Security Policy" not in ended.stderr, "nothing had to be refused"

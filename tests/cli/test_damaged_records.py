"""Commands, the page and `up` on damaged records of the history: none ends with a traceback, and nothing that a job has
written steers a terminal or a pipe."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from pathlib import Path

import msgspec
import pytest

from tests.cli.commands import run_in_process
from tests.cli.damaged_records import HOSTILE, damaged
from tests.cli.terminals import run_on
from tests.cli.test_history_export import failed_pod, recorded
from tests.views.why_values import NOW, tfjob
from trainyard.app.history.job_record import JobRecord
from trainyard.app.history.limits import RetentionLimits
from trainyard.app.history.records import RESULT, HistoryRecord, history_folder, read_record, read_records
from trainyard.app.history.retention import mark_interrupted, prune
from trainyard.objects.metric_points import METRICS, MetricPoint, encode_points
from trainyard.page.job_list import jobs_frame, recorded_row
from trainyard.page.job_pages import JobPages
from trainyard.page.job_progress import recorded_progress
from trainyard.page.log_ranges import recorded_files
from trainyard.views.memory import memory_limit
from trainyard.views.recorded import pod_log_folder, recorded_pod

SEEDS = 40
COMMANDS = (
    *("history", "history -o wide", "history -o json", "history -o yaml", "history -o name"),
    *("history ID", "history ID -o json", "history ID -o yaml", "history export ID FILE --force"),
    *("why ID", "why ID -o json", "why ID -o yaml", "describe ID"),
    *("events ID", "events ID -o wide", "events ID -o json", "events ID -o yaml", "events ID -o name"),
    *("logs ID", "logs ID --attempt 0", "logs ID -p", "get mnist", "top mnist"),
    *("history keep ID", "history keep --undo ID"),
)
OUR_COLOURS = re.compile(r"\x1b\[(0|31|32|33)m")
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HistoryRecord:
    """The record of a job that has failed, with everything that a record has, and all its texts hostile."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    pods = [failed_pod(code=137, reason="OOMKilled"), failed_pod(1)]
    for pod in pods:
        pod["status"] |= {"message": HOSTILE, "reason": HOSTILE}
        for container in pod["status"]["containerStatuses"]:
            container["state"]["terminated"]["message"] = HOSTILE
    job = tfjob(("Failed", f"Permanent{HOSTILE}", HOSTILE))
    written = recorded(history_folder(), job, *pods, log=f"{HOSTILE}\nstep 1 loss 2\n".encode() * 20)
    points = [MetricPoint("loss", "file", NOW - 40 + step, float(step), 2.0 / (step + 1)) for step in range(20)]
    (written.logs / pod_log_folder(pods[0]) / METRICS).write_bytes(encode_points(points))
    return written


def damaged_copy(record: HistoryRecord, tmp_path: Path, seed: int) -> str:
    """Put a damaged copy in the place of the record. Returns what is damaged."""
    original = tmp_path / "original"
    record.folder.rename(original)
    shutil.copytree(original, record.folder)
    return damaged(record.folder, seed)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_command_ends_without_a_traceback(
    record: HistoryRecord, tmp_path: Path, seed: int, capfd: pytest.CaptureFixture[str]
) -> None:
    print(damaged_copy(record, tmp_path, seed))
    for command in COMMANDS:
        line = command.replace("ID", record.id).replace("FILE", str(tmp_path / "page.html"))
        print(f"trainyard {line}")
        answer = run_in_process(*line.split())
        assert answer.code in (0, 1, 2, 3), answer
        assert not CONTROLS.search(answer.out + answer.err), answer
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("seed", range(1000, 1000 + SEEDS))
def test_the_page_and_the_recorder_go_on(record: HistoryRecord, tmp_path: Path, seed: int) -> None:
    print(damaged_copy(record, tmp_path, seed))

    async def pages() -> None:
        served = JobPages(None, None, True)
        for uid in {record.text("uid"), *(other.text("uid") for other in read_records(history_folder()))}:
            msgspec.json.encode(await served.page(uid))
            msgspec.json.encode(await served.compared(uid))
            await served.manifest(uid)

    asyncio.run(pages())
    left = read_record(record.folder)
    if left is not None:
        jobs_frame([recorded_row(left)], [], reset=True, more=False)
        recorded_progress(left.logs)
        recorded_files(left)
        continued = JobRecord.loaded(left.folder, left.content, RetentionLimits())
        continued.record_job(tfjob(), NOW)
        for index in range(3):
            continued.record_pod(failed_pod(index), gone=bool(index))
        continued.snapshot("").write()
    mark_interrupted(history_folder())
    prune(history_folder(), RetentionLimits(), NOW)


@pytest.mark.parametrize("containers", [5, 1e308, "x", {"a": None}, True, None])
def test_a_pod_has_a_list_of_containers_whatever_its_template_has(containers: object) -> None:
    entry = {"role": "worker", "node": "laptop"}
    template = {"spec": {"containers": containers, "initContainers": containers, "hostNetwork": True}}
    assert recorded_pod({}, entry, template)["spec"] == {"hostNetwork": True, "nodeName": "laptop"}
    assert memory_limit(recorded_pod({}, entry, template), "tensorflow") == ""


@pytest.mark.parametrize("logs", ["../..", "/tmp/other", "..", "/", "a/../..", "worker-0/attempt-0-00000009", None])
def test_the_recorder_removes_no_folder_but_its_own(record: HistoryRecord, logs: str | None) -> None:
    """Which it does for a pod between the first and the last ones of a replica."""
    content = record.content
    content["pods"] = [{**content["pods"][0], "uid": f"uid-{number}", "logs": logs} for number in range(3)]
    (record.folder / RESULT).write_text(json.dumps(content))
    damaged_record = read_record(record.folder)
    assert damaged_record is not None
    continued = JobRecord.loaded(record.folder, damaged_record.content, RetentionLimits(pods=1))
    assert continued.record_pod(failed_pod(), gone=False) == ["uid-1"]
    removed = continued.snapshot("").removed_logs
    assert removed == ((record.logs / logs,) if logs and logs.startswith("worker-0/") else ())


@pytest.mark.parametrize("command", ["history", "history ID", "why ID", "describe ID", "events ID"])
def test_a_terminal_gets_no_colours_of_a_job(record: HistoryRecord, tmp_path: Path, command: str) -> None:
    """Not even those that we write ourselves: a text of a job could look like one of ours."""
    line = command.replace("ID", record.id).split()
    shown = run_on(tmp_path, line, out="terminal", err="terminal", NO_COLOR="", TERM="xterm")
    text = shown.out + shown.err
    assert shown.code == 0 and ("\x1b[31mFailed" in text or command != "history"), text
    assert not CONTROLS.search(OUR_COLOURS.sub("", text)) and "\x1b[31mhidden" not in text, text

"""The recorder of the history, driven by hand: no cluster, real files."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.app.test_history_values import JOB_UID, job, pod
from trainyard.app.history.job_record import Snapshot
from trainyard.app.history.record_index import HistoryOptions
from trainyard.app.history.recorder import HistoryRecorder
from trainyard.app.history.records import RESULT, job_folders
from trainyard.objects import Json


def recorder(root: Path, logs: Path | None = None) -> HistoryRecorder:
    return HistoryRecorder(HistoryOptions(root, "run", logs), lambda text: None, lambda: 100.0)


def owned(number: int = 0, **status: Any) -> Json:
    """A pod of the job."""
    owned_pod = pod(number, **status)
    owned_pod["metadata"]["labels"]["trainyard.dev/owner"] = JOB_UID
    owned_pod["metadata"]["ownerReferences"] = [{"name": "mnist-worker-0", "uid": "the-batch-job", "kind": "Job"}]
    return owned_pod


async def test_the_last_state_wins_over_a_write_that_is_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, write = threading.Event(), threading.Event(), Snapshot.write

    def slow_write(snapshot: Snapshot) -> None:
        if not snapshot.data["result"]:
            begun.set()
            go_on.wait(10)
        write(snapshot)

    monkeypatch.setattr(Snapshot, "write", slow_write)
    history = recorder(tmp_path)
    history.tasks.start("write records", history._keep_writing)
    history._job_seen(None, job())
    await asyncio.to_thread(begun.wait, 10)
    closing = asyncio.create_task(history.close(message="interrupted"))
    await asyncio.sleep(0)
    go_on.set()
    await closing
    (folder,) = job_folders(tmp_path)
    assert json.loads((folder / RESULT).read_text())["message"] == "interrupted"
    assert sorted(path.name for path in folder.iterdir()) == ["job.yaml", "manifest.yaml", RESULT]


async def test_a_pod_observed_before_its_job_belongs_to_the_same_record(tmp_path: Path) -> None:
    history = recorder(tmp_path)
    logs = history.log_folder(owned(1, phase="Pending"))
    assert logs is not None and logs.is_dir()
    history._event_seen(None, {"metadata": {"uid": "e"}, "involvedObject": {"uid": JOB_UID}, "message": "accepted"})
    history._job_seen(None, job())
    history._event_seen(None, {"metadata": {"uid": "f"}, "involvedObject": {"uid": "00000001-pod"}, "message": "early"})
    history._event_seen(
        None, {"metadata": {"uid": "g"}, "involvedObject": {"uid": "the-batch-job"}, "message": "early"}
    )
    history._pod_seen(None, owned(1, phase="Running"))
    await history.close()
    (folder,) = job_folders(tmp_path)
    data = json.loads((folder / RESULT).read_text())
    assert (data["name"], data["pods"][0]["logs"]) == ("mnist", str(logs.relative_to(folder / "logs")))
    assert len((folder / "events.yaml").read_text().splitlines()) == 3


async def test_a_pod_without_a_job_keeps_its_logs_itself(tmp_path: Path) -> None:
    history, labelled, child = recorder(tmp_path), owned(1), owned(2)
    del labelled["metadata"]["ownerReferences"]  # a label that somebody wrote
    del child["metadata"]["labels"]["trainyard.dev/owner"]  # a pod of a Deployment
    assert history.log_folder(labelled) is None and history.log_folder(child) is None
    await history.close()
    assert not job_folders(tmp_path)


async def test_a_job_that_ended_before_there_was_a_history_is_not_recorded(tmp_path: Path) -> None:
    history = recorder(tmp_path)
    history._job_seen(None, job(conditions=[{"type": "Failed", "status": "True"}]))
    assert history.log_folder(owned(1, phase="Failed")) is None
    await history.close()
    assert not job_folders(tmp_path)


async def test_a_user_folder_is_never_used_as_a_jobs_log_folder(tmp_path: Path) -> None:
    own = tmp_path / "own"
    name = f"20260101T000000Z-default-mnist-{JOB_UID[:8]}"
    (own / name).mkdir(parents=True)
    (own / name / "mine.txt").write_text("mine")
    history = recorder(tmp_path / "history", own)
    history._job_seen(None, job())
    logs = history.log_folder(owned(1))
    await history.close()
    assert logs is not None and logs.parts[-3] == f"{name}-2"
    assert [path.name for path in (own / name).iterdir()] == ["mine.txt"]

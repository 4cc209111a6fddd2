"""`trainyard ui` as a user has it: a link to the page of a cluster that is up, of a run, of the history."""
# ruff: noqa: S310  (the URLs are those that the command has printed)

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.run_values import Ended, Started, job, private, replicas, run_to_end
from tests.page.browsing import rows_of
from trainyard.objects import Json

pytestmark = pytest.mark.slow


def command(folder: Path, *line: str) -> Ended:
    env = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    env |= {**private(folder), "HOME": str(folder)}
    full_line = [sys.executable, "-m", "trainyard", *line]
    ended = subprocess.run(full_line, env=env, capture_output=True, text=True, timeout=60, check=False)
    return Ended(ended.returncode, ended.stdout.splitlines(), ended.stderr, ended.stdout)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Path]:
    assert command(tmp_path, "up", "--network", "shared").code == 0
    yield tmp_path
    command(tmp_path, "down", "--delete")


def session_of(link: str) -> tuple[str, str]:
    """The address of the page and a session, as a browser gets them from a link."""
    page, _, token = link.strip().partition("#token=")
    body = json.dumps({"token": token}).encode()
    request = urllib.request.Request(f"{page}v1/session", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as response:
        return page, json.load(response)["session"]


def first_frame(page: str, session: str, topic: str, kind: str) -> dict[str, Any]:
    """The first frame of that type."""
    url = f"{page}v1/live?subscribe={topic}"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {session}"})
    with urllib.request.urlopen(request, timeout=20) as response:
        for line in response:
            frame: dict[str, Any] = json.loads(line)
            if frame["type"] == kind:
                return frame
    raise AssertionError(f"no frame {kind}")


def jobs(page: str, session: str) -> dict[str, Json]:
    """The rows of the first frame with jobs, by the name of the job."""
    return {row["name"]: row for row in rows_of(first_frame(page, session, "jobs", "jobs"))}


def act(page: str, session: str, verb: str, uid: str) -> tuple[int, str]:
    """Ask the page for an action on a job as it shows it. Returns the status code and the sentence."""
    offered = first_frame(page, session, f"job:{uid}", "actions")["actions"]
    body = json.dumps({"verb": verb, "uid": uid, "generation": offered["generation"]}).encode()
    headers = {"Authorization": f"Bearer {session}", "Content-Type": "application/json"}
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{page}v1/actions", body, headers), timeout=20) as response:
            return response.status, json.load(response)["message"]
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["error"]


@contextmanager
def served(folder: Path, *line: str) -> Iterator[tuple[str, str]]:
    """Page and session of a `trainyard ui` that serves the page itself until Ctrl-C."""
    env = {**os.environ, **private(folder), "HOME": str(folder)}
    full_line = [sys.executable, "-m", "trainyard", "ui", *line]
    process = subprocess.Popen(full_line, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield session_of(process.stdout.readline())
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0


def write_job(folder: Path, code: str) -> Path:
    path = folder / "job.json"
    path.write_text(json.dumps(job(replicas("MASTER", code))))
    return path


def test_a_link_opens_the_page_of_the_cluster_once(up: Path) -> None:
    assert command(up, "submit", str(write_job(up, "print(1)")), "--wait").code == 0
    printed = command(up, "ui")
    assert (printed.code, printed.err) == (0, "") and len(printed.lines) == 1
    page, session = session_of(printed.out)
    assert jobs(page, session)["story"]["state"] == "Succeeded"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        session_of(printed.out)
    assert command(up, "ui", "default").code == 0
    unknown = command(up, "ui", "other")
    assert (unknown.code, unknown.out) == (3, "") and "there are pages of: default" in unknown.err


def test_a_page_that_is_open_is_connected_again_after_the_cluster_was(up: Path) -> None:
    page, session = session_of(command(up, "ui").out)
    assert command(up, "down").code == 0
    gone = command(up, "ui")
    assert gone.code == 3 and "trainyard ui --history" in gone.err.replace("\n  ", " ")
    assert command(up, "up").code == 0
    assert jobs(page, session) == {}
    assert command(up, "ui").out.startswith(page)


def test_the_key_for_links_can_be_read_by_its_owner_alone(up: Path) -> None:
    (file,) = (up / "state" / "trainyard" / ".page-servers").glob("*.json")
    assert file.stat().st_mode & 0o777 == 0o600 and file.parent.stat().st_mode & 0o777 == 0o700


def assert_commands_read(folder: Path) -> None:
    """Commands that read jobs find that of the run; others do not."""
    for line, words in (
        (("get",), "TfJob  story"),
        (("get", "tfjob/story", "-o", "name"), "tfjob.tensorflow.org/story"),
        (("top", "story"), "master-0"),
        (("describe", "story"), "master-0"),
        (("logs", "story"), "here"),
        (("events", "story"), "JobRunning"),
        (("why", "story"), "1 of 1 replicas run"),
    ):
        answer = command(folder, *line)
        assert answer.code == 0 and words in answer.out, (line, answer.out, answer.err)
    for line in (("delete", "story"), ("suspend", "story")):
        answer = command(folder, *line)
        assert answer.code == 3 and "trainyard up" in answer.err, (line, answer.err)
    assert command(folder, "top", "story", "--kubeconfig", str(folder / "none")).code == 3


def test_a_run_has_a_page_while_it_runs(tmp_path: Path) -> None:
    run = Started(tmp_path, [job(replicas("MASTER", "import time; print('here', flush=True); time.sleep(60)"))])
    try:
        run.read_until("here")
        page, session = session_of(command(tmp_path, "ui").out)
        assert jobs(page, session)["story"]["state"] in ("Created", "Running")
        printed = command(tmp_path, "ui", f"run-{run.process.pid}", "--write")
        page, session = session_of(printed.out)
        assert_commands_read(tmp_path)
        assert act(page, session, "suspend", jobs(page, session)["story"]["uid"])[0] == 200
    finally:
        run.interrupt()
        run.end()
    assert command(tmp_path, "ui").code == 3
    assert command(tmp_path, "get").code == 3
    assert not (tmp_path / "state" / "trainyard" / ".page-servers").exists()


def test_the_history_needs_no_cluster(tmp_path: Path) -> None:
    assert run_to_end(tmp_path, [job(replicas("MASTER", "print('it was here')"))]).code == 0
    with served(tmp_path, "--history") as (page, session):
        row = jobs(page, session)["story"]
        assert (row["state"], row["live"]) == ("Succeeded", False)
        request = urllib.request.Request(f"{page}v1/jobs/{row['uid']}", headers={"Authorization": f"Bearer {session}"})
        with urllib.request.urlopen(request, timeout=20) as response:
            assert json.load(response)["job"]["row"]["name"] == "story"


def test_a_link_with_write_opens_a_page_that_may_change_jobs(up: Path) -> None:
    assert command(up, "submit", str(write_job(up, "print(1)")), "--wait").code == 0
    page, reading = session_of(command(up, "ui").out)
    uid = jobs(page, reading)["story"]["uid"]
    status, text = act(page, reading, "delete", uid)
    assert status == 403 and "`trainyard ui --write`" in text
    printed = command(up, "ui", "--write")
    assert (printed.code, printed.err) == (0, "") and printed.out.startswith(page)
    _, writing = session_of(printed.out)
    assert act(page, writing, "delete", uid) == (200, "tfjob/story deleted")
    assert command(up, "get", "story").code == 1


def test_the_page_of_a_cluster_that_a_kubeconfig_names_may_change_jobs(up: Path) -> None:
    """A copy of the file of `up` is one of a cluster of which this machine knows nothing more."""
    config = up / "copy"
    config.write_text((up / "state" / "trainyard" / "default" / "kubeconfig").read_text())
    assert command(up, "submit", str(write_job(up, "print(1)")), "--wait").code == 0
    for options, expected in (((), 403), (("--write",), 200)):
        with served(up, "--kubeconfig", str(config), *options) as (page, session):
            status, text = act(page, session, "delete", jobs(page, session)["story"]["uid"])
            assert status == expected, text
    assert command(up, "get", "story").code == 1


def test_a_history_is_not_written(tmp_path: Path) -> None:
    refused = command(tmp_path, "ui", "--history", "--write")
    assert (refused.code, refused.out) == (2, "") and "no job of the history can be changed" in refused.err


def test_a_cluster_that_does_not_answer_is_named(tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig.json"
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    user = {"name": "u", "user": {"token": "t"}}
    config.write_text(
        json.dumps({"clusters": [cluster], "contexts": [context], "users": [user], "current-context": "c"})
    )
    ended = command(tmp_path, "ui", "--kubeconfig", str(config))
    assert (ended.code, ended.out) == (3, ""), ended.err
    assert "does not answer: connection refused" in ended.err
    assert "Traceback" not in ended.err


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = command(tmp_path, "ui", "--history", "--port", str(taken.getsockname()[1]))
    assert (ended.code, ended.out) == (3, "")
    assert "--port" in ended.err and "Traceback" not in ended.err


def test_the_file_of_a_run_that_was_killed_goes_with_the_next_run(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "trainyard" / ".page-servers"
    run = Started(tmp_path, [job(replicas("MASTER", "import time; print('here', flush=True); time.sleep(60)"))])
    run.read_until("here")
    assert command(tmp_path, "ui").code == 0
    run.interrupt(signal.SIGKILL)
    run.end()
    assert [path.name for path in folder.iterdir()] == [f"run-{run.process.pid}.json"]
    assert command(tmp_path, "ui").code == 3
    assert run_to_end(tmp_path, [job(replicas("MASTER", "print(1)"))]).code == 0
    assert not folder.exists()

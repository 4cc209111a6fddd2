"""The commands of a user with no other rights than those that we ship: of the ClusterRole `edit` or `view` in one
namespace, where a job runs in containers of a real kubelet.
"""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.test_ui_story import first_frame, session_of
from tests.page.browsing import rows_of
from tests.real_node.stage import COMMAND_SECONDS, Stage, container, pytorch_job, template
from trainyard.objects import encode

pytestmark = [pytest.mark.node, pytest.mark.slow]

TRAINS = "echo epoch 1; exec sleep 100000"
JOB = pytorch_job(
    "mine", template(container("pytorch", "sh", "-c", TRAINS)), template(container("pytorch", "sleep", "1000"))
)


@pytest.fixture(scope="module")
def running(stage: Stage) -> Stage:
    """The stage, with a job that its user has submitted, and that runs. `viewer` may only look."""
    stage.user("viewer", "view")
    manifest = stage.folder / "job.json"
    manifest.write_text(encode(JOB).decode())
    submitted = stage.trainyard("submit", str(manifest))
    assert submitted.returncode == 0, submitted.stderr
    stage.until_running(JOB, 2)
    return stage


def viewers(stage: Stage) -> tuple[Path, Path]:
    """The kubeconfigs of the user, and of one who may only look."""
    return stage.kubeconfig, stage.folder / "viewer.kubeconfig"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("why mine", ["it runs fine", "2 of 2 replicas run"]),
        ("get mine", ["mine Running 2/2"]),
        ("describe mine", ["mine-master-0", "Container started"]),
        ("events mine", ["Created pod: mine-worker-0"]),
        ("logs mine", ["master-0 | epoch 1"]),
        ("top mine", ["master-0 Running", "this cluster does not serve metrics.k8s.io"]),
        ("top", ["mine PyTorchJob Running 2/2"]),
    ],
)
def test_who_may_look_is_refused_nothing(running: Stage, command: str, words: list[str]) -> None:
    for kubeconfig in viewers(running):
        ended = running.trainyard(*command.split(), kubeconfig=kubeconfig)
        output = " ".join((ended.stdout + ended.stderr).split())
        assert ended.returncode == 0, output
        assert all(word in output for word in words), output
        assert "may not" not in output, output


def test_who_may_look_may_not_change_a_job(running: Stage) -> None:
    viewer = viewers(running)[1]
    ended = running.trainyard("suspend", "mine", kubeconfig=viewer)
    assert ended.returncode == 1 and "cannot patch resource" in ended.stderr, ended.stderr


def test_the_page_shows_the_jobs_of_the_namespace(running: Stage) -> None:
    for kubeconfig in viewers(running):
        command, env = running.command("ui", kubeconfig=kubeconfig)
        pipe = subprocess.PIPE
        with subprocess.Popen(command, env=env, stdout=pipe, stderr=pipe, text=True) as ui:
            assert ui.stdout is not None
            try:
                page, session = session_of(ui.stdout.readline())
                rows = rows_of(first_frame(page, session, "jobs", "jobs"))
            finally:
                ui.send_signal(signal.SIGINT)
            _, errors = ui.communicate(timeout=COMMAND_SECONDS)
        assert [row["name"] for row in rows] == ["mine"]
        assert "you may not list the pods of all namespaces: the page shows namespace user-rights" in errors

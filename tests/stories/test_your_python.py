"""A pod runs with the environment of the person's shell, project or catalogue: `run` and `up`, real environments."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.slow  # each starts a cluster in a process of its own

PATIENCE = 90
LOOK = "import sys, os; print('RAN', sys.prefix, os.environ.get('VIRTUAL_ENV'))"
COMMAND = f'tool && exec python -c "{LOOK}"'


@pytest.fixture
def trainyard(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The program, in a shell whose folder is the project."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "project").mkdir()
    env = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "CONDA_PREFIX")}
    folders = {"XDG_STATE_HOME": "state", "XDG_CONFIG_HOME": "config", "XDG_CACHE_HOME": "cache", "TMPDIR": "tmp"}
    env |= {name: str(tmp_path / folder) for name, folder in folders.items()}
    env.pop("KUBECONFIG", None)

    def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "trainyard", *arguments]
        return subprocess.run(
            argv,
            cwd=tmp_path / "project",
            env=env | more,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    return run


def made_venv(folder: Path) -> Path:
    """A virtual environment with a program of its own."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (folder / "bin" / "tool").write_text(f"#!{folder}/bin/python\nprint('TOOL')\n")
    (folder / "bin" / "tool").chmod(0o755)
    return folder


def written_job(folder: Path) -> str:
    container = {"name": "tensorflow", "image": "my/img", "command": ["sh", "-c", COMMAND]}
    spec = {"tfReplicaType": "MASTER", "template": {"spec": {"containers": [container], "restartPolicy": "OnFailure"}}}
    job = {"apiVersion": "tensorflow.org/v1alpha1", "kind": "TfJob", "metadata": {"name": "a"}}
    (folder / "job.yaml").write_text(yaml.safe_dump(job | {"spec": {"replicaSpecs": [spec]}}))
    return str(folder / "job.yaml")


@pytest.mark.parametrize(
    ("way", "network"), [("option", "shared"), ("active", "namespace"), ("project", "namespace"), ("entry", "shared")]
)
def test_run_uses_the_selected_environment(
    trainyard: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, way: str, network: str
) -> None:
    venv = made_venv(tmp_path / "project" / (".venv" if way == "project" else "mine"))
    (tmp_path / "project" / "images.yaml").write_text("images:\n- {match: my/img, python: mine}\n")
    options = {"option": ["--python", "mine"], "entry": ["--images", "images.yaml"]}.get(way, [])
    variables = {"VIRTUAL_ENV": str(venv)} if way == "active" else {}
    reason = {"option": "--python", "active": "the active virtual environment", "entry": "its entry"}.get(
        way, ".venv in"
    )
    job = written_job(tmp_path / "project" if way == "project" else tmp_path)
    ended = trainyard("run", job, "--network", network, *options, **variables)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"master-0 | TOOL\nmaster-0 | RAN {venv} {venv}\n" in ended.stdout
    assert f"images: my/img runs with Python {sys.version.split()[0]} of {venv} ({reason}" in ended.stderr


def test_up_uses_the_virtual_environment_of_its_shell(
    trainyard: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    venv, other = made_venv(tmp_path / "mine"), made_venv(tmp_path / "other")
    try:
        for expected, options in ((venv, ()), (other, ("--python", "../other"))):
            started = trainyard("up", "--fresh", "--network", "shared", *options, VIRTUAL_ENV=str(venv))
            assert started.returncode == 0, started.stderr
            submitted = trainyard("submit", written_job(tmp_path), "--logs", VIRTUAL_ENV="/of/another/shell")
            assert f"RAN {expected} {expected}" in submitted.stdout, submitted.stdout + submitted.stderr
            assert trainyard("down").returncode == 0
    finally:
        trainyard("down", "--grace", "5")

"""The options of `trainyard operator` that are refused before any request, and its exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainyard.app.config import ConfigError
from trainyard.app.install.installation import Install, arguments
from trainyard.app.operating import parse_address, parse_kinds
from trainyard.cli.operator import _parse_options, operator

pytestmark = pytest.mark.slow

KUBECONFIG = """
current-context: c
contexts: [{name: c, context: {cluster: c}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
"""


def run_in_process(folder: Path, *line: str, **env: str) -> tuple[int, str]:
    known = {name: value for name, value in os.environ.items() if "KUBE" not in name}
    ended = subprocess.run(
        [sys.executable, "-m", "trainyard", "operator", *line],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**known, **env},
        timeout=60,
        check=False,
    )
    return ended.returncode, ended.stderr


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "k").write_text(KUBECONFIG)
    (tmp_path / "broken.yaml").write_text("accelerators: 7\n")
    return tmp_path


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("", 3, "no cluster: this process is not in a pod with a service account; name a cluster with"),
        ("--kubeconfig missing", 3, "missing: no such file"),
        (
            "--kubeconfig k --kinds pods",
            2,
            "'pods' is not a kind of job; known are: tfjob, mxjob, chainerjob, elasticjob",
        ),
        ("--kubeconfig k --controller_config_file broken.yaml", 2, "accelerators: is not a mapping"),
        ("--kubeconfig k --controller-config-file no.yaml", 2, "no.yaml: cannot be read"),
        ("--kubeconfig k --metrics-bind-address here", 2, "'here' is not an address; write HOST:PORT"),
        ("--kubeconfig k --lease-duration 1", 2, "is not in the range"),
        ("--kubeconfig k --node-lost-timeout -1", 2, "is not in the range"),
        ("--kubeconfig k --log-format xml", 2, "'text', 'json'"),
        ("--kubeconfig k --metrics-bind-address 203.0.113.1:80", 3, "203.0.113.1"),
    ],
)
def test_an_impossible_option_is_reported_with_the_fix(home: Path, line: str, code: int, message: str) -> None:
    ended, err = run_in_process(home, *line.split())
    assert (ended, "Traceback" in err) == (code, False) and message in err


def test_a_missing_config_file_is_allowed_with_its_option(home: Path) -> None:
    line = ["--kubeconfig", str(home / "k"), "--controller-config-file", str(home / "later.yaml")]
    params = operator.make_context("operator", [*line, "--optional-controller-config"]).params
    parsed = _parse_options(params)
    assert not parsed.config.accelerators and parsed.config_file == home / "later.yaml"
    with pytest.raises(ConfigError):
        _parse_options(operator.make_context("operator", line).params)


OPTIONS = ("--kubeconfig", "--namespace", "--kinds", "--controller-config-file", "--leader-elect", "--log-format")


def test_help_names_every_option_with_its_default(home: Path) -> None:
    line = [sys.executable, "-m", "trainyard", "operator", "--help"]
    ended = subprocess.run(line, capture_output=True, text=True, check=True, timeout=60)
    assert not [option for option in OPTIONS if option not in ended.stdout]
    assert "tfjob,mxjob,elasticjob" in ended.stdout


@pytest.mark.parametrize("namespaced", [False, True])
def test_the_operator_accepts_the_arguments_of_the_manifests(namespaced: bool) -> None:
    parameters = operator.make_context("operator", arguments(Install(namespace="team", namespaced=namespaced))).params
    assert parameters["leader_elect"] is True and parse_address(parameters["bind"]) == ("", 8080)
    assert parse_kinds(parameters["served"]) == parse_kinds("tfjob,mxjob,elasticjob")
    assert parameters["namespace"] == ("team" if namespaced else "") and parameters["config"].endswith(".yaml")


def test_no_collection_of_garbage_looks_through_the_modules() -> None:
    """It took 42 ms, for which a job waited. In a process of its own, because it holds for the rest of it."""
    program = (
        "import asyncio, gc\n"
        "from trainyard.app import operating\n"
        "from trainyard.cli import operator\n"
        "async def run_operator(options, stop):\n"
        "    print(gc.get_freeze_count() > len(gc.get_objects()))\n"
        "operating.run_operator = run_operator\n"
        "asyncio.run(operator._operate(None))\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout == "True\n"

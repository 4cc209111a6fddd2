"""The default parameter server's program, under every Python of this machine.

Its own part (arguments, what it asks of TensorFlow, how it ends) is tested with a stand-in for TensorFlow that writes
down what it is asked; that real parameters are served by it is shown where real training is.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import trainyard.kinds
from tests.support.interpreters import every_python

PROGRAM = str(Path(trainyard.kinds.__file__).parent / "files" / "grpc_tensorflow_server.py")
SPEC = "master|m-0:2222,ps|p-0:2222;p-1:2222"

# As much TensorFlow as a server needs, in the layout of 1.3: no compat.v1.
STAND_IN = """
import json, os
class GPUOptions(object):
    def __init__(self, per_process_gpu_memory_fraction): self.fraction = per_process_gpu_memory_fraction
class ConfigProto(object):
    def __init__(self, gpu_options): self.gpu = gpu_options
class train(object):
    class ClusterSpec(object):
        def __init__(self, cluster): self.cluster = cluster
    class Server(object):
        def __init__(self, spec, job_name, task_index, config):
            self.target = "grpc://" + spec.cluster[job_name][task_index]
            asked = {"cluster": spec.cluster, "job": job_name, "task": task_index, "gpu": config.gpu.fraction}
            with open(os.environ["ASKED"], "w") as file: json.dump(asked, file)
"""


def run(python: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([python, PROGRAM, *arguments], capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize("python", every_python())
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "Empty cluster_spec string"),
        (["--cluster_spec", ""], "Empty cluster_spec string"),
        (["--cluster_spec", "ps"], "Not exactly one '|' in cluster_spec part 'ps'"),
        (["--cluster_spec", "ps|a:1|b"], "Not exactly one '|' in cluster_spec part 'ps|a:1|b'"),
        (["--cluster_spec", "ps|a:1,"], "Not exactly one '|' in cluster_spec part ''"),
        (["--cluster_spec", "|a:1"], "Empty job name in cluster_spec part '|a:1'"),
        (["--cluster_spec", "ps|a:1;;b:1"], "Empty task string at position 1 of job 'ps'"),
        (["--cluster_spec", "ps|"], "Empty task string at position 0 of job 'ps'"),
        (["--cluster_spec", SPEC], "Empty job_name"),
        (["--cluster_spec", SPEC, "--job_name", "ps", "--task_id", "-1"], "Invalid task_id: -1"),
    ],
)
def test_a_wrong_argument_is_one_line_and_tensorflow_is_not_needed(
    python: str, arguments: list[str], error: str
) -> None:
    done = run(python, *arguments)
    assert done.returncode == 1
    assert done.stderr.startswith(f"ValueError: {error}") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("python", every_python())
def test_the_server_of_the_task_starts_and_sigterm_ends_it_at_once(python: str, tmp_path: Path) -> None:
    (tmp_path / "tensorflow.py").write_text(STAND_IN)
    mark = tmp_path / "asked"
    arguments = ["--cluster_spec", SPEC, "--job_name", "ps", "--task_id", "1", "--verbose", "--gpu_memory_fraction=0.5"]
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "ASKED": str(mark)}
    argv = [python, PROGRAM, *arguments, "--unknown", "x"]
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline(), process.stdout.readline()]
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=5) in (143, -signal.SIGTERM)
    assert lines[0].startswith("cluster [('master', ['m-0:2222'])") and "grpc://p-1:2222" in lines[1]
    assert json.loads(mark.read_text()) == {
        "cluster": {"master": ["m-0:2222"], "ps": ["p-0:2222", "p-1:2222"]}, "job": "ps", "task": 1, "gpu": 0.5,
    }  # fmt: skip


def test_a_tensorflow_2_with_another_layout_is_imported_completely(tmp_path: Path) -> None:
    package = tmp_path / "tensorflow"
    (package / "_api" / "v2").mkdir(parents=True)
    (package / "compat" / "v1").mkdir(parents=True)
    for folder in (package, package / "compat"):
        (folder / "__init__.py").write_text("")
    (package / "compat" / "v1" / "__init__.py").write_text(STAND_IN)
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "ASKED": str(tmp_path / "asked")}
    argv = [sys.executable, PROGRAM, "--cluster_spec", SPEC, "--job_name", "master"]
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], 20)[0]
        assert "grpc://m-0:2222" in process.stdout.readline()
        process.terminate()
        process.wait(timeout=5)
    assert json.loads((tmp_path / "asked").read_text())["job"] == "master"

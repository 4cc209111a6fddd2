"""`trainyard run SCRIPT` as a person types it: the script's folder, its arguments, its end, the same from a file."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.cli.script_values import script

pytestmark = pytest.mark.slow

PATIENCE = 60
SHOW = """
import json, os, sys
facts = {"args": sys.argv[1:], "cwd": os.getcwd(), **{n: os.environ.get(n) for n in %r}}
name = "facts-" + os.environ.get("RANK", os.environ.get("OMPI_COMM_WORLD_RANK", "0")) + ".json"
open(name, "w").write(json.dumps(facts))
print("done", flush=True)
"""
PLAIN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "MINE")


def start(
    folder: Path, *arguments: str, prefix: tuple[str, ...] = (), variables: dict[str, str] | None = None
) -> subprocess.Popen[str]:
    """In `folder`, with a cache, a temporary folder and a configuration of its own outside of it."""
    home = folder.parent / f"{folder.name}-home"
    (home / "tmp").mkdir(parents=True, exist_ok=True)
    own = {"TMPDIR": str(home / "tmp"), "XDG_CONFIG_HOME": str(home), "XDG_CACHE_HOME": str(home)}
    return subprocess.Popen(
        [*prefix, sys.executable, "-m", "trainyard", *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **own, "XDG_STATE_HOME": str(home), "HOME": str(home), **(variables or {})},
        start_new_session=True,
    )


def run_to_end(
    folder: Path, *arguments: str, prefix: tuple[str, ...] = (), variables: dict[str, str] | None = None
) -> tuple[int, str, str]:
    process = start(folder, *arguments, prefix=prefix, variables=variables)
    try:
        out, err = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, out, err


def facts(folder: Path, count: int) -> list[dict[str, object]]:
    return [json.loads((folder / f"facts-{rank}.json").read_text()) for rank in range(count)]


@pytest.mark.parametrize("network", ["namespace", "shared"])
def test_every_worker_runs_in_the_scripts_folder_and_gets_the_peers_addresses(network: str, tmp_path: Path) -> None:
    script(tmp_path, SHOW % (PLAIN,), "project/train.py")
    arguments = ("--network", network, "--workers", "2", "--env", "MINE=$(X) 1", "project/train.py", "--workers", "9")
    code, out, err = run_to_end(tmp_path, "run", *arguments)
    assert code == 0, err
    assert "train.py: runs as plain: no framework among its imports (--framework changes it)" in err
    assert "worker-0 | done" in out and "worker-1 | done" in out
    for rank, rank_facts in enumerate(facts(tmp_path / "project", 2)):
        assert rank_facts["args"] == ["--workers", "9"]
        assert rank_facts["cwd"] == str(tmp_path / "project")
        assert (rank_facts["RANK"], rank_facts["LOCAL_RANK"], rank_facts["WORLD_SIZE"]) == (str(rank), "0", "2")
        assert rank_facts["MINE"] == "$(X) 1"
        assert rank_facts["MASTER_PORT"]


def test_a_script_runs_as_a_train_job_with_its_own_runtime(tmp_path: Path) -> None:
    script(tmp_path, SHOW % (PLAIN,), "project/train.py")
    code, out, err = run_to_end(tmp_path, "run", "--api", "trainjob", "--workers", "2", "project/train.py", "--fast")
    assert code == 0, err
    assert "node-0 | done" in out and "node-1 | done" in out
    for rank, rank_facts in enumerate(facts(tmp_path / "project", 2)):
        assert rank_facts["args"] == ["--fast"]
        assert rank_facts["cwd"] == str(tmp_path / "project")
        assert (rank_facts["RANK"], rank_facts["WORLD_SIZE"]) == (str(rank), "2")


def test_the_workers_reach_each_other_at_the_masters_address(tmp_path: Path) -> None:
    script(
        tmp_path,
        """
import os, socket, time
where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if os.environ["RANK"] == "0":
    with socket.create_server(("", where[1])) as server:
        print("got", server.accept()[0].recv(9).decode())
else:
    while True:
        try:
            socket.create_connection(where).sendall(b"hello")
            break
        except OSError:
            time.sleep(0.05)
""",
    )
    code, out, err = run_to_end(tmp_path, "run", "--workers", "2", "train.py")
    assert code == 0, err
    assert "worker-0 | got hello" in out


@pytest.mark.parametrize("failing", ["0", "1"])
def test_the_failure_of_any_worker_is_the_jobs_and_ends_the_others(failing: str, tmp_path: Path) -> None:
    text = f"import os, time\nif os.environ['RANK'] == '{failing}': raise SystemExit(3)\ntime.sleep(600)\n"
    script(tmp_path, text)
    code, _, err = run_to_end(tmp_path, "run", "--workers", "2", "train.py")
    assert code == 1, err
    assert f"worker-{failing} ended with exit code 3" in " ".join(err.split())


def test_a_saved_manifest_runs_unchanged_from_another_folder(tmp_path: Path) -> None:
    script(tmp_path, SHOW % (PLAIN,), "project/train.py")
    (tmp_path / "kept").mkdir()
    code, _, err = run_to_end(tmp_path, "run", "--dry-run", "--save", "kept/job.yaml", "project/train.py", "1")
    assert code == 0, err
    assert not (tmp_path / "project" / "facts-0.json").exists()
    code, _, err = run_to_end(tmp_path / "kept", "run", "job.yaml")
    assert code == 0, err
    assert [fact["cwd"] for fact in facts(tmp_path / "project", 1)] == [str(tmp_path / "project")]


LED = """
import json, os, time
print(json.dumps({name: os.environ.get(name) for name in %r}), flush=True)
if os.environ.get("RANK", "0") != "0" or '"type":"worker"' in os.environ.get("TF_CONFIG", ""):
    time.sleep(1)  # longer than the leader
    open("shard", "w").write("1")
"""
JAX = {"JAX_COORDINATOR_ADDRESS": "train-worker-0:6666", "JAX_NUM_PROCESSES": "2", "COORDINATOR_PORT": "6666"}
RANKS = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "train-master-0", "MASTER_PORT": "9999"}
CLUSTER = {"chief": ["train-chief-0.default.svc:2222"], "worker": ["train-worker-0.default.svc:2222"]}


@pytest.mark.parametrize(
    ("framework", "leader", "variables"),
    [("jax", "worker-0", JAX), ("xgboost", "master-0", RANKS), ("tensorflow", "chief-0", {"TF_CONFIG": CLUSTER})],
)
def test_a_saved_job_of_a_framework_ends_as_the_script_did(
    framework: str, leader: str, variables: dict[str, object], tmp_path: Path
) -> None:
    script(tmp_path, LED % (tuple(variables),))
    words = ("--network", "namespace", "--framework", framework, "--workers", "2", "--save", "job.yaml", "train.py")
    for line in (words, ("--network", "namespace", "job.yaml")):
        code, out, err = run_to_end(tmp_path, "run", *line)
        assert code == 0, err
        (text,) = [
            text for replica, _, text in (row.partition(" | ") for row in out.splitlines()) if replica.strip() == leader
        ]
        if framework != "jax":  # its workers have no rank in this variable
            (tmp_path / "shard").unlink()  # the worker has not been stopped
        values = json.loads(text)
        if framework == "tensorflow":
            values = {"TF_CONFIG": json.loads(values["TF_CONFIG"])["cluster"]}
        assert values == variables


def test_a_tensorflow_script_alone_knows_its_cluster(tmp_path: Path) -> None:
    script(tmp_path, LED % (("TF_CONFIG",),))
    code, out, err = run_to_end(tmp_path, "run", "--framework", "tensorflow", "train.py")
    assert code == 0, err
    assert '\\"chief\\":[\\"train-chief-0:2222\\"]' in out


def test_init_writes_the_manifest_that_run_runs(tmp_path: Path) -> None:
    script(tmp_path, SHOW % (PLAIN,))
    assert run_to_end(tmp_path, "init", "train.py", "--epochs", "3")[0] == 0
    code, _, err = run_to_end(tmp_path, "run", "train.yaml")
    assert code == 0, err
    assert facts(tmp_path, 1)[0]["args"] == ["--epochs", "3"]


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (("-m", "pack.train", "x"), 0, "worker-0 | module ['x']"),
        (("--", "sh", "-c", "echo $0 $1; exit 4", "a", "b"), 1, "worker-0 | a b"),
        (("--mount", "data:/mounted", "--", "cat", "/mounted/file"), 0, "worker-0 | content"),
    ],
)
def test_a_module_a_command_and_a_mounted_folder(
    arguments: tuple[str, ...], code: int, line: str, tmp_path: Path
) -> None:
    script(tmp_path, "import sys\nprint('module', sys.argv[1:])", "pack/train.py")
    script(tmp_path, "content\n", "data/file")
    exit_code, out, err = run_to_end(tmp_path, "run", *arguments)
    assert exit_code == code, err
    assert line in out.splitlines()


@pytest.mark.skipif(shutil.which("mpiexec") is None, reason="no mpiexec here; make frameworks brings it")
def test_mpi_starts_every_process_in_its_place(tmp_path: Path) -> None:
    ranks = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK")
    script(tmp_path, SHOW % (ranks,))
    arguments = ("--framework", "mpi4py", "--workers", "2", "--nproc", "2", "train.py")
    code, _, err = run_to_end(tmp_path, "run", *arguments)
    assert code == 0, err
    script_facts = facts(tmp_path, 4)
    assert [rank_facts["OMPI_COMM_WORLD_LOCAL_RANK"] for rank_facts in script_facts] == ["0", "1", "0", "1"]
    assert {rank_facts["OMPI_COMM_WORLD_SIZE"] for rank_facts in script_facts} == {"4"}
    assert {rank_facts["cwd"] for rank_facts in script_facts} == {str(tmp_path)}


def test_ctrl_c_ends_the_script_and_leaves_no_process(tmp_path: Path) -> None:
    script(tmp_path, "import os, time\nprint('pid', os.getpid(), flush=True)\ntime.sleep(600)\n")
    process = start(tmp_path, "run", "train.py")
    assert process.stdout
    for line in process.stdout:
        if "pid" in line:
            break
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    assert "Traceback" not in err


def test_a_syntax_error_is_reported_before_anything_starts(tmp_path: Path) -> None:
    script(tmp_path, "import os\ndef f(:\n")
    code, out, err = run_to_end(tmp_path, "run", "train.py")
    assert (code, out) == (2, "")
    assert err.startswith("train.py:2: SyntaxError: ") and "network" not in err


def iter_until(lines: Iterable[str], text: str) -> Iterator[str]:
    """The lines up to the first one with this text."""
    for line in lines:
        yield line
        if text in line:
            return


@pytest.mark.parametrize("network", ["namespace", "shared"])
def test_output_that_cannot_be_written_to_the_log_is_named_with_its_last_lines(network: str, tmp_path: Path) -> None:
    """At the first lost byte, while the program runs, and at its end. A file size limit simulates a full disk."""
    lines = ("import os, time", "for n in range(40_000): print('line of output', n)", "print('the last words')")
    script(tmp_path, "\n".join((*lines, "while not os.path.exists('go'): time.sleep(0.05)")))
    limit = ("sh", "-c", 'ulimit -f 500 && exec "$@" >/dev/null', "sh")
    with start(tmp_path, "run", "--network", network, "train.py", prefix=limit) as process:
        watchdog = threading.Timer(PATIENCE, process.kill)
        watchdog.start()
        assert process.stderr
        live = "".join(iter_until(process.stderr, "--logs-dir of run and up"))
        assert "worker-0: its output is being lost: " in " ".join(live.split()), live
        (tmp_path / "go").touch()
        _, err = process.communicate()
        watchdog.cancel()
    error = " ".join(err.split())
    assert process.returncode == 0, err
    assert "worker-0:" in error and "kB of output are lost:" in error and "--logs-dir" in error
    assert "is being lost" not in error
    assert "could not be written: File too large" in error and "the last words" in error


@pytest.mark.parametrize("network", ["namespace", "shared"])
def test_the_shell_chooses_devices_and_a_variable_that_is_not_passed_on_is_named(network: str, tmp_path: Path) -> None:
    lines = (
        'print("sees", os.environ["HIP_VISIBLE_DEVICES"], os.environ.get("HF_HOME"))',
        'print(os.getenv("MY_OWN"))',
    )
    script(tmp_path, "\n".join(("import os", 'os.environ["OTHER"] = "is only set"', *lines)))
    variables = {"HIP_VISIBLE_DEVICES": "1", "HF_HOME": "/data/hf", "MY_OWN": "x", "OTHER": "y"}
    code, out, err = run_to_end(tmp_path, "run", "--network", network, "train.py", variables=variables)
    assert code == 0, err
    assert "worker-0 | sees 1 /data/hf\nworker-0 | None\n" in out
    note = "train.py reads MY_OWN of this shell, but is not given it: write `--env MY_OWN`"
    assert note in " ".join(err.split()) and "OTHER" not in err
    code, out, err = run_to_end(
        tmp_path, "run", "--network", network, "--env", "MY_OWN", "train.py", variables=variables
    )
    assert (code, "worker-0 | x\n" in out, "is not given" in err) == (0, True, False)

"""`trainyard run` as a person uses it: real processes, scripted programs, exit codes, signals, pipes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
import yaml

from tests.cli.run_values import Started, job, private, processes_with, replicas, run_to_end
from trainyard.app.kubeconfig import read_kubeconfig as read_kubeconfig

SERVE = "print('serving', flush=True)\nimport time\ntime.sleep(600)"
pytestmark = pytest.mark.slow  # each is a whole `trainyard run`; together they take half of the fast set's time
STUBBORN = "import signal,time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('stubborn')\ntime.sleep(600)"


def test_a_job_runs_to_the_end_with_all_its_logs_and_a_table(tmp_path: Path) -> None:
    says = "import os,socket\nprint('hello from', socket.gethostname())\nprint('TF_CONFIG' in os.environ)"
    ended = run_to_end(tmp_path, [job(replicas("MASTER", says), replicas("WORKER", says, 2), replicas("PS", SERVE))])
    assert ended.code == 0, ended.err
    assert ended.of("master-0")[1] == "True" and "master-" in ended.of("master-0")[0]
    table = [line.split() for line in ended.lines if line.startswith("story")]
    assert [row[:2] for row in table] == [["story", name] for name in ("master-0", "ps-0", "worker-0", "worker-1")]
    assert table[0][2:5] == ["Succeeded", "0", "0"]
    assert ended.lines[-1].startswith("TfJob default/story: Succeeded after 0:")
    assert "\x1b" not in "".join(ended.lines) + ended.err
    assert not list((tmp_path / "tmp").iterdir())


def test_all_output_of_a_fast_pod_is_printed_even_an_unterminated_last_line(tmp_path: Path) -> None:
    says = "import sys\nfor i in range(5000): print('line', i)\nsys.stdout.write('the end')"
    ended = run_to_end(tmp_path, [job(replicas("MASTER", says, restart="Never"))])
    assert ended.code == 0
    assert ended.of("master-0") == [*(f"line {i}" for i in range(5000)), "the end"]


def test_every_run_of_a_restarted_container_is_printed_once_and_in_order(tmp_path: Path) -> None:
    known = "import os,time\npath = '/shared/runs'\nsize = lambda: os.path.exists(path) and os.path.getsize(path)\n"
    worker = f"{known}n = int(size())\nopen(path, 'a').write('x')\nprint('run', n)\ntime.sleep(600) if n else exit(7)"
    master = f"{known}while size() < 2: time.sleep(.05)\ntime.sleep(.5)"
    restarted_job = job(replicas("MASTER", master), replicas("WORKER", worker))
    for replica in restarted_job["spec"]["replicaSpecs"]:
        spec = replica["template"]["spec"]
        spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
        spec["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/shared"}]
    (tmp_path / "data").mkdir()
    ended = run_to_end(tmp_path, [restarted_job], "--mount", f"data={tmp_path / 'data'}")
    assert ended.code == 0, ended.err
    assert ended.of("worker-0") == ["run 0", "run 1"]
    (row,) = [line.split() for line in ended.lines if line.startswith("story") and "worker-0" in line]
    assert row[3] == "1"


def test_a_failed_job_ends_with_1_and_its_reason(tmp_path: Path) -> None:
    ended = run_to_end(tmp_path, [job(replicas("MASTER", "print('oh')\nexit(3)"), replicas("WORKER", SERVE))])
    assert ended.code == 1
    assert ended.of("master-0") == ["oh"]
    assert ended.lines[-1].startswith("TfJob default/story: Failed after 0:")
    assert ended.err.count("exit code 3") == 1  # told once, in one block
    _, _, block = ended.err.partition("why TfJob default/story failed (PermanentFailure):\n")
    assert [line.strip().partition(":")[0] for line in block.splitlines()] == ["problem", "where", "seen", "do", "logs"]
    assert "problem: master-0 ended with exit code 3" in block and "its last lines, above" in block
    (row,) = [line.split() for line in ended.lines if line.startswith("story") and "master-0" in line]
    assert row[2] == "Failed" and row[4] == "3"


def test_a_block_is_reported_once_and_before_the_end(tmp_path: Path) -> None:
    code = "import time\ntime.sleep(600)"
    container = {"name": "elasticjob-worker", "image": "x", "command": [sys.executable, "-c", code]}
    worker = {"replicas": 2, "restartPolicy": "ExitCode", "template": {"spec": {"containers": [container]}}}
    spec = {"rdzvEndpoint": "etcd:2379", "minReplicas": 2, "maxReplicas": 2, "replicaSpecs": {"Worker": worker}}
    elastic_job = {
        "apiVersion": "elastic.pytorch.org/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": "e"},
        "spec": spec,
    }
    started = Started(tmp_path, [elastic_job], "--timeout", "25")
    started.read_until("problem: there is no Service etcd", "stderr")
    ended = started.end()
    assert ended.code == 124 and "there is no Service etcd" not in ended.err


def test_workers_that_cannot_meet_end_with_1_and_the_address(tmp_path: Path) -> None:
    code = "class RendezvousConnectionError(Exception): pass\nraise RendezvousConnectionError('no answer')"
    container = {"name": "elasticjob-worker", "image": "x", "command": [sys.executable, "-c", code]}
    worker = {"replicas": 1, "restartPolicy": "ExitCode", "template": {"spec": {"containers": [container]}}}
    spec = {"rdzvEndpoint": "127.0.0.1:1", "replicaSpecs": {"Worker": worker}}
    elastic_job = {
        "apiVersion": "elastic.pytorch.org/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": "e"},
        "spec": spec,
    }
    ended = run_to_end(tmp_path, [elastic_job])
    assert ended.code == 1
    assert "the rendezvous at 127.0.0.1:1 cannot be reached" in ended.err


def test_of_several_jobs_the_worst_counts_and_the_prefix_names_the_job(tmp_path: Path) -> None:
    good = job(replicas("MASTER", "print('fine')"), name="good")
    bad = job(replicas("MASTER", "print('broken')\nexit(1)"), name="bad")
    ended = run_to_end(tmp_path, [good, bad])
    assert ended.code == 1
    assert ended.of("good/master-0") == ["fine"] and ended.of("bad/master-0") == ["broken"]


def test_other_objects_may_be_in_the_same_file(tmp_path: Path) -> None:
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "s"}, "data": {"rate": "0.5"}}
    master_job = job(replicas("MASTER", "import os\nprint(os.environ['rate'])"))
    master_job["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]["envFrom"] = [
        {"configMapRef": {"name": "s"}}
    ]
    assert run_to_end(tmp_path, [master_job, settings]).of("master-0") == ["0.5"]


def test_an_invalid_manifest_ends_with_2_and_starts_nothing(tmp_path: Path) -> None:
    two_masters = job(replicas("MASTER", "print(1)"), replicas("MASTER", "print(2)"))
    ended = run_to_end(tmp_path, [two_masters])
    assert ended.code == 2 and ended.lines == []
    assert "job.yaml:6: spec.replicaSpecs" in ended.err and "MASTER" in ended.err and "Traceback" not in ended.err
    assert not (tmp_path / "cache").exists() and not list((tmp_path / "tmp").iterdir())


def test_an_unknown_image_ends_with_3_and_the_fix(tmp_path: Path) -> None:
    master_job = job(replicas("MASTER", ""))
    del master_job["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]["command"]
    ended = run_to_end(tmp_path, [master_job])
    assert ended.code == 3
    assert "cannot run here" in ended.err and "--images" in ended.err


def test_a_cache_that_cannot_be_written_ends_with_3_and_is_named(tmp_path: Path) -> None:
    catalogue = tmp_path / "images.yaml"
    catalogue.write_text("images:\n- match: example.invalid/*\n  ways: [{requirements: [nothing==1.0]}]\n")
    arguments = ("--images", str(catalogue), "--cache", "/proc/none")
    ended = run_to_end(tmp_path, [job(replicas("MASTER", "print(1)"))], *arguments)
    assert ended.code == 3
    assert "cannot run here" in ended.err and "/proc/none" in ended.err and "Traceback" not in ended.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--images", "missing.yaml"), "missing.yaml"),
        (("--mount", "data"), "CLAIM=DIR"),
        (("--mount", "data=/nonexistent"), "/nonexistent"),
        (("--controller-config-file", "missing.yaml"), "missing.yaml"),
        (("--namespace", "No"), "--namespace"),
    ],
)
def test_an_invalid_command_line_ends_with_2_and_names_the_problem(
    tmp_path: Path, arguments: tuple[str, str], message: str
) -> None:
    ended = run_to_end(tmp_path, [job(replicas("MASTER", "print(1)"))], *arguments)
    assert ended.code == 2 and message in ended.err and "Traceback" not in ended.err
    assert ended.lines == []


def test_the_time_of_timeout_ends_with_124(tmp_path: Path) -> None:
    ended = run_to_end(tmp_path, [job(replicas("MASTER", SERVE))], "--timeout", "2")
    assert ended.code == 124
    assert "--timeout 2" in ended.err and ended.of("master-0") == ["serving"]
    row = next(line.split() for line in ended.out.splitlines() if line.split()[1:2] == ["master-0"])
    assert row[2] == "Stopped", f"the table is drawn after its pod has ended: {row}"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_pods_within_their_grace_period_and_prints_their_last_lines(tmp_path: Path, number: int) -> None:
    says = "import signal,sys,time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(print('good night')))\n"
    started = Started(tmp_path, [job(replicas("MASTER", f"{says}print('up')\ntime.sleep(600)"))])
    started.read_until("up")
    started.interrupt(number)
    ended = started.end()
    assert ended.code == 130, ended.err
    assert ended.of("master-0") == ["up", "good night"]
    assert not list((tmp_path / "tmp").iterdir())


def test_an_interrupt_during_the_start_leaves_nothing(tmp_path: Path) -> None:
    started = Started(tmp_path, [job(replicas("MASTER", SERVE))])
    started.read_until("network:", "stderr")
    started.interrupt()
    ended = started.end()
    assert ended.code == 130 and "Traceback" not in ended.err
    assert not list((tmp_path / "tmp").iterdir())


def test_a_second_signal_kills_pods_that_do_not_end(tmp_path: Path) -> None:
    mark = f"mark-{os.getpid()}-{time.time_ns()}"
    started = Started(tmp_path, [job(replicas("MASTER", f"{STUBBORN}#{mark}"))])
    started.read_until("stubborn")
    began = time.monotonic()
    started.interrupt()
    with pytest.raises(subprocess.TimeoutExpired):
        started.process.wait(2)  # it has 20 seconds of grace
    assert "master-0 has not reacted to SIGTERM; SIGKILL in 1" in started.read_until("SIGTERM", "stderr")
    started.interrupt()
    assert started.end().code == 130
    assert time.monotonic() - began < 18
    assert not processes_with(mark)


def test_the_final_table_has_the_end_of_replicas_that_do_not_react(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    stubborn = STUBBORN.replace("print", f'open({str(ready)!r}, "w")\nprint')
    master = f"import os,time\nwhile not os.path.exists({str(ready)!r}): time.sleep(.05)"
    worker = replicas("WORKER", stubborn, terminationGracePeriodSeconds=2)
    ended = run_to_end(tmp_path, [job(replicas("MASTER", master), worker, cleanPodPolicy="Running")])
    assert ended.code == 0 and "Terminating" not in ended.out
    assert re.search(r"story +worker-0 +Stopped +.*137", ended.out), ended.out


def test_a_closed_output_pipe_ends_the_run(tmp_path: Path) -> None:
    mark = f"mark-{os.getpid()}-{time.time_ns()}"
    noisy = f"import time\nwhile True: print('x' * 100); time.sleep(.01)  #{mark}"
    started = Started(tmp_path, [job(replicas("MASTER", noisy))])
    started.read_until("xxx")
    assert started.process.stdout
    started.process.stdout.close()
    started.process.stdout = None
    assert started.process.wait(30) == 141
    assert started.process.stderr and "Traceback" not in started.process.stderr.read()
    assert not processes_with(mark)


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_the_result_has_stdout_for_itself(tmp_path: Path, form: str) -> None:
    ended = run_to_end(tmp_path, [job(replicas("MASTER", "print('hello')"))], "-o", form)
    assert ended.code == 0
    (document,) = json.loads(ended.out) if form == "json" else yaml.safe_load(ended.out)
    assert (document["kind"], document["metadata"]["name"], document["status"]["state"]) == (
        "TfJob",
        "story",
        "Succeeded",
    )
    assert "master-0 | hello" in ended.err and "Succeeded after" in ended.err


def test_a_kept_cluster_is_reachable_until_ctrl_c_and_the_code_is_the_jobs(tmp_path: Path) -> None:
    started = Started(tmp_path, [job(replicas("MASTER", "exit(4)"))], "--keep")
    path = Path(started.read_until("KUBECONFIG=", "stderr").strip().partition("=")[2])
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
    access = read_kubeconfig([path])
    assert access.server.startswith("https://127.0.0.1:")
    url = f"{access.server}/apis/tensorflow.org/v1alpha1/namespaces/default/tfjobs/story"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {access.token}"})  # noqa: S310  (looked at above)
    with urllib.request.urlopen(request, context=access.secure()) as answer:  # noqa: S310  (the same)
        assert json.load(answer)["status"]["state"] == "Failed"
    started.interrupt()
    ended = started.end()
    assert ended.code == 1
    assert not path.exists()


def test_stdin_is_not_touched(tmp_path: Path) -> None:
    started = Started(tmp_path, [job(replicas("MASTER", "import sys\nprint(repr(sys.stdin.read()))"))])
    assert started.end().of("master-0") == ["''"]


# Runs where the kernel refuses one more network namespace, so that `--network auto` comes to *shared*.
WITHOUT_NAMESPACES = """
import os, sys
from trainyard.node.supervisor import syscalls
syscalls.enter_user_namespace(0, os.getuid(), os.getgid())
syscalls.write("/proc/sys/user/max_net_namespaces", "0")
os.execv(sys.executable, [sys.executable, "-m", "trainyard", *sys.argv[1:]])
"""


def test_a_job_that_needs_networks_is_refused_before_it_is_created_where_auto_finds_none(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "mpi_job_v2beta1.yaml"
    command = [sys.executable, "-c", WITHOUT_NAMESPACES, "run", str(example), "--network", "auto"]
    done = subprocess.run(command, env=private(tmp_path), capture_output=True, text=True, check=False, timeout=60)
    text = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 2 and "use --network namespace, or MPIJob of kubeflow.org/v1" in text, text
    assert "Pending" not in text and not list(tmp_path.glob("state/**/*mpi-train*")), text

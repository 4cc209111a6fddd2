from __future__ import annotations

import pytest

from trainyard.cli.diagnosis.exits import exit_cause
from trainyard.cli.diagnosis.output import output_cause
from trainyard.core.diagnosis import ContainerContext
from trainyard.kinds import CHAINERJOB, ELASTICJOB, TFJOB

KINDS = (ELASTICJOB, CHAINERJOB)
ANY_KIND = ContainerContext(
    output_patterns=tuple(pattern for kind in KINDS for pattern in kind.diagnosis.output_patterns)
)


@pytest.mark.parametrize(
    ("line", "summary", "fix"),
    [
        ("etcd.EtcdConnectionFailed: Connection to etcd failed due to MaxRetryError", "etcd", "start etcd"),
        ("torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError", "did not fill", "minimum"),
        ("RendezvousConnectionError: The connection to the C10d store has failed.", "rendezvous", "answers"),
        ("socket.gaierror: [Errno -2] Name or service not known", "host name", "a Service must exist"),
        ("curl: (6) Could not resolve host: etcd", "host name", "check the name"),
        ("ConnectionRefusedError: [Errno 111] Connection refused", "connection refused", "runs and listens"),
        ("UNAVAILABLE: failed to connect to all addresses", "does not answer", "listens"),
        (
            "ModuleNotFoundError: No module named 'tensorflow.contrib'",
            "module tensorflow.contrib",
            "tensorflow.contrib",
        ),
        ("/usr/bin/python3: No module named trainer", "module trainer", "install trainer"),
        ("ImportError: No module named mxnet", "module mxnet", "install mxnet"),
        ("python: can't open file '/work/a.py': [Errno 2] No such file or directory", "file /work/a.py", "command"),
        ("bash: ./train.sh: No such file or directory", "file ./train.sh", "workingDir"),
        ("RuntimeError: CUDA out of memory. Tried to allocate 2 GiB", "too little memory", "batch size"),
        ("MemoryError", "out of memory", "limit"),
        ("OSError: [Errno 28] No space left on device", "disk is full", "larger volume"),
        ("PermissionError: [Errno 13] Permission denied: '/data'", "/data (permission denied)", "ls -l"),
        ("OSError: [Errno 98] Address already in use", "port is taken", "another port"),
        ("ORTE was unable to reliably start one or more daemons.", "MPI", "pods/exec"),
        ("etcd.EtcdException: Could not get the list of servers, maybe you provided the wrong host(s)", "etcd", "port"),
    ],
)
def test_a_line_of_output_is_matched_to_its_cause(line: str, summary: str, fix: str) -> None:
    cause = output_cause(["step 1", line, "more words"], ANY_KIND)
    assert cause is not None and summary in cause[0] and fix in cause[1]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "step 5 loss 0.1",
        "done",
        "accuracy 0.98 after 1500 steps",
        "Killed",
        "exported the model",
        "the importer has aborted epochs: 0",
        "OMPI_MCA_orte_keep_fqdn_hostnames=t",
    ],
)
def test_other_lines_match_nothing(line: str) -> None:
    assert output_cause([line], ANY_KIND) is None


@pytest.mark.parametrize(
    ("line", "summary"),
    [
        ("sh: 1: mpiexec: Permission denied", "may not be executed"),
        ('exec: "mpiexec": permission denied', "mpiexec may not be executed"),
        ("mpiexec was unable to launch the specified application", "on the workers"),
        ("Permission denied (publickey).", "on the workers"),
    ],
)
def test_a_shell_without_mpiexec_is_not_blamed_on_the_workers(line: str, summary: str) -> None:
    cause = output_cause([line], ContainerContext(output_patterns=CHAINERJOB.diagnosis.output_patterns))
    assert cause is not None and summary in cause.explanation


def test_patterns_of_one_kind_do_not_match_output_of_another() -> None:
    line = "etcd.EtcdConnectionFailed: Connection to etcd failed"
    assert output_cause([line], ContainerContext(output_patterns=TFJOB.diagnosis.output_patterns)) is None


def test_the_last_telling_line_counts() -> None:
    cause = output_cause(["Connection refused", "ModuleNotFoundError: No module named 'a'", "bye"])
    assert cause is not None and "module a" in cause[0]


@pytest.mark.parametrize(
    ("code", "reason", "meaning"),
    [
        (1, "Error", "the program's own"),
        (126, "Error", "cannot be executed"),
        (127, "ContainerCannotRun", "not found"),
        (137, "OOMKilled", "out of memory"),
        (137, "Error", "SIGKILL"),
        (135, "Error", "/dev/shm"),
        (139, "Error", "SIGSEGV"),
        (129, "Error", "SIGHUP"),
        (250, "Error", ""),
        (3, "Error", ""),
    ],
)
def test_an_exit_code_has_a_meaning(code: int, reason: str, meaning: str) -> None:
    cause = exit_cause(code, reason)
    assert meaning in " ".join(cause) if meaning else not any(cause)


def test_a_missing_file_below_a_mount_path_names_the_volume_and_on_a_process_node_the_network() -> None:
    line = "FileNotFoundError: [Errno 2] No such file or directory: '/data/train/x.npz'"
    for on_process_node in (True, False):
        context = ContainerContext(on_process_node=on_process_node, mount_paths=("/data", "/other"))
        cause = output_cause([line], context)
        assert cause is not None and "see that the volume that is mounted at /data holds the file" in cause.fix
        assert ("use --network namespace" in cause.fix) is on_process_node
    cause = output_cause([line], ContainerContext(on_process_node=True, mount_paths=("/dat",)))
    assert cause is not None and "mounted" not in cause.fix


def test_a_port_without_holder_is_explained_by_the_replicas_network() -> None:
    cause = output_cause(["OSError: [Errno 98] Address already in use"], ContainerContext(on_process_node=True))
    assert cause is not None and "in network shared all replicas use the ports of this machine" in cause.fix

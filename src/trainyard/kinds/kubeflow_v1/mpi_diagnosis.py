"""What the output of an MPIJob's launcher tells about its end, for `trainyard why`: lines of ssh and exec, and those of
MPI (kinds/mpi_output.py)."""

from __future__ import annotations

from trainyard.core.diagnosis import OutputPattern, SessionLog
from trainyard.core.kind import Diagnosis
from trainyard.kinds.kubeflow_v1.mpi_ssh import launcher_is_worker
from trainyard.kinds.mpi_output import DOUBTS, NOT_STARTED, NOT_STARTED_TEXT, PATTERNS, WORKER_ENDED

SESSIONS = SessionLog(
    ready=r"Server listening on ",
    opened=r"Accepted \w+ for ",
    unused="the sshd of no worker has accepted a session",
    fix="set mpiImplementation to the MPI of the launcher's image (`mpiexec --version`): by that it finds the workers",
)
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
        *PATTERNS,
        OutputPattern(
            NOT_STARTED,
            NOT_STARTED_TEXT,
            "see that every worker runs and has orted (4.x) or prted (5.x) on PATH, and that the Role of the launcher "
            "grants pods/exec",
            anywhere=True,
        ),
    ),
    doubts=DOUBTS,
)
SSH = Diagnosis(
    output_patterns=(
        OutputPattern(
            r"ssh: connect to host (\S+) port \d+: Connection refused",
            "no sshd answers in the worker {name}",
            "leave out the worker's command, which is /usr/sbin/sshd -De then; without root it needs -f and settings "
            "of that user (docs/container-images.md); its log tells why sshd ended",
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
        *PATTERNS,
        OutputPattern(
            r"Connection to (\S+) closed by remote host",
            "the connection to the worker {name} was lost",
            WORKER_ENDED,
            anywhere=True,
        ),
        OutputPattern(
            NOT_STARTED,
            NOT_STARTED_TEXT,
            "see that every worker runs sshd, and that a session of ssh finds orted (4.x) or prted (5.x) on its PATH",
            anywhere=True,
        ),
    ),
    doubts=DOUBTS,
    session_log=lambda job: None if launcher_is_worker(job) else SESSIONS,  # it may have room for all processes
)

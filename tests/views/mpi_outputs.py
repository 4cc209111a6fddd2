"""What mpirun of Open MPI 5.0.11, MPICH 5.0.2 and Intel MPI 2021.18.1 printed at its end, shortened.

Name -> output, exit code of the launcher, words of the cause and of the fix."""

from __future__ import annotations

RECORDED: dict[str, tuple[str, int, str, str]] = {
    "Open MPI 5, a rank is killed": (
        """RANK 0/2 pod vm sum 3 3 | Open MPI v5.0.11, package: Open
RANK 1/2 pod vm sum 3 3 | Open MPI v5.0.11, package: Open
--------------------------------------------------------------------------
prterun noticed that process rank 1 with PID 9866 on node vm exited on
signal 9 (Killed).
--------------------------------------------------------------------------
""",
        137,
        "process rank 1 with PID 9866 on node vm exited on signal 9 (Killed)",
        "memory limit",
    ),
    "Open MPI 5, root": (
        """prterun has detected an attempt to run as root.

Running as root is *strongly* discouraged as any mistake (e.g., in
defining TMPDIR) or bug can result in catastrophic damage to the OS
file system, leaving your system in an unusable state.

We strongly suggest that you run prterun as a non-root user.

You can override this protection by adding the --allow-run-as-root
option to your command line.  However, we reiterate our strong advice
against doing so - please do so at your own risk.
--------------------------------------------------------------------------
""",
        1,
        "does not run as root",
        "--allow-run-as-root",
    ),
    "Open MPI 5, slots": (
        """--------------------------------------------------------------------------
There are not enough slots available in the system to satisfy the 9
slots that were requested by the application:

  true

Either request fewer procs for your application, or make more slots
available for use.

--------------------------------------------------------------------------
\0
""",
        1,
        "start 9 processes, and the hosts that it knows have fewer slots",
        "has not read the job's hostfile",
    ),
    "Open MPI 5, cores": (
        """--------------------------------------------------------------------------
A request was made to bind that would require binding
processes to more cpus than are available in your allocation:

   Application:     true
   #processes:      9
   Mapping policy:  BYCORE
   Binding policy:  CORE

You can override this protection by adding the "overload-allowed"
option to your binding directive.
--------------------------------------------------------------------------
\0
""",
        213,
        "and there are fewer cores",
        "--bind-to none",
    ),
    "Open MPI 5, the agent fails": (
        """------------------------------------------------------------
A daemon failed to report back after being spawned. This could
be due to several factors, including inability to find the
daemon executable, or the executable was unable to find its
required supporting libraries. In some cases, the daemon was
able to execute, but was unable to complete a TCP connection
back to prterun:

  Local host:    vm
  Remote host:   alpha
  Daemon exit status: 1

This may also be caused by a firewall on the remote host. Please
check that any firewall (e.g., iptables) has been disabled and
try again.
------------------------------------------------------------
""",
        1,
        "MPI could not start its processes on the workers",
        "prted (5.x)",
    ),
    "Open MPI 5, no prted in the worker": (
        """sh: 1: /nowhere/prted: not found
------------------------------------------------------------
A daemon failed to report back after being spawned. This could
be due to several factors, including inability to find the
daemon executable, or the executable was unable to find its
required supporting libraries. In some cases, the daemon was
able to execute, but was unable to complete a TCP connection
back to prterun:

  Local host:    vm
  Remote host:   alpha
  Daemon exit status: 127

This may also be caused by a firewall on the remote host. Please
check that any firewall (e.g., iptables) has been disabled and
try again.
------------------------------------------------------------
""",
        127,
        "there is no prted in the worker alpha",
        "the same image",
    ),
    "Open MPI 5, a worker is lost": (
        """[vm:13324] plm:ssh: Warning: setpgid(13330,13330) failed in parent with errno=Permission denied(13)
rank 1
rank 0
--------------------------------------------------------------------------
PRTE has lost communication with a remote daemon.

  HNP daemon   : [prterun-vm-13324@0,0] on node vm
  Remote daemon: [prterun-vm-13324@0,2] on node vm

This is usually due to either a failure of the TCP network
connection to the node, or possibly an internal failure of
the daemon itself. We cannot recover from this failure, and
therefore will terminate the job.
--------------------------------------------------------------------------
\0
""",
        255,
        "MPI lost the worker vm while it ran",
        "see why that worker ended",
    ),
    "MPICH, a rank is killed": (
        """RANK 0/2 pod vm sum 3 3 | MPICH Version: 5.0.2 MPICH Relea
RANK 1/2 pod vm sum 3 3 | MPICH Version: 5.0.2 MPICH Relea

===================================================================================
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 10237 RUNNING AT vm
=   EXIT CODE: 9
=   CLEANING UP REMAINING PROCESSES
=   YOU CAN IGNORE THE BELOW CLEANUP MESSAGES
===================================================================================
YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)
This typically refers to a problem with your application.
Please see the FAQ page for debugging suggestions
""",
        9,
        "a signal ended process 10237 RUNNING AT vm",
        "memory limit",
    ),
    "MPICH, a worker is lost": (
        """rank 0
rank 1
Killed
[mpiexec@vm] control_cb (mpiexec/pmiserv_cb.c:280): assert (!closed) failed
[mpiexec@vm] HYDT_dmxu_poll_wait_for_event (lib/tools/demux/demux_poll.c:76): callback returned error status
[mpiexec@vm] HYD_pmci_wait_for_completion (mpiexec/pmiserv_pmci.c:180): error waiting for event
[mpiexec@vm] main (mpiexec/mpiexec.c:270): process manager error waiting for completion
""",
        255,
        "MPICH lost a worker",
        "see why that worker ended",
    ),
    "MPICH, the agent fails": (
        """[mpiexec@vm] ui_cmd_cb (mpiexec/pmiserv_pmci.c:51): Launch proxy failed.
[mpiexec@vm] HYDT_dmxu_poll_wait_for_event (lib/tools/demux/demux_poll.c:76): callback returned error status
[mpiexec@vm] HYD_pmci_wait_for_completion (mpiexec/pmiserv_pmci.c:180): error waiting for event
[mpiexec@vm] main (mpiexec/mpiexec.c:270): process manager error waiting for completion
""",
        255,
        "MPI could not start its processes on the workers",
        "every worker runs",
    ),
    "Intel MPI, a rank is killed": (
        """RANK 1/2 pod vm sum 3 3 | Intel(R) MPI Library 2021.18.1 f
RANK 0/2 pod vm sum 3 3 | Intel(R) MPI Library 2021.18.1 f

===================================================================================
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   RANK 0 PID 10340 RUNNING AT vm
=   KILLED BY SIGNAL: 9 (Killed)
===================================================================================
""",
        137,
        "rank 0 PID 10340 RUNNING AT vm was ended by signal 9 (Killed)",
        "memory limit",
    ),
    "Intel MPI, the agent fails": (
        """[mpiexec@vm] Error: Unable to run bstrap_proxy on alpha (pid 10815, exit code 256)
[mpiexec@vm] poll_for_event (libhydra/demux/hydra_demux_poll.c:157): check exit codes error
[mpiexec@vm] HYD_dmx_poll_wait_for_proxy_event (libhydra/demux/hydra_demux_poll.c:206): poll for event error
[mpiexec@vm] HYD_bstrap_setup (libhydra/bstrap/src/intel/i_hydra_bstrap.c:1063): error waiting for event
[mpiexec@vm] Error setting up the bootstrap proxies
[mpiexec@vm] Possible reasons:
[mpiexec@vm] 1. Host is unavailable. Please check that all hosts are available.
[mpiexec@vm] 2. Cannot launch hydra_bstrap_proxy or it crashed on one of the hosts.
""",
        255,
        "Intel MPI could not start its processes in alpha",
        "this worker runs",
    ),
    "Intel MPI, slots= in the hostfile": (
        """[mpiexec@vm] HYD_hostfile_process_tokens (hydra_hostfile.c:39): token slots not supported at this time
[mpiexec@vm] HYD_hostfile_unique_parse (hydra_hostfile.c:211): unable to process token
[mpiexec@vm] match_arg (libhydra/arg/hydra_arg.c:75): match handler returned error
[mpiexec@vm] HYD_arg_parse_array (libhydra/arg/hydra_arg.c:106): argument matching returned error
[mpiexec@vm] mpiexec_get_parameters (mpiexec/mpiexec_params.c:1211): error parsing input array
[mpiexec@vm] main (mpiexec/mpiexec.c:1745): error parsing parameters
""",
        255,
        "do not read a hostfile with `slots=`",
        "leave out --hostfile",
    ),
    "mpirun of Open MPI, library of MPICH": (
        """Abort(739919120): Fatal error in internal_Init_thread: Internal MPI error!, error stack:
internal_Init_thread(71)........: MPI_Init_thread(argc=(nil), argv=(nil), required=3, provided=0x7ffc236b1920) faile
MPII_Init_thread(232)...........:
MPIR_pmi_init(225)..............:
check_MPIR_CVAR_PMI_VERSION(167):  Runtime environment uses unsupported PMI version PMIx. Aborting.
--------------------------------------------------------------------------
prterun detected that one or more processes exited with non-zero status,
thus causing the job to be terminated. The first process to do so was:

   Process name: [prterun-vm-12424@1,0]
   Exit code:    16
--------------------------------------------------------------------------
""",
        16,
        "mpirun is Open MPI's, and the program was built with MPICH",
        "of one MPI",
    ),
}

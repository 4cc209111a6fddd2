"""The ChainerJob of a script that is started by mpiexec."""

from __future__ import annotations

from trainyard.core.scripts import JobOptions, ProgramCommand, ScriptFramework
from trainyard.kinds.script_templates import job_object, pod_template
from trainyard.objects import Json

_WORKER_SET = "worker"
_WORKER_SET_SHELL = "trap exit TERM; while true; do sleep 60 & wait $!; done"


def _mpi_job(program: ProgramCommand, options: JobOptions) -> Json:
    processes = options.workers * options.processes
    # Open MPI refuses to run as root, the user of most images, unless both variables allow it. The other two allow
    # more processes than cores, to Open MPI 4 and 5.
    env = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
        # Without it an exception in one process ends nothing: that process waits for the others at its exit.
        "CHAINERMN_FORCE_ABORT_ON_EXCEPTION": "1",
    }
    starts_mpi = processes > 1 and not program.has_launcher
    command = ("mpiexec", "-n", str(processes), *program.command) if starts_mpi else program.command
    master_env = env if starts_mpi or program.has_launcher else None
    master_template = pod_template(options, "chainer", command, env=master_env, restart="Never")
    spec: Json = {"backend": "mpi", "backoffLimit": 0}
    spec["master"] = {"mpiConfig": {"slots": options.processes}, "template": master_template}
    if options.workers > 1:
        worker_template = pod_template(options, "chainer", ("sh", "-c", _WORKER_SET_SHELL), env=env)
        spec["workerSets"] = {
            _WORKER_SET: {
                "replicas": options.workers - 1,
                "mpiConfig": {"slots": options.processes},
                "template": worker_template,
            }
        }
    return job_object("kubeflow.org/v1alpha1", "ChainerJob", options, spec)


SCRIPTS = (ScriptFramework("chainer", _mpi_job, ("chainer", "chainermn"), 1, starts_processes=True),)

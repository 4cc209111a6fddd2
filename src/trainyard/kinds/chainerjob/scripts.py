"""The ChainerJob of a script that is started by mpiexec."""

from __future__ import annotations

from trainyard.core.scripts import JobOptions, ProgramCommand, ScriptFramework
from trainyard.kinds.chainerjob import mpi
from trainyard.kinds.mpi_variables import MPI_ENV, ONE_POD_ENV, WAIT_FOR_COMMANDS
from trainyard.kinds.script_templates import job_object, pod_template
from trainyard.objects import Json

_WORKER_SET = "worker"


def _mpi_job(program: ProgramCommand, options: JobOptions) -> Json:
    processes = options.workers * options.processes
    env = MPI_ENV | mpi.ABORT_ON_EXCEPTION
    if options.workers == 1:
        env = env | ONE_POD_ENV
    starts_mpi = processes > 1 and not program.has_launcher
    command = ("mpiexec", "-n", str(processes), *program.command) if starts_mpi else program.command
    master_env = env if starts_mpi or program.has_launcher else None
    master_template = pod_template(options, "chainer", command, env=master_env, restart="Never")
    spec: Json = {"backend": "mpi", "backoffLimit": 0}
    spec["master"] = {"mpiConfig": {"slots": options.processes}, "template": master_template}
    if options.workers > 1:
        worker_template = pod_template(options, "chainer", ("sh", "-c", WAIT_FOR_COMMANDS), env=env)
        spec["workerSets"] = {
            _WORKER_SET: {
                "replicas": options.workers - 1,
                "mpiConfig": {"slots": options.processes},
                "template": worker_template,
            }
        }
    return job_object("kubeflow.org/v1alpha1", "ChainerJob", options, spec)


SCRIPTS = (ScriptFramework("chainer", _mpi_job, ("chainer", "chainermn"), 1, starts_processes=True),)

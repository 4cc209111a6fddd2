"""The ElasticJob of a program without a framework: workers without a rendezvous, of which all have to succeed."""

from __future__ import annotations

from trainyard.core.scripts import JobOptions, ProgramCommand, ScriptFramework
from trainyard.kinds.script_templates import job_object, pod_template
from trainyard.objects import Json

MASTER_PORT = 29500
"""The default of torch.distributed."""


def _plain_job(program: ProgramCommand, options: JobOptions) -> Json:
    # The worker's index is a pod label that the operator sets.
    index = {"valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['replica-index']"}}}
    env = {
        "RANK": index,
        "NODE_RANK": index,  # Lightning reads it in place of RANK
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(options.workers),
        "MASTER_ADDR": f"{options.name}-worker-0",
        "MASTER_PORT": str(MASTER_PORT),
    }
    template = pod_template(options, "elasticjob-worker", program.command, env=env)
    worker = {"replicas": options.workers, "restartPolicy": "Never", "template": template}
    spec = {"cleanPodPolicy": "Running", "rdzvBackend": "none", "replicaSpecs": {"Worker": worker}}
    return job_object("elastic.pytorch.org/v1alpha1", "ElasticJob", options, spec)


SCRIPTS = (ScriptFramework("plain", _plain_job, (), 8),)

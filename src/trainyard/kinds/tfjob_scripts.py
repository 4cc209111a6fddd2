"""The TfJob of a TensorFlow script."""

from __future__ import annotations

from trainyard.core.scripts import JobOptions, ProgramCommand, ScriptFramework
from trainyard.kinds.script_templates import job_object, pod_template
from trainyard.objects import Json


def _tensorflow_job(program: ProgramCommand, options: JobOptions) -> Json:
    template = pod_template(options, "tensorflow", program.command, restart="Never")
    items = [{"tfReplicaType": "MASTER", "replicas": 1, "template": template}]
    if options.workers > 1:
        items.append({"tfReplicaType": "WORKER", "replicas": options.workers - 1, "template": template})
    spec: Json = {"masterTaskType": "chief", "backoffLimit": 0}
    if options.servers:  # they and the workers of a ParameterServerStrategy never exit by themselves
        items.append({"tfReplicaType": "PS", "replicas": options.servers})
        spec |= {"cleanPodPolicy": "Running", "tfImage": options.image}
    return job_object("tensorflow.org/v1alpha1", "TfJob", options, {**spec, "replicaSpecs": items})


SCRIPTS = (ScriptFramework("tensorflow", _tensorflow_job, ("tensorflow", "keras", "tf_keras"), 6, has_servers=True),)

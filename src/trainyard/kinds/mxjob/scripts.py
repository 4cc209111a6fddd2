"""The MxJob of an MXNet script."""

from __future__ import annotations

from trainyard.core.scripts import JobOptions, ProgramCommand, ScriptFramework, SourcePattern
from trainyard.kinds.script_templates import job_object, pod_template
from trainyard.objects import Json


def _mxnet_job(program: ProgramCommand, options: JobOptions) -> Json:
    template = pod_template(options, "mxnet", program.command, restart="Never")
    other_template = pod_template(options, "mxnet", program.command, restart="Never", computes=False)

    def replicas(kind: str, count: int) -> Json:
        return {"mxReplicaType": kind, "replicas": count, "template": template if kind == "WORKER" else other_template}

    if options.workers == 1 and not options.servers:
        spec: Json = {"jobMode": "local", "backoffLimit": 0, "replicaSpecs": [replicas("WORKER", 1)]}
    else:
        items = [
            replicas("SCHEDULER", 1),
            replicas("SERVER", max(1, options.servers)),
            replicas("WORKER", options.workers),
        ]
        spec = {"jobMode": "dist", "backoffLimit": 0, "replicaSpecs": items}
    return job_object("mlkube.io/v1beta1", "MxJob", options, spec)


_JOINS = SourcePattern(r"kv_?store|dist_|DMLC", "mxnet.kv.create, the kvstore of a Trainer")
_MODULES = ("mxnet", "gluoncv", "gluonnlp")
SCRIPTS = (ScriptFramework("mxnet", _mxnet_job, _MODULES, 3, has_servers=True, joins=_JOINS),)

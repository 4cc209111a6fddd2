"""PaddleJob to TrainJob. The first Pod of the leading role serves the rendezvous at its own IP address, so it is a
replicated job of its own: `paddle.distributed.launch` compares addresses, not names."""

from __future__ import annotations

from trainyard.conversion.fields import Fields
from trainyard.conversion.template_edits import add_variables
from trainyard.conversion.trainjob.pod_references import follow_pods
from trainyard.conversion.trainjob.replicated_jobs import ReplicaSet, address, open_source, take_replica_sets
from trainyard.conversion.trainjob.several_roles import several_roles_job
from trainyard.kinds.kubeflow_v1.framework import MASTER, WORKER
from trainyard.kinds.kubeflow_v1.paddlejob import FRAMEWORK
from trainyard.kinds.kubeflow_v1.pods import variable
from trainyard.kinds.kubeflow_v1.spec import port_of
from trainyard.kinds.pods.templates import containers_of, copy_template
from trainyard.objects import Json
from trainyard.objects.structs import replace

FIRST = "first"
"""The replicated job of the Pod with the rendezvous."""
FIXED_SIZE = "a TrainJob has as many nodes as at its start; leave it out"


def convert(root: Fields) -> list[Json]:
    """The runtime and the TrainJob of a PaddleJob."""
    source = open_source(root)
    replica_sets = take_replica_sets(source.spec, FRAMEWORK)
    elastic = source.spec.child("elasticPolicy")
    for name in elastic.names:
        elastic.unmapped(name, FIXED_SIZE)
    leader = MASTER if MASTER in replica_sets else WORKER
    follow_pods(
        source,
        replica_sets,
        lambda role, index: (role.lower(), index - (role == leader)) if index or role != leader else (FIRST, 0),
    )
    port = port_of(FRAMEWORK, replica_sets[leader].template)
    total = sum(replica_set.replicas for replica_set in replica_sets.values())
    common = [
        variable("PYTHONUNBUFFERED", 1),
        variable("PADDLE_JOB_ID", source.name),
        variable("PADDLE_NNODES", total),
    ]
    own_address = [
        {"name": "POD_IP_DUMMY", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        variable("PADDLE_MASTER", f"$(POD_IP_DUMMY):{port}"),
    ]
    its_address = [variable("PADDLE_MASTER", f"{address(source.name, FIRST, 0)}:{port}")]
    jobs: dict[str, ReplicaSet] = {}
    for role, replica_set in replica_sets.items():
        counted: list[Json] = []
        if leader == MASTER:
            counted = [variable("PADDLE_SERVER_NUM" if role == MASTER else "PADDLE_TRAINER_NUM", 1)]
        rest = replica_set.replicas
        if role == leader:
            jobs[FIRST] = _with_variables(replica_set, 1, [*common, *own_address, *counted])
            rest -= 1
        if rest:
            jobs[role.lower()] = _with_variables(replica_set, rest, [*common, *its_address, *counted])
    success = list(jobs) if source.all_succeed else [name for name in (FIRST, leader.lower()) if name in jobs]
    return several_roles_job(source, jobs, success)


def _with_variables(replica_set: ReplicaSet, replicas: int, variables: list[Json]) -> ReplicaSet:
    template = copy_template(replica_set.template)
    for container in containers_of(template):
        add_variables(container, variables)
    return replace(replica_set, replicas=replicas, template=template)

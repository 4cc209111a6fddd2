"""The events of this room, worded as Kubernetes' own controllers and scheduler word them. Pure.

Objects of training jobs get warnings about what holds them up and nothing else: their operator writes the events of a
job, and the requests of a job's life are bounded.
"""

from __future__ import annotations

from trainyard.core import Event
from trainyard.objects import GVK, Json, labels_of, name_of
from trainyard.objects.labels import OWNER
from trainyard.objects.resources import JOB, POD, STATEFUL_SET
from trainyard.workloads.placement import SCHEDULER
from trainyard.workloads.writes import Create, Delete, Write

COMPONENTS = {
    "Deployment": "deployment-controller",
    "Job": "job-controller",
    "Pod": SCHEDULER,
    "ReplicaSet": "replicaset-controller",
    "StatefulSet": "statefulset-controller",
}
"""The `source.component` of an event about an object of that kind."""
FAILED_CREATE = "FailedCreate"
_OF_TRAINING_JOBS = frozenset({FAILED_CREATE, "FailedScheduling"})


def of_write(gvk: GVK, owner: Json, write: Write) -> tuple[Event, ...]:
    """What the controller of `owner` says of a pod that it has made or deleted."""
    match write:
        case Create(made, obj) if made == POD:
            verb, name = "create", name_of(obj)
        case Delete(made, _, pod_name, _, _) if made == POD and gvk != JOB:
            verb, name = "delete", pod_name
        case _:
            return ()
    if gvk == STATEFUL_SET:
        text = f"{verb.capitalize()} Pod {name} in StatefulSet {name_of(owner)} successful"
    else:
        text = f"{verb.capitalize()}d pod: {name}"
    return (Event("Normal", f"Successful{verb.capitalize()}", text),)


def wanted(obj: Json, event: Event) -> bool:
    """False for an event that is not written because the object belongs to a training job."""
    return OWNER not in labels_of(obj) or event.reason in _OF_TRAINING_JOBS

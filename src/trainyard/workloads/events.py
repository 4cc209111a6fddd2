"""The Events of the controllers of this package, with the reasons and messages of kube-controller-manager and
kube-scheduler. Pure functions.

An object of a training job gets only the warnings `FailedCreate` and `FailedScheduling`: the operator writes the other
events of the job, and the number of requests for one job is bounded.
"""

from __future__ import annotations

from trainyard.core import Event
from trainyard.objects import GVK, Json, labels_of, name_of
from trainyard.objects.labels import OWNER
from trainyard.objects.resources import JOB, POD, STATEFUL_SET
from trainyard.objects.writes import Create, Delete
from trainyard.workloads.scheduler import SCHEDULER_NAME
from trainyard.workloads.writes import Write

COMPONENTS = {
    "Deployment": "deployment-controller",
    "Job": "job-controller",
    "Pod": SCHEDULER_NAME,
    "ReplicaSet": "replicaset-controller",
    "StatefulSet": "statefulset-controller",
}
"""Kind of the object -> `source.component` of events about it."""
FAILED_CREATE = "FailedCreate"
_REASONS_FOR_TRAINING_JOBS = frozenset({FAILED_CREATE, "FailedScheduling"})


def event_of_write(gvk: GVK, owner: Json, write: Write) -> tuple[Event, ...]:
    """The event about a pod that the controller of `owner` (of resource `gvk`) created or deleted; () for any other
    write. Deleted pods of a Job get none."""
    match write:
        case Create(resource, obj) if resource == POD:
            verb, name = "create", name_of(obj)
        case Delete(resource, _, pod_name) if resource == POD and gvk != JOB:
            verb, name = "delete", pod_name
        case _:
            return ()
    if gvk == STATEFUL_SET:
        text = f"{verb.capitalize()} Pod {name} in StatefulSet {name_of(owner)} successful"
    else:
        text = f"{verb.capitalize()}d pod: {name}"
    return (Event("Normal", f"Successful{verb.capitalize()}", text),)


def is_recorded(obj: Json, event: Event) -> bool:
    """False for an event that is not recorded because the object belongs to a training job (see above)."""
    return OWNER not in labels_of(obj) or event.reason in _REASONS_FOR_TRAINING_JOBS

"""The input of `why`: `Facts`. Values only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from trainyard.core import Config, Job, Kind, parse_job
from trainyard.core.diagnosis import ContainerContext, Endpoint, MissingModules
from trainyard.objects import Json, Problem, find_condition, name_of, namespace_of, operator_status, parse_time, uid_of
from trainyard.objects.container_statuses import ContainerStatus
from trainyard.views.diagnosis.kubelet_stops import kubelet_stop
from trainyard.views.job_view import job_result
from trainyard.views.memory import memory_limit
from trainyard.views.replica_view import ReplicaView, group_by_slot, replica_view
from trainyard.views.usage_view import ReplicaUsage

MAX_NAMES = 4
Logs = Mapping[tuple[str, str], tuple[str, ...]]  # last lines by the pod's uid and the container


@dataclass(frozen=True)
class Facts:
    """The objects and logs of one job at the time `now` (Unix seconds)."""

    kind: Kind
    job: Json
    now: float
    pods: tuple[Json, ...] = ()
    # of a job that has failed, or whose success may be in doubt: deleted pods, the last one of each replica
    deleted_pods: tuple[Json, ...] = ()
    children: tuple[Json, ...] = ()
    events: tuple[Json, ...] = ()
    logs: Logs = field(default_factory=dict)
    nodes: tuple[Json, ...] | None = None  # None: not fetched
    endpoint: Endpoint | None = None
    notes: tuple[Problem, ...] = ()  # fields that have no effect where the job runs
    process_nodes: frozenset[str] = frozenset()  # names of the Trainyard nodes: there, containers are processes
    usages: tuple[ReplicaUsage, ...] = ()  # of the replicas of a job that runs; () where nobody measures
    refused: tuple[str, ...] = ()  # what the API server refuses: "list events"
    cluster_ends: bool = False  # the cluster ends with the command, as that of `trainyard run`: nothing is tried again
    modules: MissingModules = field(default_factory=MissingModules)
    template_source: Json | None = None  # the object that has the pod templates, as it is now (Kind.template_source)
    template_is_missing: bool = False  # there is no such object
    listeners: Mapping[int, str] = field(default_factory=dict)  # programs of this machine by listening port

    @cached_property
    def parsed_job(self) -> Job:
        """The job as the operator parses it."""
        return parse_job(self.kind, self.job, Config())

    @property
    def status(self) -> Json:
        """The operator's status of the job, {} when it is missing or malformed."""
        return operator_status(self.job)

    @property
    def spec(self) -> Json:
        """`spec` of the job, {} when it is missing or malformed."""
        spec = self.job.get("spec")
        return spec if isinstance(spec, dict) else {}

    @property
    def conditions(self) -> list[Json]:
        """The conditions of the job."""
        conditions = self.status.get("conditions")
        return [entry for entry in conditions if isinstance(entry, dict)] if isinstance(conditions, list) else []

    def true_condition(self, condition_type: str) -> Json | None:
        """The job's condition of this type when its status is True; otherwise None."""
        job_condition = find_condition(self.conditions, condition_type)
        return job_condition if job_condition is not None and job_condition.get("status") == "True" else None

    @cached_property
    def replicas(self) -> tuple[tuple[ReplicaView, Json], ...]:
        """The newest pod of each slot."""
        slots = group_by_slot([(replica_view(pod), pod) for pod in self.pods], lambda pair: pair[0])
        return tuple(pairs[-1] for pairs in slots.values())

    @property
    def job_argument(self) -> str:
        """The job as a command-line argument: tfjob/mnist."""
        return f"{self.kind.api.singular}/{name_of(self.job)}"

    def command(self, subcommand: str) -> str:
        """The command line of a trainyard subcommand for this job."""
        namespace = namespace_of(self.job)
        return f"trainyard {subcommand} {self.job_argument}" + (f" -n {namespace}" if namespace != "default" else "")

    def runs_as_processes(self, pod: Json) -> bool:
        """True when the pod is on a Trainyard node: containers are processes, and `image` names a catalogue entry."""
        return str((pod.get("spec") or {}).get("nodeName") or "") in self.process_nodes

    def usage_of(self, pod: Json) -> ReplicaUsage | None:
        """The usage of the replica with this pod; None if nobody measures it."""
        return next((usage for usage in self.usages if usage.pod == name_of(pod)), None)

    @property
    def has_ended(self) -> bool:
        """True when the job has ended: no replica is created again."""
        return bool(job_result(self.job))

    @property
    def title(self) -> str:
        """`KIND NAMESPACE/NAME` of the job."""
        return f"{self.kind.gvk.kind} {namespace_of(self.job)}/{name_of(self.job)}"

    def age(self, stamp: object) -> float | None:
        """Seconds since an RFC 3339 timestamp, None for another value."""
        timestamp = parse_time(stamp)
        return None if timestamp is None else self.now - timestamp


def join_names(names: Iterable[str]) -> str:
    """Join names, without duplicates, as `worker-0, worker-1 and 4 others`."""
    unique_names = list(dict.fromkeys(names))
    if len(unique_names) <= MAX_NAMES:
        return ", ".join(unique_names)
    return f"{', '.join(unique_names[: MAX_NAMES - 1])} and {len(unique_names) - MAX_NAMES + 1} others"


def is_sidecar(pod: Json, container: ContainerStatus) -> bool:
    """Whether the init container is a native sidecar, which runs as long as the others and is stopped after them."""
    return container.init and container_spec(pod, container.name).get("restartPolicy") == "Always"


def container_spec(pod: Json, name: str) -> Json:
    """The container of this name in the pod spec, init or not; {} when there is none."""
    spec = pod.get("spec") or {}
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    return next(
        (container for container in containers if isinstance(container, dict) and container.get("name") == name), {}
    )


def container_context(
    facts: Facts, pod: Json, name: str, status: Json, holders: tuple[tuple[int, str], ...] = ()
) -> ContainerContext:
    """What the rules about output need to know of a container. `status`: its containerStatus."""
    spec = container_spec(pod, name)
    image_id = str(status.get("imageID") or "")
    local = facts.runs_as_processes(pod)
    return ContainerContext(
        on_process_node=local,
        interpreter=image_id if local and image_id.startswith("/") else "",
        image=str(spec.get("image") or ""),
        memory_limit=memory_limit(pod, name),
        mount_paths=tuple(
            str(mount["mountPath"]).rstrip("/")
            for mount in spec.get("volumeMounts") or ()
            if isinstance(mount, dict) and mount.get("mountPath")
        ),
        port_holders=holders,
        output_patterns=facts.kind.diagnosis.output_patterns,
        launcher=facts.kind.diagnosis.launcher,
        job_ended=facts.has_ended,
        modules=facts.modules,
        module_fixes=facts.kind.diagnosis.module_fixes,
        stop=kubelet_stop(pod, ContainerStatus(name, status, False), facts.events),
    )


def container_field(pod: Json, container: str, field: str) -> str:
    """A place in a pod, as a finding names it."""
    return f"pod {name_of(pod)}, container {container}: {field}"


def log_key(pod: Json, container: str) -> tuple[str, str]:
    """The key of a container's log in `Facts.logs`."""
    return uid_of(pod), container

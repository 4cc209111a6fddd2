"""What `why` is told, and what it answers. Values only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from trainyard.cli.diagnosis.exits import Surroundings
from trainyard.cli.view import Replica, replica, result
from trainyard.core import Config, Job, Kind, parse_job
from trainyard.objects import Json, Problem, condition, name_of, namespace_of, parse_time, uid_of

# How much a finding matters. The order is that in which they are said.
END, BLOCK, WAIT, NOTE, FINE = range(5)
MOST_NAMES = 4


class Finding(msgspec.Struct, frozen=True):
    """One thing that is so: what, where (object and field), how we know, what to do about it."""

    level: int
    what: str
    where: str = ""
    evidence: tuple[str, ...] = ()
    fix: str = ""


class Endpoint(msgspec.Struct, frozen=True):
    """An address that the replicas meet at, and what was found there. `known` False: it could not be looked up."""

    address: str
    field: str
    service: str = ""  # the Service that is meant
    known: bool = False
    exists: bool = False
    ready: int = 0  # pods behind it that are ready


@dataclass(frozen=True)
class Facts:
    """Everything that was seen of one job at one moment."""

    kind: Kind
    job: Json
    now: float
    pods: tuple[Json, ...] = ()
    gone: tuple[Json, ...] = ()  # of a job that failed: the last pods of replicas that have none any more
    children: tuple[Json, ...] = ()
    events: tuple[Json, ...] = ()
    logs: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)  # (pod's uid, container): last lines
    nodes: tuple[Json, ...] | None = None  # None: not looked at
    endpoint: Endpoint | None = None
    notes: tuple[Problem, ...] = ()  # fields that have no effect where the job runs
    process_nodes: frozenset[str] = frozenset()  # nodes whose pods are processes: those of Trainyard
    listeners: Mapping[int, str] = field(default_factory=dict)  # programs of this machine by the port they listen on

    @cached_property
    def read(self) -> Job:
        return parse_job(self.kind, self.job, Config())

    @property
    def status(self) -> Json:
        found = self.job.get("status")
        return found if isinstance(found, dict) else {}

    @property
    def spec(self) -> Json:
        found = self.job.get("spec")
        return found if isinstance(found, dict) else {}

    @property
    def conditions(self) -> list[Json]:
        listed = self.status.get("conditions")
        return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []

    def holds(self, kind: str) -> Json | None:
        """The condition, when it is True."""
        found = condition(self.conditions, kind)
        return found if found is not None and found.get("status") == "True" else None

    @cached_property
    def slots(self) -> tuple[tuple[Replica, Json], ...]:
        """The newest pod of each slot."""
        newest: dict[str, tuple[Replica, Json]] = {}
        for pod in sorted(self.pods, key=lambda one: str(one["metadata"].get("creationTimestamp"))):
            one = replica(pod)
            newest[one.name] = (one, pod)
        return tuple(newest.values())

    @property
    def word(self) -> str:
        """As a person names it: tfjob/mnist."""
        return f"{self.kind.singular}/{name_of(self.job)}"

    def command(self, word: str) -> str:
        """A word of ours about this job, as a person types it."""
        namespace = namespace_of(self.job)
        return f"trainyard {word} {self.word}" + (f" -n {namespace}" if namespace != "default" else "")

    def runs_as_processes(self, pod: Json) -> bool:
        """Its containers are processes of a Trainyard node: there, `image` names an entry of a catalogue."""
        return str((pod.get("spec") or {}).get("nodeName") or "") in self.process_nodes

    @property
    def over(self) -> bool:
        """The job has ended: nothing of it is made again."""
        return bool(result(self.job) or self.kind.legacy_outcome(self.status))

    @property
    def title(self) -> str:
        return f"{self.kind.gvk.kind} {namespace_of(self.job)}/{name_of(self.job)}"

    def age(self, stamp: object) -> float | None:
        moment = parse_time(stamp)
        return None if moment is None else self.now - moment


def called(pod: Json) -> str:
    """A replica, as tables and logs name it: worker-0."""
    return replica(pod).name


def names_of(names: Iterable[str]) -> str:
    """worker-0, worker-1 and 4 others."""
    listed = list(dict.fromkeys(names))
    if len(listed) <= MOST_NAMES:
        return ", ".join(listed)
    return f"{', '.join(listed[: MOST_NAMES - 1])} and {len(listed) - MOST_NAMES + 1} others"


def container_spec(pod: Json, name: str) -> Json:
    spec = pod.get("spec") or {}
    listed = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    return next((one for one in listed if isinstance(one, dict) and one.get("name") == name), {})


def surroundings(
    facts: Facts, pod: Json, name: str, status: Json, holders: tuple[tuple[int, str], ...] = ()
) -> Surroundings:
    spec = container_spec(pod, name)
    resources = spec.get("resources")
    limits = resources.get("limits") if isinstance(resources, dict) else None
    ident = str(status.get("imageID") or "")
    local = facts.runs_as_processes(pod)
    return Surroundings(
        local=local,
        interpreter=ident if local and ident.startswith("/") else "",
        image=str(spec.get("image") or ""),
        memory_limit=str(limits.get("memory") or "") if isinstance(limits, dict) else "",
        holders=holders,
    )


def place(pod: Json, container: str, rest: str) -> str:
    return f"pod {name_of(pod)}, container {container}: {rest}"


def key(pod: Json, container: str) -> tuple[str, str]:
    return uid_of(pod), container

"""What `why` is told, and what it answers. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from trainyard.cli.view import Replica, index_of, replica, role_of
from trainyard.core import Config, Job, Kind, read
from trainyard.objects import Json, condition, name_of, namespace_of, parse_time, uid_of

# How much a finding matters. The order is that in which they are said.
END, BLOCK, WAIT, NOTE, FINE = range(5)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is so: what, where (object and field), how we know, what to do about it."""

    level: int
    what: str
    where: str = ""
    evidence: tuple[str, ...] = ()
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Endpoint:
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
    children: tuple[Json, ...] = ()
    events: tuple[Json, ...] = ()
    logs: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)  # (pod's uid, container): last lines
    nodes: tuple[Json, ...] | None = None  # None: not looked at
    endpoint: Endpoint | None = None

    @cached_property
    def read(self) -> Job:
        return read(self.kind, self.job, Config())

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

    @property
    def title(self) -> str:
        return f"{self.kind.gvk.kind} {namespace_of(self.job)}/{name_of(self.job)}"

    def age(self, stamp: object) -> float | None:
        moment = parse_time(stamp)
        return None if moment is None else self.now - moment


def called(pod: Json) -> str:
    """A replica, as the operator's own texts name it: MASTER 0."""
    role, index = role_of(pod), index_of(pod)
    return f"{role} {index}" if role and index else replica(pod).name


def place(pod: Json, container: str, rest: str) -> str:
    return f"pod {name_of(pod)}, container {container}: {rest}"


def key(pod: Json, container: str) -> tuple[str, str]:
    return uid_of(pod), container

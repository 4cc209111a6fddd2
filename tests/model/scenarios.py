"""What an exploration starts with: the kind of job, its spec, its slots, and what can be edited.

A slot has a style, which says what really happens to it:
- "judged": a batch Job with backoffLimit 0; the operator tries again, by a new Job.
- "endless": a batch Job that makes new pods for ever.
- "retrying": a batch Job that makes new pods up to the spec's backoffLimit, and fails then.
- "set": a StatefulSet.
- "alone": a Pod.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from trainyard.core import Kind, Slot
from trainyard.kinds import CHAINERJOB, ELASTICJOB, MXJOB, TFJOB
from trainyard.objects import Json
from trainyard.objects.no_progress import ON_STALL, RESTART


class Edit(NamedTuple):
    """Something that a person may do to a spec; None: not to this one."""

    description: str
    change: Callable[[Json], Json | None]
    early: bool = False  # before the defaults are stored


def _lasting(code: int, reason: str) -> bool:
    return code == 1 or reason == "OOMKilled"


def _all_slots(spec: Json) -> frozenset[int]:
    return frozenset(range(8))


@dataclass(frozen=True)
class Scenario:
    """One job and all the slots that its spec may come to have."""

    kind: Kind
    spec: Json
    slots: tuple[Slot, ...]
    styles: tuple[str, ...]
    edits: tuple[Edit, ...] = ()
    ends: tuple[tuple[int, str], ...] = ((1, "Error"), (137, "Error"), (137, "OOMKilled"))  # of what is judged
    permanent: Callable[[int, str], bool] = _lasting
    deciding: frozenset[int] = frozenset({0})
    any_decides: bool = False  # one of them ends the job with its success, not all together
    ignored: frozenset[int] = frozenset()  # the slots whose failures the job lives with
    touched: int = 8  # people delete the pods and the Jobs of that many slots
    fixed: frozenset[int] = frozenset()  # the slots of which edits are ignored
    gang: bool = False
    reasons: Mapping[str, str] = field(default_factory=dict)  # what the kind calls the ends
    clean: str = ""  # what cleanPodPolicy is when nobody says
    limits_stop: bool = True  # what a limit ends stops everything, whatever cleanPodPolicy is (S4)
    wants: Callable[[Json], frozenset[int]] = _all_slots  # which slots a spec has
    in_place: Callable[[Json, int], bool] = lambda spec, slot: False  # its node starts a container again that failed
    annotations: Mapping[str, str] = field(default_factory=dict)  # of the job
    disruptions: Mapping[str, str] = field(default_factory=lambda: {"": "eviction"})  # of drains: reason -> cause
    restart_limit: tuple[int, int] | None = None  # how many restarts, and within how many seconds
    bodies: bool = False  # what children are made of is looked at
    source: Json | None = None  # the object that has the templates
    awaits: Callable[[int], frozenset[int]] = lambda slot: frozenset()  # the slots that must have succeeded before it
    limit: int | None = None  # failures of each role, or of the gang, after which the job fails; None: backoffLimit
    one_service: bool = False  # for all slots

    @property
    def restarts_on_stall(self) -> bool:
        return self.annotations.get(ON_STALL) == RESTART

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(slot.role for slot in self.slots))

    def policies(self, spec: Json) -> Json:
        """The part of a spec that has `backoffLimit`, `suspend` and the like."""
        field = self.kind.api.policy_field
        policies: Json = (spec.get(field) or {}) if field else spec
        return policies

    def with_policies(self, spec: Json, policies: Json) -> Json:
        """The spec with further policies, where the kind has them."""
        field = self.kind.api.policy_field
        return {**spec, field: {**self.policies(spec), **policies}} if field else {**spec, **policies}

    def succeeds(self, slots: frozenset[int], wants: frozenset[int]) -> bool:
        """Whether a job that has the slots `wants` succeeds when these have."""
        deciding = self.deciding & wants
        return bool(deciding) and (bool(deciding & slots) if self.any_decides else deciding <= slots)

    def is_suspended(self, spec: Json) -> bool:
        return self.policies(spec).get("suspend") is True

    def with_suspend(self, spec: Json, suspend: bool) -> Json:
        """The spec with another value of `suspend`."""
        return self.with_policies(spec, {"suspend": suspend})

    def place(self, slot: Slot) -> int:
        return self.slots.index(slot)

    def resource(self, slot: int) -> str:
        """The kind of what fills the slot."""
        return self.kind.roles.carrier(self.slots[slot].role).gvk.kind

    def counts(self, slot: int) -> int:
        """The number of what counts the failures of this slot: its role, or the gang."""
        return 0 if self.gang else self.roles.index(self.slots[slot].role)


def pod_template(container: str, policy: str = "Never", image: str = "i") -> Json:
    return {"spec": {"containers": [{"name": container, "image": image}], "restartPolicy": policy}}


# --- TfJob, MxJob


def tf(worker_restarts: str = "Never", default_ps: bool = False) -> Scenario:
    """A MASTER, a WORKER and, when asked for, the default PS."""
    items: list[Json] = [
        {"tfReplicaType": "MASTER", "template": pod_template("tensorflow")},
        {"tfReplicaType": "WORKER", "template": pod_template("tensorflow", worker_restarts)},
        *([{"tfReplicaType": "PS"}] if default_ps else []),
    ]
    port = _new_port("tfReplicaType", "tfPort")
    return Scenario(
        kind=TFJOB,
        spec={"replicaSpecs": items},
        slots=(Slot("MASTER", 0), Slot("WORKER", 0), Slot("PS", 0)),
        styles=("judged", "endless", "endless"),
        edits=(Edit("edits the WORKER", port), Edit("edits the WORKER early", port, early=True)),
        wants=lambda spec: frozenset(range(len(items))),
        touched=2,
        fixed=frozenset({1}),
        in_place=_by_template,
    )


def _by_template(spec: Json, slot: int) -> bool:
    template = spec["replicaSpecs"][slot].get("template") or {}
    return bool(template.get("spec", {}).get("restartPolicy") != "Never")


def _new_port(type_field: str, port_field: str) -> Callable[[Json], Json]:
    def change(spec: Json) -> Json:
        items = [
            {**replica_spec, port_field: 3333} if replica_spec[type_field] == "WORKER" else replica_spec
            for replica_spec in spec["replicaSpecs"]
        ]
        return {**spec, "replicaSpecs": items}

    return change


def gang(workers: int = 1) -> Scenario:
    """An MxJob in dist mode."""
    roles = {"SCHEDULER": 1, "SERVER": 1, "WORKER": workers}
    return Scenario(
        kind=MXJOB,
        spec={
            "jobMode": "dist",
            "replicaSpecs": [
                {"mxReplicaType": role, "replicas": count, "template": pod_template("mxnet")}
                for role, count in roles.items()
            ],
        },
        slots=tuple(Slot(role, index) for role, count in roles.items() for index in range(count)),
        styles=("judged",) * (2 + workers),
        edits=(Edit("edits the WORKER", _new_port("mxReplicaType", "PsRootPort")),),
        ends=((1, "Error"), (137, "Error")),
        fixed=frozenset(range(2, 2 + workers)),
        wants=lambda spec: frozenset(range(2 + workers)),
        gang=True,
    )


def local() -> Scenario:
    """An MxJob in local mode: one WORKER, whatever `replicas` says."""
    return Scenario(
        kind=MXJOB,
        spec={"jobMode": "local", "replicaSpecs": [{"mxReplicaType": "WORKER", "template": pod_template("mxnet")}]},
        slots=(Slot("WORKER", 0),),
        styles=("judged",),
        edits=(Edit("edits the WORKER", _new_port("mxReplicaType", "PsRootPort")),),
        fixed=frozenset({0}),
        wants=lambda spec: frozenset({0}),
        gang=True,
    )


# --- ElasticJob


def elastic(replicas: int = 2, policy: str = "ExitCode", most: int = 3) -> Scenario:
    """An ElasticJob that may be scaled between 1 and `most`."""
    return Scenario(
        kind=ELASTICJOB,
        spec={
            "rdzvEndpoint": "etcd:2379",
            "minReplicas": 1,
            "maxReplicas": most,
            "replicaSpecs": {
                "Worker": {
                    "replicas": replicas,
                    "restartPolicy": policy,
                    "template": {"spec": {"containers": [{"name": "elasticjob-worker", "image": "i"}]}},
                }
            },
        },
        slots=tuple(Slot("Worker", index) for index in range(most)),
        styles=("alone",) * most,
        edits=(
            Edit("wants one worker more", lambda spec: _scaled(spec, 1, most)),
            Edit("wants one worker less", lambda spec: _scaled(spec, -1, most)),
        ),
        ends=((1, "Error"), (137, "Error")),
        permanent=(lambda code, reason: code != 137) if policy == "ExitCode" else (lambda code, reason: True),
        deciding=frozenset(range(most)),
        reasons={"ElasticJobSucceeded": "JobSucceeded", "ElasticJobFailed": "PermanentFailure"},
        wants=lambda spec: frozenset(range(spec["replicaSpecs"]["Worker"]["replicas"])),
        in_place=lambda spec, slot: policy == "OnFailure",
        bodies=True,
    )


def _scaled(spec: Json, by: int, most: int) -> Json | None:
    worker = spec["replicaSpecs"]["Worker"]
    count = worker["replicas"] + by
    fits = 1 <= count <= most
    return {**spec, "replicaSpecs": {"Worker": {**worker, "replicas": count}}} if fits else None


# --- ChainerJob

SETS = ("a", "b")


def chainer(*replicas: int) -> Scenario:
    """A ChainerJob with a worker set for each number."""
    sets = {name: _worker_set(count) for name, count in zip(SETS, replicas, strict=False)}
    return Scenario(
        kind=CHAINERJOB,
        spec={"master": {"template": pod_template("chainer")}, "workerSets": sets},
        slots=(Slot("master", 0), *(Slot(name, 0) for name in SETS)),
        styles=("retrying", *("set" for _ in SETS)),
        edits=(
            Edit("scales the set a", lambda spec: _edited_set(spec, "a", replicas=2)),
            Edit("edits the set a", lambda spec: _edited_set(spec, "a", template=pod_template("chainer", image="j"))),
            Edit("adds the set b", _with_b),
            Edit("takes out the set a", _without_a),
            Edit("puts another set a in its place", _another_a),
            Edit("edits the master", lambda spec: {**spec, "master": {"template": pod_template("chainer", image="j")}}),
        ),
        ends=((137, "Error"),),
        fixed=frozenset({0}),
        clean="Running",
        wants=lambda spec: frozenset({0, *(1 + SETS.index(name) for name in spec["workerSets"])}),
        bodies=True,
    )


def _worker_set(replicas: int) -> Json:
    return {"replicas": replicas, "template": pod_template("chainer", "Always")}


def _edited_set(spec: Json, name: str, **fields: object) -> Json | None:
    sets = spec["workerSets"]
    return {**spec, "workerSets": {**sets, name: {**sets[name], **fields}}} if name in sets else None


def _with_b(spec: Json) -> Json | None:
    sets = spec["workerSets"]
    return None if "b" in sets else {**spec, "workerSets": {**sets, "b": _worker_set(1)}}


def _another_a(spec: Json) -> Json | None:
    sets, other = spec["workerSets"], {"replicas": 1, "template": pod_template("chainer", image="k")}
    return None if "a" in sets else {**spec, "workerSets": {"a": other, **sets}}


def _without_a(spec: Json) -> Json | None:
    sets = {name: workers for name, workers in spec["workerSets"].items() if name != "a"}
    return {**spec, "workerSets": sets} if "a" in spec["workerSets"] else None

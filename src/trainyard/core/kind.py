"""The description of a kind: `Kind`, made of the small values below, and `Job`, one parsed job of a kind. Both are here
because they name each other. docs/add-a-kind.md is the guide to `Kind`.

Longer than 400 lines: no other file may name both.

Rules for this file:
- A kind is data and pure functions; nothing here reads a clock, and no other code has an `if` on a kind.
- Only PodRecipe.mutate_pod_template, Kind.diagnosis and Kind.scripts depend on a framework.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from trainyard.core.diagnosis import (
    Cause,
    Endpoint,
    Finding,
    LauncherOutput,
    ObservedReplicas,
    OutputPattern,
    SessionLog,
)
from trainyard.core.job_state import (
    JobResult,
    JobStatus,
    Outcome,
    OwnedObjects,
    ParsedSpec,
    Policy,
    Replica,
    Role,
    RoleFailure,
)
from trainyard.core.model import (
    AuxiliaryObject,
    Condition,
    ConditionUpdate,
    Config,
    Event,
    ExitAction,
    ObservedSlots,
    PlannedCreate,
    RestartScope,
    Slot,
    TemplateChange,
    WrittenConditions,
)
from trainyard.core.rules import Rule
from trainyard.core.scripts import ScriptFramework
from trainyard.objects import GVK, Json, NamespacedName, Problem, Ref
from trainyard.objects.managed_fields import first_write
from trainyard.objects.resources import SERVICE
from trainyard.objects.review import Reviewer
from trainyard.objects.structs import replace
from trainyard.objects.writes import Delete, Patch

TRAINYARD_OPERATOR = "trainyard.dev/operator"
"""The value of `managedBy` that names this operator."""


class WorkloadAdapter(msgspec.Struct, frozen=True):
    """The type of object that runs a slot (batch Job, Pod or StatefulSet), as functions. No other code depends on it.

    observe(job, slot, owned): the observed state of the slot. render(job, slot, attempt): the object to create, without
    its name, owner reference and common labels. stop(replica, reason): the write that stops its pods, None when none is
    needed. resume(job, replica): the patch that scales it to the replicas of its role, None when none is needed.
    pods_ended(replica): True when none of its pods runs, so that they need no stop and keep their logs.
    failed_attempts(replica): the uids of failed attempts, each of which is counted once. `one_object_per_role`: one
    object runs all replicas of a role.
    """

    gvk: GVK
    observe: Callable[[Job, Slot, OwnedObjects], Replica]
    render: Callable[[Job, Slot, int], Json]
    stop: Callable[[Replica, str], Delete | Patch | None]
    resume: Callable[[Job, Replica], Patch | None]
    pods_ended: Callable[[Replica], bool]
    failed_attempts: Callable[[Replica], tuple[str, ...]]
    one_object_per_role: bool = False


class OtherController(msgspec.Struct, frozen=True):
    """The controller of another project that serves the same objects in a cluster. `gvk` and `object_name`: the object
    of its installation by which it is recognised, cluster-scoped, of a name that its program or its users cannot
    change."""

    name: str
    gvk: GVK
    object_name: str

    @property
    def is_installed_text(self) -> str:
        """The sentence that it is there, without its period."""
        return f"{self.name} is installed ({self.gvk.kind} {self.object_name})"


class Api(msgspec.Struct, frozen=True):
    """The kind as an API: its CustomResourceDefinition, and how its spec is parsed.

    read(spec, name) parses, defaults and validates a spec. `rules`: the cross-field rules. `rules_after_start`: the
    rules that fix the roles whose edits are ignored (TemplateChange.IGNORE) once the job has started; unset, every
    field of the spec that is no policy is fixed. warnings(job): probable mistakes in an accepted spec.
    annotation_problems(job): annotations of the kind whose values are not understood. notes(job): fields, beside those
    of pods, without effect on one machine.
    """

    gvk: GVK
    singular: str
    spec_type: type
    read: Callable[[Json, str], ParsedSpec]
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()  # further API groups that serve the kind
    rules: tuple[Rule, ...] = ()
    rules_after_start: tuple[Rule, ...] | None = None
    warnings: Callable[[Job], tuple[Problem, ...]] = lambda job: ()
    annotation_problems: Callable[[Job], tuple[Problem, ...]] = lambda job: ()
    notes: Callable[[Job], tuple[Problem, ...]] = lambda job: ()
    own_network: str = ""  # why each pod needs a network of its own, and what to do without one; "": it does not
    columns: tuple[Mapping[str, Any], ...] = ()
    scale: Mapping[str, str] = msgspec.field(default_factory=dict)  # the CRD's scale subresource
    # fewest and most replicas of the role that it scales; None: no bound
    scale_bounds: Callable[[Job], tuple[int | None, int | None]] = lambda job: (None, None)
    # second accepted name -> name, of fields directly under spec
    field_aliases: Mapping[str, str] = msgspec.field(default_factory=dict)
    has_runtime_id: bool = False  # the spec has a RuntimeId, which is part of the children's names
    installed_by_default: bool = True  # in a cluster; False: only when it is named
    policy_field: str = ""  # the field of the spec that has the policies; "": they are directly under spec
    has_versions: bool = False  # there are several (Kind.further_versions): `status.version` has that of the job
    # of a further version: whether an object was created in it
    created_in_version: Callable[[Json], bool] = lambda obj: False
    # its CustomResourceDefinition; unset: made from `spec_type` and the rules, with a status that is the operator's own
    definition: Callable[[], Json] | None = None
    # what depends on other objects, so that no rule can say it: an admission webhook, in the process of the API server
    review: Reviewer | None = None
    # what of it an API server of a cluster can check without a webhook, with the bindings
    admission_policies: Callable[[], tuple[Json, ...]] = lambda: ()
    managers: tuple[str, ...] = (TRAINYARD_OPERATOR,)  # the values of managedBy with which this operator serves a job
    other_controller: OtherController | None = None  # the operator serves no job of the kind beside it

    def policy_path(self, name: str) -> tuple[str, ...]:
        """Where the policy `name` (suspend, managedBy ...) is in the object: ("spec", "runPolicy", "suspend")."""
        return ("spec", *filter(None, (self.policy_field,)), name)


class TemplateKind(msgspec.Struct, frozen=True):
    """A kind whose objects have pod templates of jobs, and for which no controller does anything. `definition()`: its
    CustomResourceDefinition, `rules`: those in it. `review`: see Api."""

    gvk: GVK
    definition: Callable[[], Json]
    rules: tuple[Rule, ...] = ()
    namespaced: bool = True
    review: Reviewer | None = None


class TemplateSource(msgspec.Struct, frozen=True):
    """Where a job's pod templates are, if they are not in its spec: in an object that it refers to.

    reference(obj): the resource, namespace and name of that object, None when the job names no kind of `kinds`.
    snapshot(source): what is kept of the object in `status.snapshot`, from the first status patch on, which precedes
    every other write: a later edit or the deletion of the object has no effect on the job. read(spec, name, snapshot)
    parses, defaults and validates a spec with it. `missing_reason`: of the event of a job whose object is missing.
    shipped(): objects that a cluster on one machine has from the start, with their resources.
    """

    kinds: tuple[TemplateKind, ...]
    reference: Callable[[Json], tuple[TemplateKind, NamespacedName] | None]
    snapshot: Callable[[Json], Json]
    read: Callable[[Json, str, Json], ParsedSpec]
    missing_reason: str = "TemplateSourceMissing"
    shipped: Callable[[], tuple[tuple[GVK, Json], ...]] = lambda: ()


class RoleTable(msgspec.Struct, frozen=True):
    """What the roles of the kind run as. The roles themselves are in ParsedSpec.roles.

    carrier(role): the type of object that runs the role's slots. `container`: the container whose exit code is the
    replica's, unless Role.container names another. `child_resources`: every resource that a job of the kind owns.
    uses(config, gvk): whether jobs have children of this resource under that configuration. `optional_resources`: those
    that an API server may lack; a job has no such children then. `patched_resources`: the children that are patched
    after an edit of the job; others are replaced. `adopted_resources`: children that another operator may have made for
    the job, with the same names; they get Trainyard's labels. `created_resources`: children that the operator creates
    and never reads (AuxiliaryObject.exists_with).
    """

    carrier: Callable[[str], WorkloadAdapter]
    container: str
    child_resources: tuple[GVK, ...]
    uses: Callable[[Config, GVK], bool] = lambda config, gvk: True
    optional_resources: tuple[GVK, ...] = ()
    patched_resources: tuple[GVK, ...] = ()
    adopted_resources: tuple[GVK, ...] = ()
    created_resources: tuple[GVK, ...] = ()

    def children_in(self, config: Config) -> tuple[GVK, ...]:
        """The resources of children under that configuration."""
        return tuple(
            gvk for gvk in self.child_resources if self.uses(config, gvk) and gvk not in config.missing_resources
        )


class PodRecipe(msgspec.Struct, frozen=True):
    """The object that runs a slot, and its pod.

    name(job, slot), labels(job, slot) and metadata(job, slot): name, labels and further metadata of that object.
    mutate_pod_template(template, job, slot) returns the pod template with all that the framework needs. subdomain(job):
    the headless Service for the DNS names of the pods, "" for none. job_spec_fields(job, slot): fields of the spec of a
    batch Job that retries by itself. dependencies(job, slot): the children that must exist and be owned by the job
    before the slot's object is created, because its pods refer to them by name. awaited_slots(job, slot): the slots
    that must run before the slot's object is created; awaited_successes(job, slot): those that must have succeeded.
    """

    name: Callable[[Job, Slot], str]
    labels: Callable[[Job, Slot], dict[str, str]]
    mutate_pod_template: Callable[[Json, Job, Slot], Json]
    subdomain: Callable[[Job], str] = lambda job: ""
    metadata: Callable[[Job, Slot], Json] = lambda job, slot: {}
    job_spec_fields: Callable[[Job, Slot], Json] = lambda job, slot: {}
    dependencies: Callable[[Job, Slot], tuple[Ref, ...]] = lambda job, slot: job.blocking_objects()
    awaited_slots: Callable[[Job, Slot], frozenset[Slot]] = lambda job, slot: frozenset()
    awaited_successes: Callable[[Job, Slot], frozenset[Slot]] = lambda job, slot: frozenset()

    def awaits(self, job: Job, slot: Slot) -> bool:
        """Whether the slot's object is not created yet, because a slot that it awaits has not come so far."""
        return not (self.awaited_slots(job, slot) <= job.running and self.awaited_successes(job, slot) <= job.succeeded)


class Lifecycle(msgspec.Struct, frozen=True):
    """When a job succeeds, fails and restarts.

    success_sets(job): sets of slots; the job succeeds once all slots of one of the sets have succeeded.
    supervised_slots(job): the slots whose exit codes the operator itself evaluates, for a retry or the job's failure;
    unset: all that are in a success set. on_exit(job, slot, code, reason): the effect of a failed exit of a supervised
    slot; `code` is -1 when it is unknown (evicted, node lost). `default_backoff_limit`: for the supervised roles of a
    job without backoffLimit; None: no limit. `limits_stop_pods`: a job that fails by its backoffLimit or deadline stops
    its pods, whatever cleanPodPolicy says. `restart_scope`: of every job of the kind, or of one job as a function.
    running_slots(job): the slots of which one runs while the job is Running; unset: all. With `all_run` the job is
    Running once each of them runs. `template_change`: the effect of an edit of a role while the job runs;
    `template_change_of` has the roles that differ from it. success_grace(job): seconds from the success of a set in
    which other replicas may end by themselves, before the job ends and cleanPodPolicy stops them. worker_slots(job):
    the slots in which the one slot of the success set starts processes, so that its exit code alone does not show that
    the work was done (policies/success_doubt.py); with `workers_reached_by_exec` it starts them by the exec of the API.
    on_role_failure(job, roles): what follows once these roles have failed more often than their Role.backoff_limit;
    a restart of all replicas only in a job with RestartScope.GANG. `job` has the next status.
    The other functions of a job alone read its spec, and neither its status nor what was observed (Job.cached_of_spec).
    """

    success_sets: Callable[[Job], tuple[frozenset[Slot], ...]]
    on_exit: Callable[[Job, Slot, int, str], ExitAction]
    supervised_slots: Callable[[Job], frozenset[Slot]] | None = None
    running_slots: Callable[[Job], frozenset[Slot]] | None = None
    all_run: bool = False
    success_grace: Callable[[Job], float] = lambda job: 0.0
    restart_scope: RestartScope | Callable[[Job], RestartScope] = RestartScope.ROLE
    on_role_failure: Callable[[Job, tuple[str, ...]], RoleFailure] = lambda job, roles: RoleFailure(
        roles[0], "BackoffLimitExceeded"
    )
    restart_text: str = ""  # for the docs, where restart_scope is a function
    success_text: str = ""  # for the docs, what a job may change of its success
    default_backoff_limit: int | None = 6
    limits_stop_pods: bool = True
    worker_slots: Callable[[Job], frozenset[Slot]] = lambda job: frozenset()
    workers_reached_by_exec: bool = False
    template_change: TemplateChange = TemplateChange.IGNORE
    template_change_of: Mapping[str, TemplateChange] = msgspec.field(default_factory=dict)

    def on_template_change(self, role: str) -> TemplateChange:
        """The effect of an edit of this role while the job runs."""
        return self.template_change_of.get(role, self.template_change)

    def follows_edits(self, role: str) -> bool:
        """Whether an edit of the role takes effect while the job runs; otherwise the role is fixed after the start."""
        return self.on_template_change(role) is not TemplateChange.IGNORE


class StatusShape(msgspec.Struct, frozen=True):
    """The kind's own status fields, and its texts. Where the old operators have a text, it is the same (S7).

    render(job, outcome, counts): the status fields in the kind's own shape; counts is {role: {replica state: number of
    replicas}} in spec order. condition_message(job, update, replicas) returns the update with the kind's reason and
    message. condition_event(job, update) returns the event for a condition that became True; unset:
    default_condition_event. write_events(job, write_or_replica) returns the events for one create or delete, or for one
    replica that has a newly counted failure. legacy_outcome(status): Succeeded, Failed or "", read from a status
    without conditions that an older operator wrote. begun_elsewhere(status): why the operator leaves an unfinished job
    alone that another controller has begun, "" for its own and for new jobs. public(job, outcome, counts, replicas):
    the status of a kind whose definition has a status schema of its own (Api.definition); all that `core` writes is
    then in its field `trainyard`. `job` has the next status.
    """

    render: Callable[[Job, Outcome, Mapping[str, Mapping[str, int]]], Json]
    public: Callable[[Job, Outcome, Mapping[str, Mapping[str, int]], Sequence[Replica]], Json] | None = None
    source: str = "trainyard-operator"  # source.component of the events
    condition_message: Callable[[Job, ConditionUpdate, Sequence[Replica]], ConditionUpdate] = (
        lambda job, update, replicas: update
    )
    condition_event: Callable[[Job, ConditionUpdate], Event | None] | None = None
    write_events: Callable[[Job, PlannedCreate | Delete | Replica], tuple[Event, ...]] = lambda job, subject: ()
    # condition type -> its type in the old operators' documents, which is written in addition
    condition_aliases: Mapping[str, str] = msgspec.field(default_factory=dict)
    extra_timestamps: tuple[str, ...] = ()  # further time fields of a condition in the old operators' documents
    # (job, replicas, the conditions of this reconcile, now) -> those of the status; unset: conditions.write_conditions
    write_conditions: Callable[[Job, list[Replica], list[Condition], float], WrittenConditions] | None = None
    legacy_outcome: Callable[[Json], JobResult] = lambda status: ""
    begun_elsewhere: Callable[[Json], str] = lambda status: ""


class Diagnosis(msgspec.Struct, frozen=True):
    """What only this kind can say about a job that does not run, or has failed.

    rules: findings about a job that has not ended. output_patterns: lines of output that mean something in this kind;
    they precede the common ones. condition_texts: condition type -> (summary, fix) where the common texts are too
    general. endpoint(job object): the address that the replicas need. peers_needed(spec): the number of replicas that
    must run at the same time, None when one alone can go on. refine(job, cause): a more exact cause of a container's
    termination. exit_note(job, role, exit code): why that exit code fails the job, "" when it needs no word.
    init_containers: init container that the kind adds -> why it still runs. launcher: the output of the program that
    starts a replica's processes, None when they need none. module_fixes: Python module -> how to get it on this machine
    beside `pip install`. doubts: lines of a launcher (Lifecycle.worker_slots) that ended with 0 which say that the work
    was not done, by the reason of condition SuccessInDoubt that means the same, or another word. session_log(job): how
    the logs of its workers show that it has reached them, None when they do not, or when it need not.
    """

    rules: tuple[Callable[[Job, ObservedReplicas], Iterable[Finding]], ...] = ()
    output_patterns: tuple[OutputPattern, ...] = ()
    condition_texts: Mapping[str, tuple[str, str]] = msgspec.field(default_factory=dict)
    endpoint: Callable[[Json], Endpoint | None] = lambda job: None
    peers_needed: Callable[[Json], int | None] = lambda spec: None
    refine: Callable[[Job, Cause], Cause] = lambda job, cause: cause
    exit_note: Callable[[Job, str, int], str] = lambda job, role, code: ""
    init_containers: Mapping[str, Cause] = msgspec.field(default_factory=dict)
    module_fixes: Mapping[str, str] = msgspec.field(default_factory=dict)
    launcher: LauncherOutput | None = None
    doubts: Mapping[str, OutputPattern] = msgspec.field(default_factory=dict)
    session_log: Callable[[Job], SessionLog | None] = lambda job: None


class Kind(msgspec.Struct, frozen=True):
    """A kind of job, as a value. `auxiliary(job)`: the objects beside the replicas. `diagnosis`: what `trainyard why`
    says of this kind alone. `scripts`: the frameworks whose scripts `trainyard run SCRIPT` runs as jobs of this kind.

    config_problem(job): why a valid job cannot run with the options of this operator, None when it can.
    `template_source`: where the pod templates are, None where they are in the spec.

    `further_versions`: other API versions of the same resource, in one CustomResourceDefinition. The objects are
    stored, listed and watched in the version of this kind, and reconciled by the rules of their own version.
    """

    api: Api
    roles: RoleTable
    pods: PodRecipe
    lifecycle: Lifecycle
    status: StatusShape
    auxiliary: Callable[[Job], tuple[AuxiliaryObject, ...]] = lambda job: ()
    diagnosis: Diagnosis = Diagnosis()
    scripts: tuple[ScriptFramework, ...] = ()
    further_versions: tuple[Kind, ...] = ()
    config_problem: Callable[[Job], Problem | None] = lambda job: None
    template_source: TemplateSource | None = None

    def version_of(self, obj: Json) -> Kind:
        """The kind with the rules of the API version in which the user wrote the object. An API server returns the
        object in any version, so that its apiVersion alone does not tell, and a webhook or client that changes it in
        another version stores that version's defaults. So its status decides, then its first write (managedFields),
        and only without both what it looks like now (Api.created_in_version)."""
        status = obj.get("status")
        stored = status.get("version") if isinstance(status, dict) else None
        for version in self.versions if stored and self.further_versions else ():
            if stored == version.gvk.version:
                return version
        written = (first_write(obj) or obj) if self.further_versions else obj
        for version in self.further_versions:
            if written.get("apiVersion") == version.gvk.api_version or version.api.created_in_version(written):
                return version
        return self

    @property
    def versions(self) -> tuple[Kind, ...]:
        """The kind in each of its API versions, the stored one first."""
        return (self, *self.further_versions)

    @property
    def gvk(self) -> GVK:
        """The GVK of the kind, as in `api`."""
        return self.api.gvk

    def resource(self, kind: str, config: Config) -> GVK:
        """The resource of children of this kind. Raises KeyError when the job has no such children."""
        for gvk in self.roles.children_in(config):
            if gvk.kind == kind:
                return gvk
        raise KeyError(kind)


class Job(msgspec.Struct, frozen=True, eq=False):
    """One parsed job: the API object (`obj`), its spec (`parsed`) and its status (`status`)."""

    kind: Kind
    obj: Json
    key: NamespacedName
    uid: str
    runtime_id: str
    parsed: ParsedSpec
    status: JobStatus
    roles: tuple[Role, ...]  # in effect: the spec's, or those that the job was started with (read.effective_roles)
    config: Config
    owned: frozenset[Ref] | None = None  # the observed children that this job owns; None: unknown, assume all
    running: frozenset[Slot] = frozenset()  # the slots that were observed to run
    succeeded: frozenset[Slot] = frozenset()  # the slots that were observed to have succeeded
    present: frozenset[Slot] = frozenset()  # the slots whose object was observed
    ended: frozenset[Slot] = frozenset()  # see policies/restart.ended_slots
    ungrouped: frozenset[Slot] = frozenset()  # those of `present` whose pods are in no PodGroup of Kubernetes
    cache: dict[str, Any] = msgspec.field(default_factory=dict)  # see `cached`; a replaced job has a new one
    spec_cache: dict[str, Any] = msgspec.field(default_factory=dict)  # see `cached_of_spec`

    def __post_init__(self) -> None:
        """Called by replace(), too."""
        msgspec.structs.force_setattr(self, "cache", {})

    def cached(self, name: str, compute: Callable[[], Any]) -> Any:
        """The result of `compute()`, computed once for each `name`: a Job is immutable and may have 10000 slots."""
        if name not in self.cache:
            self.cache[name] = compute()
        return self.cache[name]

    def cached_of_spec(self, name: str, compute: Callable[[Job], Any]) -> Any:
        """The result of `compute(job)`, which reads neither the status nor what was observed: it is kept for all jobs
        that are replaced from this one."""
        cache = self.spec_cache
        if name not in cache:
            cache[name] = compute(self)
        return cache[name]

    def with_status(self, status: JobStatus) -> Job:
        """This job with another status; itself, with what it has computed, if the status is equal."""
        return self if status == self.status else replace(self, status=status)

    def with_slots(self, slots: ObservedSlots) -> Job:
        """This job with the slots that were observed when a plan was made."""
        return replace(
            self,
            running=slots.running,
            succeeded=slots.succeeded,
            present=slots.present,
            ended=slots.ended,
            ungrouped=slots.ungrouped,
        )

    @property
    def auxiliary_objects(self) -> Mapping[Ref, AuxiliaryObject]:
        """The objects of the job beside its replicas, in the order of their creation."""
        objects: Mapping[Ref, AuxiliaryObject] = self.cached(
            "auxiliary_objects", lambda: {auxiliary.ref: auxiliary for auxiliary in self.kind.auxiliary(self)}
        )
        return objects

    @property
    def policy(self) -> Policy:
        """The run policy of the parsed spec."""
        return self.parsed.policy

    def blocking_objects(self) -> tuple[Ref, ...]:
        """The auxiliary objects that must exist before replicas are created.

        Services are left out: a Service of the same name that the job does not own blocks no replica (S8).
        """
        refs: tuple[Ref, ...] = self.cached(
            "blocking_objects",
            lambda: tuple(
                ref
                for ref, auxiliary in self.auxiliary_objects.items()
                if not auxiliary.create_after_replicas and auxiliary.gvk != SERVICE
            ),
        )
        return refs

    def role(self, name: str) -> Role | None:
        """The role of this name, None when the spec has none."""
        for role in self.roles:  # no generator: it is asked several times for each replica
            if role.name == name:
                return role
        return None

    def carrier(self, role: str) -> WorkloadAdapter:
        """The adapter of the workload (Job, Pod, StatefulSet) that carries the replicas of a role."""
        return self.kind.roles.carrier(role)

    def slots(self) -> tuple[Slot, ...]:
        """A slot for each replica, or one for the whole role if its carrier has `one_object_per_role`."""
        slots: tuple[Slot, ...] = self.cached_of_spec("slots", _slots)
        return slots

    @property
    def restart_scope(self) -> RestartScope:
        """Lifecycle.restart_scope of this job."""
        scope = self.kind.lifecycle.restart_scope
        if isinstance(scope, RestartScope):
            return scope
        job_scope: RestartScope = self.cached_of_spec("restart_scope", scope)
        return job_scope

    def restarts_gang(self) -> bool:
        """True for a gang: a retry of one replica restarts all replicas, succeeded ones too (S33)."""
        return self.restart_scope is RestartScope.GANG

    def running_slots(self) -> frozenset[Slot]:
        """The slots of which one runs while the job is Running (Lifecycle.running_slots)."""
        slots: frozenset[Slot] = self.cached_of_spec("running_slots", _running_slots)
        return slots

    def is_running(self, replicas: Iterable[Replica]) -> bool:
        """Whether one of the running slots runs; with Lifecycle.all_run, whether each has run at the same time."""
        slots = self.running_slots()
        running = [replica.state == "Running" for replica in replicas if replica.slot in slots]
        waits = self.kind.lifecycle.all_run and not self.status.has_run
        return any(running) and (all(running) or not waits)

    def success_sets(self) -> tuple[frozenset[Slot], ...]:
        """Lifecycle.success_sets of this job."""
        sets: tuple[frozenset[Slot], ...] = self.cached_of_spec("success_sets", self.kind.lifecycle.success_sets)
        return sets

    def worker_slots(self) -> frozenset[Slot]:
        """The slots in which the launcher starts processes (Lifecycle.worker_slots)."""
        slots: frozenset[Slot] = self.cached_of_spec("worker_slots", self.kind.lifecycle.worker_slots)
        return slots

    def supervised_slots(self) -> frozenset[Slot]:
        """The slots whose exit codes the operator evaluates (Lifecycle.supervised_slots)."""
        slots: frozenset[Slot] = self.cached_of_spec("supervised_slots", _supervised_slots)
        return slots


def _slots(job: Job) -> tuple[Slot, ...]:
    counts = (
        (role.name, min(role.replicas, 1) if job.carrier(role.name).one_object_per_role else role.replicas)
        for role in job.roles
    )
    return tuple(Slot(role, index) for role, count in counts for index in range(count))


def _running_slots(job: Job) -> frozenset[Slot]:
    slots_of = job.kind.lifecycle.running_slots
    return slots_of(job) if slots_of else frozenset(job.slots())


def _supervised_slots(job: Job) -> frozenset[Slot]:
    slots_of = job.kind.lifecycle.supervised_slots
    return slots_of(job) if slots_of else frozenset().union(*job.success_sets())

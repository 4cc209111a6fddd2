"""The common part of the specs: the replica map, `runPolicy`, and their rules (docs/rules.md 4.1, 4.2)."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from trainyard.core import ParsedSpec, Role, Rule
from trainyard.core.names import MAX_LABEL_LENGTH, digest
from trainyard.core.status import MAX_REPLICAS
from trainyard.kinds.kubeflow_v1.framework import Framework
from trainyard.kinds.pods.pod_templates import pod_template_schema
from trainyard.kinds.pods.templates import (
    CONTAINER_FIELDS,
    NULLABLE,
    PRESERVE_UNKNOWN,
    UNIQUE_NAMES,
    containers_of,
    restart_policy_rule,
    whole_number,
)
from trainyard.kinds.policies import Policies, policy_of
from trainyard.kinds.spec_problems import spec_problems, unknown_fields
from trainyard.objects import Json

RestartPolicy = Literal["Always", "OnFailure", "Never", "ExitCode"]
TCP = "TCP"
Count = Annotated[int, Meta(ge=0, le=MAX_REPLICAS)]


PodTemplate = Annotated[
    dict[str, Any],
    Meta(
        extra_json_schema=pod_template_schema(
            {"properties": {**CONTAINER_FIELDS, "image": {"type": "string"}}, "required": ["name", "image"]},
            **UNIQUE_NAMES,
        )
    ),
]
"""A PodTemplateSpec whose containers have unique names, and images."""


class ReplicaSpec(msgspec.Struct, kw_only=True):
    """The replicas of one role."""

    replicas: Annotated[Count | None, Meta(description="Number of replicas, by default 1.")] = None
    template: Annotated[PodTemplate | None, Meta(extra_json_schema={**PRESERVE_UNKNOWN, **NULLABLE})] = None
    restartPolicy: Annotated[
        RestartPolicy | None,
        Meta(description="ExitCode: from 128 on a code is retried, a lower one fails the job. Overrides the pod's."),
    ] = None


class SchedulingPolicy(msgspec.Struct, kw_only=True):
    """The PodGroup of the job, if the operator schedules gangs."""

    minAvailable: Annotated[int | None, Meta(description="Pods that must fit at once; by default all.")] = None
    queue: Annotated[str | None, Meta(description="Queue of Volcano.")] = None
    minResources: Annotated[dict[str, Any] | None, Meta(description="Resources that must be free.")] = None
    priorityClass: Annotated[str | None, Meta(description="PriorityClass of the PodGroup.")] = None
    scheduleTimeoutSeconds: Annotated[int | None, Meta(description="How long the scheduler waits for all pods.")] = None


class RunPolicy(Policies, kw_only=True):
    """How long the job may run, and what is left of it."""

    schedulingPolicy: Annotated[SchedulingPolicy | None, Meta(extra_json_schema={**PRESERVE_UNKNOWN, **NULLABLE})] = (
        None
    )


class TrainingSpec(msgspec.Struct, kw_only=True):
    """The field that all specs have."""

    runPolicy: Annotated[RunPolicy | None, Meta(extra_json_schema={**PRESERVE_UNKNOWN, **NULLABLE})] = None


ReplicaMap = Annotated[
    dict[str, Annotated[ReplicaSpec, Meta(extra_json_schema=PRESERVE_UNKNOWN)]],
    Meta(extra_json_schema={"maxProperties": 5}),  # more would make the rules too costly for an API server
]
"""Role -> replicas."""


def read(framework: Framework, rules: tuple[Rule, ...], spec: Json, name: str) -> ParsedSpec:
    """The ParsedSpec of a job. Defaults are applied here and not written back to the object."""
    run_policy = framework.run_policy(spec)
    return ParsedSpec(
        roles=tuple(_role(framework, role, value) for role, value in framework.replica_map(spec).items()),
        policy=policy_of(run_policy if isinstance(run_policy, dict) else {}),
        spec=spec,
        problems=spec_problems(framework.spec_type, rules, spec, name),
        unknown=unknown_fields(framework.spec_type, spec),
    )


def _role(framework: Framework, name: str, replica_spec: Json) -> Role:
    template = replica_spec.get("template")
    template = template if isinstance(template, dict) else {}
    replicas = whole_number(replica_spec.get("replicas"))
    default = framework.default_replicas.get(name, 1)
    count = default if replicas is None else min(max(replicas, 0), MAX_REPLICAS)
    policy = framework.restart_policy_of(name, replica_spec)
    port = port_of(framework, template)
    container = main_container(framework, template).get("name") if framework.main_is_first else framework.container
    return Role(name, count, port, template, digest(template, policy), container=str(container or ""))


def main_container(framework: Framework, template: Json) -> Json:
    """The container with the kind's name, else the first one; {} when there is none."""
    containers = containers_of(template)
    named = [
        container
        for container in containers
        if container.get("name") == framework.container and not framework.main_is_first
    ]
    return next(iter([*named, *containers]), {})


def port_of(framework: Framework, template: Json) -> int:
    """The number of the kind's port: that of the main container's port of its name, else the kind's own."""
    numbers = {port.get("name"): whole_number(port.get("containerPort")) for port in ports_of(framework, template)}
    return numbers.get(framework.port_name) or framework.port


def service_ports(framework: Framework, template: Json) -> list[Json]:
    """The ports of a replica's Service: the named ports of the main container, with the kind's own where it is missing.

    A Service of several ports must name each, and a headless one needs none: the others are left out. It has a number
    and protocol once.
    """
    ports: dict[tuple[int, str], Json] = {}
    for port in ports_of(framework, template):
        name, number, protocol = port.get("name"), whole_number(port.get("containerPort")), port.get("protocol") or TCP
        if name and number is not None:
            other_protocol = {} if protocol == TCP else {"protocol": protocol}
            ports.setdefault((number, str(protocol)), {"name": str(name), "port": number, **other_protocol})
    if lacks_own_port(framework, template):
        ports[framework.port, TCP] = {"name": framework.port_name, "port": framework.port}
    return list(ports.values())


def lacks_own_port(framework: Framework, template: Json) -> bool:
    """Whether the kind's port is to be added to the main container: it has none of its name, and none of its number
    under another name, for which a Service would have two entries."""
    if not framework.port_name:
        return False
    ports = ports_of(framework, template)
    named = [port for port in ports if port.get("name") and (port.get("protocol") or TCP) == TCP]
    has_number = framework.port in (whole_number(port.get("containerPort")) for port in named)
    return not has_number and framework.port_name not in (port.get("name") for port in ports)


def ports_of(framework: Framework, template: Json) -> list[Json]:
    """The ports of the main container; malformed ones are left out."""
    ports = main_container(framework, template).get("ports")
    return [port for port in ports if isinstance(port, dict)] if isinstance(ports, list) else []


def rules_of(framework: Framework) -> tuple[Rule, ...]:
    """The rules that the Training Operator's webhook checks, those that an API server would report only for the
    children, and the kind's own."""
    replicas = f"spec.{framework.replicas_field}"
    return (
        _name_rule(framework),
        _roles_rule(framework, replicas),
        _spellings_rule(framework, replicas),
        *_container_rules(framework, replicas),
        restart_policy_rule(f"{replicas}{{}}"),
        *_fixed_rules("managedBy"),
        *_fixed_rules("schedulingPolicy.queue"),
        _managed_by_rule(framework.managers),
        *framework.rules,
    )


def _name_rule(framework: Framework) -> Rule:
    """A name is part of Services' names: a DNS label that begins with a letter, with room for role and index."""

    def fits(job: Any, old: Any) -> bool:
        name = str(job["metadata"]["name"])
        longest = max(
            (
                len(name) + len(role) + 2 + len(str(max((item.get("replicas") or 1) - 1, 0)))
                for role, item in job["spec"][framework.replicas_field].items()
                if role not in framework.single_roles
            ),
            default=0,
        )
        return re.fullmatch(pattern, name) is not None and max(longest, len(name)) <= MAX_LABEL_LENGTH

    pattern, objects = "[a-z]([-a-z0-9]*[a-z0-9])?", "Pod's and Service's"
    letters = "a letter, then lower-case letters, digits and '-'"
    if framework.dotted_names:
        pattern, objects = "[a-z0-9]([-.a-z0-9]*[a-z0-9])?", "Pod's"
        letters = "lower-case letters, digits, '-' and '.'"
    single = "|".join(sorted(role.lower() for role in framework.single_roles))
    no_index = f"r.matches('(?i)^({single})$') || " if single else ""
    length = "n + r.size() + 2"
    return Rule(
        "",
        f"self.metadata.name.matches('^{pattern}$') && self.metadata.name.size() <= {MAX_LABEL_LENGTH}"
        # Lists of one item: CEL has no variables, and each read takes time (see Rule).
        f" && [self.metadata.name.size()].all(n, [self.spec.{framework.replicas_field}].all(s,"
        f" s.all(r, {no_index}{length} + 1 <= {MAX_LABEL_LENGTH}"
        f" && (!has(s[r].replicas) || s[r].replicas < 1"
        f" || {length} + string(s[r].replicas - 1).size() <= {MAX_LABEL_LENGTH}))))",
        fits,
        f"the name is part of every {objects} name, NAME-ROLE-INDEX of at most 63 characters: write {letters}, and "
        "shorten it",
        field="metadata.name",
    )


def _roles_rule(framework: Framework, path: str) -> Rule:
    names = [role.lower() for role in framework.roles]
    expected = f"{', '.join(framework.roles[:-1])} or {framework.roles[-1]}".removeprefix(" or ")
    return Rule(
        path,
        f"self.size() > 0 && self.all(r, r.matches('(?i)^({'|'.join(names)})$'))",
        lambda roles, old: (
            not isinstance(roles, dict) or (bool(roles) and all(role.lower() in names for role in roles))
        ),
        f"the roles of a {framework.kind} are {expected}",
        detail=lambda roles: (
            f"{', '.join(str(role) for role in roles if role not in framework.roles) or 'an empty map'} is no role "
            f"of a {framework.kind}; write {expected}"
        ),
    )


def _spellings_rule(framework: Framework, path: str) -> Rule:
    """A role is written once: `Worker` and `worker` would have one name for their pods."""

    known = {role.lower() for role in framework.roles}

    def spellings(roles: Json) -> list[str]:
        names = [role.lower() for role in roles if role.lower() in known]
        return [role for role in roles if names.count(role.lower()) > 1]

    return Rule(
        path,
        " && ".join(f"self.filter(r, r.matches('(?i)^{role}$')).size() < 2" for role in framework.roles),
        lambda roles, old: not isinstance(roles, dict) or not spellings(roles),
        "a role stands here in several spellings, such as Worker and worker: write it once",
        detail=lambda roles: f"{' and '.join(spellings(roles))} are one role: write it once",
    )


def _container_rules(framework: Framework, path: str) -> tuple[Rule, ...]:
    """Each role has the container whose exit code counts, and each container an image. Only a missing template is a
    matter of the role: with rules of the role that read the containers, each write of a job took 0.7 ms longer, its
    status included."""
    containers = "template.spec.containers"
    if framework.main_is_first:
        cel, text = "self.size() > 0", "must have a container: the exit code of the first one is the replica's"
    else:
        cel = f"self.exists(c, c.name == '{framework.container}')"
        text = f"must have at least one container with name {framework.container}: its exit code is the replica's"

    def has_main(listed: list[Json], old: Any) -> bool:
        names = [container.get("name") for container in listed if isinstance(container, dict)]
        return bool(names) if framework.main_is_first else framework.container in names

    return (
        Rule(
            f"{path}{{}}",
            "has(self.template) && self.template != null",
            lambda role, old: role.get("template") is not None,
            text,
            field=containers,
        ),
        Rule(f"{path}{{}}.{containers}", cel, has_main, text),
        Rule(
            f"{path}{{}}.{containers}[].image",
            "self != ''",
            lambda image, old: image != "",
            "must not be empty: write the image of the container",
        ),
    )


def _fixed_rules(path: str) -> tuple[Rule, Rule]:
    """A field of runPolicy that is never set, removed or changed."""
    *parents, name = path.split(".")
    objects = [".".join(("runPolicy", *parents[:end])) for end in range(len(parents) + 1)]

    def is_set_cel(spec: str) -> str:
        checks = [f"has({spec}.{place}) && {spec}.{place} != null" for place in objects]
        return f"({' && '.join((*checks, f'has({spec}.runPolicy.{path})'))})"

    def is_set(spec: Json) -> bool:
        node = spec
        for parent in ("runPolicy", *parents):
            node = node.get(parent) or {}
        return node.get(name) is not None

    text = f"spec.runPolicy.{path} is immutable: make a new job"
    return (
        Rule(
            "spec",
            f"{is_set_cel('self')} == {is_set_cel('oldSelf')}",
            lambda new, old: is_set(new) == is_set(old),
            text,
            transition=True,
            field=f"runPolicy.{path}",
        ),
        Rule(
            f"spec.runPolicy.{path}",
            "self == oldSelf",
            lambda new, old: bool(new == old),
            text,
            transition=True,
        ),
    )


MULTIKUEUE = "kueue.x-k8s.io/multikueue"


def _managed_by_rule(managers: tuple[str, ...]) -> Rule:
    known = [*managers, MULTIKUEUE]
    return Rule(
        "spec.runPolicy.managedBy",
        f"self in {known}",
        lambda manager, old: manager in known,
        f"managedBy names the controller of the job: {', '.join(known[:-1])} or {known[-1]}",
    )

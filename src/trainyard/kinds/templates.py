"""Pod templates: user property. They are merged, never modelled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from msgspec import Meta

from trainyard.core import Job, Rule
from trainyard.core.status import MOST_REPLICAS
from trainyard.kinds.pod_templates import pod_template
from trainyard.objects import Json, decode, encode
from trainyard.objects.words import short

KEEP = {"x-kubernetes-preserve-unknown-fields": True}
NULL = {"nullable": True}
MAX_REPLICAS = MOST_REPLICAS

PodTemplate = Annotated[
    dict[str, Any],
    Meta(
        extra_json_schema=pod_template(
            {"properties": {"name": {"type": "string", "minLength": 1, "maxLength": 63}}},
            **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        )
    ),
]
"""A PodTemplateSpec, each of whose containers has a name of its own."""


def containers_of(template: object) -> list[Json]:
    """The containers of a template, malformed ones left out."""
    spec = template.get("spec") if isinstance(template, dict) else None
    found = spec.get("containers") if isinstance(spec, dict) else None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def has_container(template: object, name: str) -> bool:
    return any(one.get("name") == name for one in containers_of(template))


def copied(template: Json) -> Json:
    """A template of our own to change: the user's object is never touched."""
    fresh: Json = decode(encode(template))
    spec = fresh.get("spec")
    fresh["spec"] = spec if isinstance(spec, dict) else {}
    fresh["spec"]["containers"] = containers_of(fresh)
    return fresh


RESTART_POLICIES = ("Always", "OnFailure", "Never")
"""Of a pod: Kubernetes' own words."""


def restart_policy_is_known(path: str) -> Rule:
    """The template of what stands at `path` has a restartPolicy that Kubernetes knows, or none (S36). Null and "" count
    as none, as they do there."""
    template = "self.template"
    policy = f"{template}.spec.restartPolicy"
    words = f"{', '.join(RESTART_POLICIES[:-1])} or {RESTART_POLICIES[-1]}"
    return Rule(
        path,
        f"!has({template}) || {template} == null || !has({template}.spec) || !has({policy}) || dyn({policy}) == null"
        f" || {policy} in {['', *RESTART_POLICIES]}",
        lambda value, old: _is_known(spec_of(value.get("template")).get("restartPolicy")),
        f"is no restartPolicy of a pod: write {words}, or leave it out",
        detail=lambda value: (
            f"{short(str(spec_of(value['template'])['restartPolicy']))} is no restartPolicy of a pod: "
            f"write {words}, or leave it out"
        ),
        at="template.spec.restartPolicy",
    )


def _is_known(policy: object) -> bool:
    return not isinstance(policy, str) or policy in ("", *RESTART_POLICIES)


def whole(value: object) -> int | None:
    """A whole number, None for anything else. To a schema 2.0 is one, too."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def templates_of(value: object, path: str) -> Iterator[tuple[str, Json]]:
    """The pod templates of a spec, with their paths. They hold no others."""
    if isinstance(value, dict):
        for name, below in value.items():
            if name == "template" and isinstance(below, dict):
                yield f"{path}.{name}", below
            else:
                yield from templates_of(below, f"{path}.{name}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from templates_of(item, f"{path}[{index}]")


def spec_of(template: object) -> Json:
    """The pod spec of a template, {} when it has none."""
    found = template.get("spec") if isinstance(template, dict) else None
    return found if isinstance(found, dict) else {}


def append(within: Json, name: str, *items: Any, first: bool = False) -> None:
    """Adds to a list of the user's, after it or before. What is no list stays: the API server says so and where."""
    given = within.get(name)
    if given is None or isinstance(given, list):
        within[name] = [*items, *(given or [])] if first else [*(given or []), *items]


_OF_A_POD = ("securityContext", "tolerations", "imagePullSecrets")
_EVERYWHERE = ("cpu", "memory", "ephemeral-storage")
"""Resources that any program needs; of others, such as GPUs, a program has to ask for its own."""


def like(spec: Json, container: Json, template: object, name: str) -> None:
    """Gives a pod of ours, where it does not say so itself, what the cluster asks of every pod: as the user's own pod
    `template` and its container `name` have it."""
    own = spec_of(template)
    for field in _OF_A_POD:
        if own.get(field) and field not in spec:
            spec[field] = own[field]
    theirs = next((one for one in containers_of(template) if one.get("name") == name), {})
    if theirs.get("securityContext") and "securityContext" not in container:
        container["securityContext"] = theirs["securityContext"]
    given = theirs.get("resources")
    kept = {
        part: {name: size for name, size in sizes.items() if name in _EVERYWHERE}
        for part, sizes in (given.items() if isinstance(given, dict) else ())
        if part in ("requests", "limits") and isinstance(sizes, dict)
    }
    if any(kept.values()) and "resources" not in container:
        container["resources"] = {part: sizes for part, sizes in kept.items() if sizes}


QUEUES = "kueue.x-k8s.io/"


def with_labels_of(job: Job) -> Json:
    """The metadata by which people and tools find a child as they find its job: the job's own labels.

    Not those of Kueue: the job stands in a queue as a whole, and a part with that label would stand there once more.
    """
    labels = job.wire.get("metadata", {}).get("labels")
    if not isinstance(labels, dict):
        return {}
    return {"labels": {name: value for name, value in labels.items() if not name.startswith(QUEUES)}}


def append_env(container: Json, *pairs: tuple[str, str]) -> None:
    """Adds variables after the user's own; of two with one name Kubernetes takes the later."""
    append(container, "env", *({"name": name, "value": value} for name, value in pairs))


def append_volume(template: Json, volume: Json) -> None:
    append(template["spec"], "volumes", volume)

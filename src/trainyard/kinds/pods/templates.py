"""Functions on pod templates. They are plain dicts of the user: copied and extended, never parsed into a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from trainyard.core import Job, Rule
from trainyard.kinds.pods.pod_templates import pod_template_schema
from trainyard.objects import Json, decode, encode
from trainyard.objects.yaml_scalars import shorten

PRESERVE_UNKNOWN = {"x-kubernetes-preserve-unknown-fields": True}
NULLABLE = {"nullable": True}
MAX_CONTAINERS = 100
"""Of a template: an API server refuses a rule about each item of a list without a limit."""

CONTAINER_FIELDS: Json = {"name": {"type": "string", "minLength": 1, "maxLength": 63}}
UNIQUE_NAMES: Json = {
    "maxItems": MAX_CONTAINERS,
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name"],
}
PodTemplate = Annotated[
    dict[str, Any],
    Meta(extra_json_schema=pod_template_schema({"properties": CONTAINER_FIELDS}, **UNIQUE_NAMES)),
]
"""A PodTemplateSpec whose containers have unique names."""


def containers_of(template: object) -> list[Json]:
    """The containers of a template; malformed ones are left out."""
    spec = template.get("spec") if isinstance(template, dict) else None
    containers = spec.get("containers") if isinstance(spec, dict) else None
    if not isinstance(containers, list):
        return []
    return [container for container in containers if isinstance(container, dict)]


def has_container(template: object, name: str) -> bool:
    """Whether a pod template has a container of this name."""
    return any(container.get("name") == name for container in containers_of(template))


def copy_template(template: Json) -> Json:
    """A deep copy of the template, so that the user's object is never changed. It has a spec and containers."""
    copy: Json = decode(encode(template))
    spec = copy.get("spec")
    copy["spec"] = spec if isinstance(spec, dict) else {}
    copy["spec"]["containers"] = containers_of(copy)
    return copy


RESTART_POLICIES = ("Always", "OnFailure", "Never")
"""The values of restartPolicy in a pod spec."""


def restart_policy_rule(path: str) -> Rule:
    """The rule that the template of the object at `path` has a valid restartPolicy or none (S36).

    Null and "" count as none, as in Kubernetes.
    """
    values = f"{', '.join(RESTART_POLICIES[:-1])} or {RESTART_POLICIES[-1]}"
    text = f"is no restartPolicy of a pod: write {values}, or leave it out"
    return Rule(
        f"{path}.template.spec.restartPolicy",
        f"self in {['', *RESTART_POLICIES]}",
        lambda policy, old: not isinstance(policy, str) or policy in ("", *RESTART_POLICIES),
        text,
        detail=lambda policy: f"{shorten(policy)} {text}",
    )


def whole_number(value: object) -> int | None:
    """The value as an int when it is a whole number, None for anything else. 2.0 is one, as in the schema."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def spec_of(template: object) -> Json:
    """The pod spec of a template, {} when it has none."""
    spec = template.get("spec") if isinstance(template, dict) else None
    return spec if isinstance(spec, dict) else {}


def append_to_list(mapping: Json, name: str, *items: Any, first: bool = False) -> None:
    """Append items to the list field `name` of `mapping`, or with `first` prepend them.

    A field that is no list is left as it is: the API server rejects it with its path.
    """
    user_items = mapping.get(name)
    if user_items is None or isinstance(user_items, list):
        mapping[name] = [*items, *(user_items or [])] if first else [*(user_items or []), *items]


def names_of_variables(container: Json) -> set[str]:
    """The names of the environment variables that the template gives the container."""
    env = container.get("env")
    return {str(item.get("name")) for item in (env if isinstance(env, list) else ()) if isinstance(item, dict)}


def append_missing_variables(container: Json, variables: Mapping[str, str]) -> None:
    """Append those environment variables to the container that it does not have."""
    own = names_of_variables(container)
    missing = ({"name": name, "value": value} for name, value in variables.items() if name not in own)
    append_to_list(container, "env", *missing)


_COPIED_POD_FIELDS = ("securityContext", "tolerations", "imagePullSecrets")
_COPIED_RESOURCES = ("cpu", "memory", "ephemeral-storage")
"""Resources that every container needs; requests for others, such as GPUs, are not copied."""


def copy_required_fields(spec: Json, container: Json, template: object, name: str) -> None:
    """Copy fields that a cluster may require of every pod to a pod that Trainyard generates, where they are unset.

    The source is the pod `template` of the user and its container `name`. Changes `spec` and `container` in place.
    """
    user_spec = spec_of(template)
    for field in _COPIED_POD_FIELDS:
        if user_spec.get(field) and field not in spec:
            spec[field] = user_spec[field]
    user_container = next((entry for entry in containers_of(template) if entry.get("name") == name), {})
    if user_container.get("securityContext") and "securityContext" not in container:
        container["securityContext"] = user_container["securityContext"]
    resources = user_container.get("resources")
    copied_resources = {
        field: {resource: quantity for resource, quantity in quantities.items() if resource in _COPIED_RESOURCES}
        for field, quantities in (resources.items() if isinstance(resources, dict) else ())
        if field in ("requests", "limits") and isinstance(quantities, dict)
    }
    if any(copied_resources.values()) and "resources" not in container:
        container["resources"] = {field: quantities for field, quantities in copied_resources.items() if quantities}


KUEUE_PREFIX = "kueue.x-k8s.io/"


def labels_metadata_of(job: Job) -> Json:
    """Metadata for a child with the labels of the job, so that label selectors for the job also select its children.

    Labels of Kueue are left out: Kueue queues the job as a whole and would queue a labelled child a second time.
    """
    labels = job.obj.get("metadata", {}).get("labels")
    if not isinstance(labels, dict):
        return {}
    return {"labels": {name: value for name, value in labels.items() if not name.startswith(KUEUE_PREFIX)}}


def append_env(container: Json, *pairs: tuple[str, str]) -> None:
    """Append variables to `env`; of two with the same name Kubernetes uses the later."""
    append_to_list(container, "env", *({"name": name, "value": value} for name, value in pairs))


def append_volume(template: Json, volume: Json) -> None:
    """Add a volume to the pod template, in place."""
    append_to_list(template["spec"], "volumes", volume)

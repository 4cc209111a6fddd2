"""Accelerators: what the administrator's configuration adds to containers that ask for a resource (docs/rules.md I.9).

Injected into generated pods only, never into the user's object. Unlike the old operator, a volume name that the pod
has already is not added twice, and the order is the configuration's, not chance.
"""

from __future__ import annotations

from collections.abc import Mapping

from trainyard.kinds.templates import append, append_env, append_volume
from trainyard.objects import Json


def accelerate(template: Json, container: Json, accelerators: Mapping[str, Json]) -> None:
    """Adds volumes, mounts and variables for every accelerator that `container` names in its limits or requests."""
    resources = container.get("resources")
    parts = [resources.get(part) for part in ("limits", "requests")] if isinstance(resources, dict) else []
    asked = {name for part in parts if isinstance(part, dict) for name in part}
    for name, accelerator in accelerators.items():
        if name in asked:
            for volume in accelerator.get("volumes") or []:
                _mount(template, container, volume)
            pairs = [(str(one["name"]), str(one.get("value", ""))) for one in accelerator.get("envVars") or []]
            if pairs:
                append_env(container, *pairs)


def _mount(template: Json, container: Json, volume: Json) -> None:
    volumes, mounts = template["spec"].get("volumes"), container.get("volumeMounts")
    if volume["name"] not in _named(volumes, "name"):
        append_volume(template, {"name": volume["name"], "hostPath": {"path": volume["hostPath"]}})
    if volume["mountPath"] not in _named(mounts, "mountPath"):
        append(container, "volumeMounts", {"name": volume["name"], "mountPath": volume["mountPath"]})


def _named(listed: object, field: str) -> list[object]:
    return [one.get(field) for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []

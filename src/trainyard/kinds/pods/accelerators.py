"""Accelerators: volumes and variables for containers that request a resource, as configured (docs/rules.md I.9).

They are added to generated pods only, never to the user's object. Unlike the old operator, a volume name that the pod
already has is not added again, and the order is that of the configuration, not random.
"""

from __future__ import annotations

from collections.abc import Mapping

from trainyard.kinds.pods.templates import append_env, append_to_list, append_volume
from trainyard.objects import Json


def add_accelerators(template: Json, container: Json, accelerators: Mapping[str, Json]) -> None:
    """Add volumes, mounts and variables for every accelerator in the limits or requests of `container`.

    `accelerators` is the configuration, by resource name. Changes `template` and `container` in place.
    """
    resources = container.get("resources")
    quantities = [resources.get(field) for field in ("limits", "requests")] if isinstance(resources, dict) else []
    requested = {name for by_name in quantities if isinstance(by_name, dict) for name in by_name}
    for name, accelerator in accelerators.items():
        if name in requested:
            for volume in accelerator.get("volumes") or []:
                _add_volume_and_mount(template, container, volume)
            variables = [
                (str(entry["name"]), str(entry.get("value", ""))) for entry in accelerator.get("envVars") or []
            ]
            if variables:
                append_env(container, *variables)


def _add_volume_and_mount(template: Json, container: Json, volume: Json) -> None:
    volumes, mounts = template["spec"].get("volumes"), container.get("volumeMounts")
    if volume["name"] not in _field_values(volumes, "name"):
        append_volume(template, {"name": volume["name"], "hostPath": {"path": volume["hostPath"]}})
    if volume["mountPath"] not in _field_values(mounts, "mountPath"):
        append_to_list(container, "volumeMounts", {"name": volume["name"], "mountPath": volume["mountPath"]})


def _field_values(items: object, field: str) -> list[object]:
    return [item.get(field) for item in items if isinstance(item, dict)] if isinstance(items, list) else []

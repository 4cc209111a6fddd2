"""Accelerators: what the administrator's configuration adds to containers that ask for a resource (contract I.9).

Injected into generated pods only, never into the user's object. Unlike the old operator, a volume name that the pod
has already is not added twice, and the order is the configuration's, not chance.
"""

from __future__ import annotations

from collections.abc import Mapping

from trainyard.kinds.templates import append_env, append_volume
from trainyard.objects import Json


def accelerate(template: Json, container: Json, accelerators: Mapping[str, Json]) -> None:
    """Adds volumes, mounts and variables for every accelerator that `container` names in its limits or requests."""
    resources = container.get("resources") or {}
    asked = {*(resources.get("limits") or {}), *(resources.get("requests") or {})}
    for name, accelerator in accelerators.items():
        if name in asked:
            for volume in accelerator.get("volumes") or []:
                _mount(template, container, volume)
            pairs = [(str(one["name"]), str(one.get("value", ""))) for one in accelerator.get("envVars") or []]
            if pairs:
                append_env(container, *pairs)


def _mount(template: Json, container: Json, volume: Json) -> None:
    present = {one.get("name") for one in template["spec"].get("volumes") or [] if isinstance(one, dict)}
    if volume["name"] not in present:
        append_volume(template, {"name": volume["name"], "hostPath": {"path": volume["hostPath"]}})
    mounts = container.get("volumeMounts") or []
    if all(one.get("mountPath") != volume["mountPath"] for one in mounts):
        container["volumeMounts"] = [*mounts, {"name": volume["name"], "mountPath": volume["mountPath"]}]

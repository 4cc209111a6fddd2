"""Pod templates of the result: copies of the user's, with renamed containers."""

from __future__ import annotations

from typing import Any

from trainyard.kinds.pods.templates import containers_of, copy_template
from trainyard.objects import Json


def with_main_container(template: object, name: str, new_name: str) -> Json:
    """A copy of the template whose main container is called `new_name`. The main container is that called `name`, else
    the first one. References to its name (resourceFieldRef) follow."""
    copy = copy_template(template if isinstance(template, dict) else {})
    container = main_container(copy, name)
    old_name = container.get("name")
    if container:
        container["name"] = new_name
        # The name is the first field, as users write it.
        fields = {"name": new_name, **container}
        container.clear()
        container.update(fields)
    if old_name and old_name != new_name:
        _rename_references(copy, old_name, new_name)
    return copy


def main_container(template: Json, name: str) -> Json:
    """The container with that name, else the first one; {} when there is none."""
    containers = containers_of(template)
    named = [container for container in containers if container.get("name") == name]
    return next(iter([*named, *containers]), {})


def _rename_references(value: Any, old_name: str, new_name: str) -> None:
    if isinstance(value, list):
        for item in value:
            _rename_references(item, old_name, new_name)
    elif isinstance(value, dict):
        if value.get("containerName") == old_name:
            value["containerName"] = new_name
        for item in value.values():
            _rename_references(item, old_name, new_name)


def take_restart_policy(template: Json) -> str:
    """The template's restartPolicy, which is removed; "" when it is unset."""
    return str(template["spec"].pop("restartPolicy", None) or "")


def set_port(container: Json, name: str, port: int) -> None:
    """Give the container the named port, in place of one with the same number or name."""
    ports = [
        item for item in container.get("ports") or () if item.get("name") != name and item.get("containerPort") != port
    ]
    container["ports"] = [*ports, {"name": name, "containerPort": port}]


def add_variables(container: Json, variables: list[Json]) -> None:
    """Add environment variables; a variable of the same name is replaced, as the old operators' came last."""
    names = {variable["name"] for variable in variables}
    kept = [variable for variable in container.get("env") or () if variable.get("name") not in names]
    container["env"] = [*kept, *variables]

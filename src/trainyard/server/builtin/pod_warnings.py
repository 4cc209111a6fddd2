"""Warnings about a valid pod spec: names that are no labels, variables that hide others, fractional bytes."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.api_types.names import name_problem
from trainyard.objects import Json
from trainyard.objects.json_equal import json_equal
from trainyard.objects.quantities import number
from trainyard.schema.checks import json_text


def template_warnings(new: Json, old: Json | None) -> Iterator[str]:
    """The Warnings about an object with a pod template."""
    if old is None:
        yield from name_warnings(new, "Pod names and hostnames")
    template: Json = new["spec"]["template"]
    if old is None or not json_equal(template, old["spec"]["template"]):
        yield from pod_warnings(template["spec"], "spec.template.spec")


def name_warnings(new: Json, use: str) -> Iterator[str]:
    """A warning about a name that is no DNS label. `use`: for what the name is used."""
    name = new["metadata"].get("name") or ""
    if name and (problem := name_problem(name, "label")):
        text = f"this is used in {use}, which can result in surprising behavior; a DNS label is recommended"
        yield f"metadata.name: {text}: [{problem.text.removeprefix(f'Invalid value: {json_text(name)}: ')}]"


def pod_warnings(spec: Json, path: str) -> Iterator[str]:
    """The warnings. `path`: the path of the spec."""
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group) or ()):
            if resources := container.get("resources"):
                yield from _fractional_bytes(resources, f"{path}.{group}[{index}].resources")
            if variables := container.get("env"):
                yield from _hidden_variables(variables, f"{path}.{group}[{index}].env")


def _hidden_variables(variables: list[Json], path: str) -> Iterator[str]:
    """Warnings about variables with the name of an earlier one."""
    earlier_names: set[str] = set()
    for index, variable in enumerate(variables):
        name = variable.get("name") or ""
        if name in earlier_names:
            hidden = f"hides previous definition of {json_text(name)}, which may be dropped when using apply"
            yield f"{path}[{index}]: {hidden}"
        earlier_names.add(name)


def _fractional_bytes(resources: Json, path: str) -> Iterator[str]:
    for name in ("memory", "ephemeral-storage"):
        for kind in ("limits", "requests"):
            quantity = (resources.get(kind) or {}).get(name)
            if quantity is not None and number(quantity).denominator != 1:
                yield f'{path}.{kind}[{name}]: fractional byte value "{quantity}" is invalid, must be an integer'

"""Checks of the pods that a job would have: what an API server refuses, and what Linux cannot start."""

from __future__ import annotations

from collections.abc import Sequence

from trainyard.api_types.pod_templates import pod_problems
from trainyard.core import Config, Kind, Slot, parse_job
from trainyard.kinds.pods.templates import spec_of, templates_of
from trainyard.objects import Json, Problem, pod_containers
from trainyard.objects.quantities import is_quantity
from trainyard.objects.yaml_scalars import shorten

MAX_TEXT_BYTES = 128 << 10
"""Of a variable or an argument of a program under Linux with pages of 4 KiB (MAX_ARG_STRLEN)."""


def pod_problems_of(kind: Kind, obj: Json, schema_problems: Sequence[Problem]) -> list[Problem]:
    """What an API server would report only for the pods, of each template that the schema and the rules allow. A
    problem that the pods do not have any more passes: kinds add volumes that a template may mount, and names."""
    problems = _quantity_problems(obj)
    paths = [problem.path for problem in (*schema_problems, *problems)]
    for path, template in templates_of(obj.get("spec"), "spec"):
        if any(place == path or place.startswith((f"{path}.", f"{path}[")) for place in paths):
            continue
        if template_problems := pod_problems(template, path):
            rendered = _rendered_template(kind, obj, template) if not paths else template
            texts = {problem.text for problem in pod_problems(rendered, path)}
            problems += [problem for problem in template_problems if problem.text in texts]
    return problems


def _rendered_template(kind: Kind, obj: Json, template: Json) -> Json:
    """The template as the first pod of its role has it; itself where no role of the job has it."""
    job = parse_job(kind, obj, Config())
    role = next((role for role in job.roles if role.template == template), None)
    return kind.pods.mutate_pod_template(template, job, Slot(role.name, 0)) if role else template


def _quantity_problems(obj: Json) -> list[Problem]:
    """A problem for each resource of a container that is no quantity: `100mi`. The schema of a CRD cannot say it."""
    problems = []
    for path, template in templates_of(obj.get("spec"), "spec"):
        for part in ("initContainers", "containers"):
            containers = spec_of(template).get(part)
            for index, container in enumerate(containers if isinstance(containers, list) else ()):
                resources = container.get("resources") if isinstance(container, dict) else None
                for field in ("requests", "limits"):
                    quantities = resources.get(field) if isinstance(resources, dict) else None
                    for name, value in quantities.items() if isinstance(quantities, dict) else ():
                        if isinstance(value, str) and not is_quantity(value):
                            place = f"{path}.spec.{part}[{index}].resources.{field}.{name}"
                            text = (
                                f"{shorten(value)} is no quantity; write a number with a suffix, such as 500m, 2Gi or 1"
                            )
                            problems.append(Problem(place, text))
    return problems


def long_variables(kind: Kind, obj: Json) -> list[Problem]:
    """A problem for each variable and argument with which no program would start, the list of the addresses of all
    replicas or a text of the template. The job has no other problem."""
    job = parse_job(kind, obj, Config())
    problems = []
    for path, template in templates_of(obj.get("spec"), "spec"):
        role = next((role for role in job.roles if role.template == template and role.replicas), None)
        if role is None:
            continue
        own = _long_texts(template)
        pod_template = kind.pods.mutate_pod_template(template, job, Slot(role.name, role.replicas - 1))
        for name, size in _long_texts(pod_template).items():
            text = f"{name} would have {size} bytes, and Linux starts no program with one of more than {MAX_TEXT_BYTES}"
            fix = "pass the text in a file of a volume" if name in own else "write fewer replicas, or shorter names"
            problems.append(Problem(path.removesuffix(".template"), f"{text}; {fix}"))
    return problems


def _long_texts(template: Json) -> dict[str, int]:
    """The variables and arguments of the containers that are too long, with their size in bytes as the kernel counts
    it, which is with the name of a variable and the null byte at the end."""
    texts = []
    for container, _ in pod_containers(template):
        for variable in container.get("env") or ():
            texts.append((f"the variable {variable.get('name')}", f"{variable.get('name')}={variable.get('value')}"))
        for field in ("command", "args"):
            arguments = [str(argument) for argument in container.get(field) or ()]
            texts.append((f"the longest of {field}", max(arguments, key=len, default="")))
    sizes = [(name, len(text.encode()) + 1) for name, text in texts]
    return {name: size for name, size in sizes if size > MAX_TEXT_BYTES}

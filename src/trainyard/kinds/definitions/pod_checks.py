"""Checks of the pods that a job would have: what an API server refuses."""

from __future__ import annotations

from collections.abc import Sequence

from trainyard.api_types.pod_templates import pod_problems
from trainyard.core import Config, Kind, Slot, parse_job
from trainyard.kinds.pods.templates import spec_of
from trainyard.objects import Json, Problem, templates_of
from trainyard.objects.quantities import is_quantity
from trainyard.objects.yaml_scalars import shorten


def pod_problems_of(kind: Kind, obj: Json, schema_problems: Sequence[Problem]) -> list[Problem]:
    """What an API server would report only for the pods, of each template that the schema and the rules allow. A
    problem that the pods do not have any more passes: kinds add volumes that a template may mount, and names."""
    if kind.template_source:  # the spec has no whole pod templates, only patches of those in another object
        return []
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

"""Variables and arguments with which Linux starts no program, such as the list of the addresses of all replicas."""

from __future__ import annotations

from trainyard.core.kind import Job
from trainyard.core.model import Slot
from trainyard.objects import Json, Problem, pod_containers, templates_of

MAX_TEXT_BYTES = 128 << 10
"""Of a variable or an argument of a program under Linux with pages of 4 KiB (MAX_ARG_STRLEN)."""
FEW_REPLICAS = 900
"""The addresses of so few replicas always fit: each has at most two DNS labels of 63 bytes, `.svc`, a port and its
quotes."""


def long_variables(job: Job) -> list[Problem]:
    """A problem for each variable and argument that is too long, the addresses of all replicas or a text of the
    template. The job has no other problem."""
    problems = []
    for path, template in templates_of(job.obj.get("spec"), "spec"):
        role = next((role for role in job.roles if role.template == template and role.replicas), None)
        if role is None:
            continue
        own = _long_texts(template)
        pod_template = job.kind.pods.mutate_pod_template(template, job, Slot(role.name, role.replicas - 1))
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

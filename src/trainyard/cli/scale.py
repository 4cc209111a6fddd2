"""`trainyard scale JOB [ROLE=]N`: patch the job's scale subresource, if its kind has one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from trainyard.cli import options
from trainyard.cli.codes import BAD
from trainyard.cli.completion import job_names
from trainyard.cli.speaking import Here, Said, out, speak

if TYPE_CHECKING:
    from trainyard.cli.jobs import Found


@click.command()
@click.argument("job", shell_complete=job_names)
@click.argument("size", metavar="[ROLE=]N")
@options.cluster
def scale(job: str, size: str, **params: Any) -> None:
    """Change how many replicas a running job has, where its kind can take that.

    Example: trainyard scale elasticjob/imagenet 3
    """
    speak(params, lambda here: _scale(here, job, size))


async def _scale(here: Here, job: str, size: str) -> None:
    from trainyard.cli.jobs import find
    from trainyard.cli.view import ended

    role, _, number = size.rpartition("=")
    if not number.isdecimal() or not number.isascii() or len(number) > 9:
        raise Said(f"{size!r} is not a size; write a number, or ROLE=NUMBER", BAD)
    info = await find(here, job)
    if end := ended(info.kind, info.job):
        raise Said(f"{info.word} has ended ({end}): its size does not change any more")
    _check_scalable(info, role)
    body = {"spec": {"replicas": int(number)}}
    current = await here.api.get(info.gvk, info.namespace, info.name, "scale")
    await here.api.patch(info.gvk, info.namespace, info.name, body, "scale")
    out(f"{info.word} scaled from {(current.get('spec') or {}).get('replicas', 0)} to {int(number)}")


def _check_scalable(info: Found, role: str) -> None:
    """Raises Said if a running job of this kind, or this role, cannot be scaled."""
    from trainyard.core import Config, parse_job

    roles = [replica_role.name for replica_role in parse_job(info.kind, info.job, Config()).parsed.roles]
    if role and role.lower() not in (name.lower() for name in roles):
        raise Said(f"{info.word} has no role {role}; it has: {', '.join(roles) or 'none'}", BAD)
    if info.kind.scale:
        scaled = [part for part in info.kind.scale.get("specReplicasPath", "").split(".") if part]
        names = [name for name in roles if name in scaled] or roles
        if role and role.lower() not in (name.lower() for name in names):
            raise Said(f"{info.word}: its {role} cannot be scaled; these can: {', '.join(names)}", BAD)
        return
    kind = info.kind.gvk.kind
    if any(info.kind.on_template_change(name) for name in roles if not role or name.lower() == role.lower()):
        text = "edit the replicas in its spec (kubectl edit, or kubectl apply); it follows the edit"
        raise Said(f"{info.word}: a {kind} has no scale subresource; {text}")
    fixed = "what shapes its cluster is fixed once it has started, its program knows the size from its environment"
    fix = f"trainyard suspend {info.word}, edit the spec, trainyard resume {info.word}; or make a new job"
    raise Said(f"{info.word}: a {kind} cannot be scaled while it runs: {fixed}. To change it: {fix}")

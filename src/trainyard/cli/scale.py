"""`trainyard scale JOB [ROLE=]N`: patch the job's scale subresource, if its kind has one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from trainyard.cli import options
from trainyard.cli.cluster_command import ClusterContext, CommandError, print_output, run_with_cluster
from trainyard.cli.codes import INVALID
from trainyard.cli.completion import job_names

if TYPE_CHECKING:
    from trainyard.cli.jobs import JobInfo


@click.command()
@click.argument("job", shell_complete=job_names)
@click.argument("size", metavar="[ROLE=]N")
@options.cluster
def scale(job: str, size: str, **params: Any) -> None:
    """Change how many replicas a running job has, where its kind can take that.

    Example: trainyard scale elasticjob/imagenet 3
    """
    run_with_cluster(params, lambda context: _scale(context, job, size))


async def _scale(context: ClusterContext, job: str, size: str) -> None:
    from trainyard.cli.jobs import get_job
    from trainyard.views.job_view import job_result

    role, _, number = size.rpartition("=")
    if not number.isdecimal() or not number.isascii() or len(number) > 9:
        raise CommandError(f"{size!r} is not a size; write a number, or ROLE=NUMBER", INVALID)
    info = await get_job(context, job)
    if end := job_result(info.job):
        raise CommandError(f"{info.reference} has ended ({end}): its size does not change any more")
    _check_scalable(info, role)
    body = {"spec": {"replicas": int(number)}}
    current = await context.api.get(info.gvk, info.namespace, info.name, "scale")
    await context.api.patch(info.gvk, info.namespace, info.name, body, "scale")
    print_output(f"{info.reference} scaled from {(current.get('spec') or {}).get('replicas', 0)} to {int(number)}")


def _check_scalable(info: JobInfo, role: str) -> None:
    """Raises CommandError if a running job of this kind, or this role, cannot be scaled."""
    from trainyard.core import Config, parse_job

    roles = [replica_role.name for replica_role in parse_job(info.kind, info.job, Config()).parsed.roles]
    if role and role.lower() not in (name.lower() for name in roles):
        raise CommandError(f"{info.reference} has no role {role}; it has: {', '.join(roles) or 'none'}", INVALID)
    if info.kind.api.scale:
        scaled = [part for part in info.kind.api.scale.get("specReplicasPath", "").split(".") if part]
        names = [name for name in roles if name in scaled] or roles
        if role and role.lower() not in (name.lower() for name in names):
            raise CommandError(f"{info.reference}: its {role} cannot be scaled; these can: {', '.join(names)}", INVALID)
        return
    kind = info.kind.gvk.kind
    if any(info.kind.lifecycle.follows_edits(name) for name in roles if not role or name.lower() == role.lower()):
        text = "edit the replicas in its spec (kubectl edit, or kubectl apply); it follows the edit"
        raise CommandError(f"{info.reference}: a {kind} has no scale subresource; {text}")
    fixed = "what shapes its cluster is fixed once it has started, its program knows the size from its environment"
    fix = f"trainyard suspend {info.reference}, edit the spec, trainyard resume {info.reference}; or make a new job"
    raise CommandError(f"{info.reference}: a {kind} cannot be scaled while it runs: {fixed}. To change it: {fix}")

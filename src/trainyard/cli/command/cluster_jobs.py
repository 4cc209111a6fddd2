"""The current jobs of a background cluster, listed with a timeout."""

from __future__ import annotations

import asyncio
import os
from collections import Counter

from trainyard.app.background.clusters import Background
from trainyard.app.kubeconfig import KubeconfigError, read_kubeconfig
from trainyard.objects.usage import DeviceUsage

MAX_JOBS_SHOWN = 6


async def list_cluster_jobs(cluster: Background, seconds: float) -> list[tuple[str, str, str]] | None:
    """(kind, namespace/name, state) of every job; None when the cluster does not answer within `seconds`."""
    from trainyard.cli.command.cluster_command import ClusterContext, CommandError
    from trainyard.cli.command.jobs import list_jobs
    from trainyard.client import ApiError
    from trainyard.views.job_view import job_state

    try:
        access = read_kubeconfig([cluster.kubeconfig])
        async with asyncio.timeout(seconds), access.command_api() as api:
            infos = await list_jobs(ClusterContext(api, "", access))
    except (KubeconfigError, CommandError, ApiError, OSError, ValueError, TimeoutError):
        return None
    return [(info.kind.gvk.kind, f"{info.namespace}/{info.name}", job_state(info.job)) for info in infos]


async def list_warnings(cluster: Background, seconds: float) -> list[str]:
    """What is wrong with the progress of jobs that run; [] when the cluster does not answer within `seconds`."""
    from trainyard.app.evidence.pod_metrics import progress_warnings
    from trainyard.cli.command.cluster_command import ClusterContext, CommandError
    from trainyard.cli.command.jobs import list_jobs
    from trainyard.client import ApiError
    from trainyard.objects.labels import OWNER
    from trainyard.objects.resources import POD

    try:
        access = read_kubeconfig([cluster.kubeconfig])
        async with asyncio.timeout(seconds), access.command_api() as api:
            infos = await list_jobs(ClusterContext(api, "", access))
            pods = (await api.list(POD, "", OWNER)).get("items") or []
            return await progress_warnings(api, "", [info.job for info in infos], pods)
    except (KubeconfigError, CommandError, ApiError, OSError, ValueError, TimeoutError):
        return []


async def list_devices(cluster: Background, seconds: float) -> list[DeviceUsage]:
    """The GPUs of the cluster; [] when it does not answer within `seconds`, and without a request on a machine that has
    no driver."""
    from trainyard.node.devices.drivers import has_amd_driver, has_nvidia_driver

    if not (has_nvidia_driver(os.environ) or has_amd_driver()):
        return []
    from trainyard.app.evidence.pod_metrics import read_devices

    try:
        access = read_kubeconfig([cluster.kubeconfig])
        async with asyncio.timeout(seconds), access.command_api() as api:
            return await read_devices(api)
    except (KubeconfigError, OSError, ValueError, TimeoutError):
        return []


def job_texts(jobs: list[tuple[str, str, str]]) -> list[str]:
    """A text "KIND NAME (STATE)" for each of the first MAX_JOBS_SHOWN jobs, and the number of the others."""
    texts = [f"{kind} {name} ({state})" for kind, name, state in jobs[:MAX_JOBS_SHOWN]]
    return [*texts, f"and {len(jobs) - MAX_JOBS_SHOWN} more"] if len(jobs) > MAX_JOBS_SHOWN else texts


def count_by_kind_and_state(jobs: list[tuple[str, str, str]]) -> list[str]:
    """The numbers of jobs by kind and state, a line per kind: "TfJob: 1 Running, 2 Succeeded"."""
    lines = []
    for kind in dict.fromkeys(kind for kind, _, _ in jobs):
        states = Counter(state for job_kind, _, state in jobs if job_kind == kind)
        lines.append(f"{kind}: " + ", ".join(f"{count} {state}" for state, count in states.items()))
    return lines

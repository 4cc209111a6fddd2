"""The prefixes of log lines: the replica, and the container where a pod has several. Pure."""

from __future__ import annotations

from trainyard.core import Config, parse_job
from trainyard.kinds import kind_of
from trainyard.objects import as_dict
from trainyard.views.job_view import JobView


def log_prefix(label: str, container: str, init: bool, containers: int) -> str:
    """The prefix of a container's log lines. `label`: that of its replica; `containers`: the number of the pod's
    containers without its init containers.

    The only container of a pod has the label alone, whether or not the pod has init containers."""
    return f"{label}/{container}" if init or containers != 1 else label


def log_prefixes(view: JobView, role_name: str = "") -> list[str]:
    """The prefixes of the log lines of the containers (not of init containers) of the last replica of each role,
    according to the jobs' specs. `role_name`: only this role; "" for all."""
    prefixes = []
    for uid, job in view.jobs.items():
        kind = kind_of(job)
        for role in parse_job(kind, job, Config()).roles if kind else ():
            if role_name.lower() in ("", role.name.lower()):
                label = view.slot_label(uid, f"{role.name.lower()}-{max(0, role.replicas - 1)}")
                pod_spec = as_dict(as_dict(role.template).get("spec"))
                names = [str(as_dict(container).get("name")) for container in pod_spec.get("containers") or []]
                prefixes += [log_prefix(label, name, False, len(names)) for name in names]
    return prefixes

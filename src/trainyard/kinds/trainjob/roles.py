"""Reads a TrainJob: its policies, and with the snapshot of its runtime its roles, one for each replicated job."""

from __future__ import annotations

from functools import cache

from trainyard.core import ParsedSpec, Policy, Role
from trainyard.core.names import digest
from trainyard.kinds.pods.templates import PRESERVE_UNKNOWN, whole_number
from trainyard.kinds.trainjob import admission, failure_policy
from trainyard.kinds.trainjob.pod_sets import NODE, PodSet
from trainyard.kinds.trainjob.render import render
from trainyard.kinds.trainjob.spec import TrainJobSpec
from trainyard.objects import Json, Problem
from trainyard.objects.structs import replace
from trainyard.schema import Schema, from_struct

DEFAULT_BACKOFF_LIMIT = 6
"""Of a batch Job."""
MAX_NAME = 63


@cache
def _schema() -> Schema:
    return Schema.trusted({**from_struct(TrainJobSpec), **PRESERVE_UNKNOWN})


def read(spec: Json, name: str) -> ParsedSpec:
    """The job without its runtime: no roles."""
    problems = _schema().validate(_schema().default(spec), "spec")
    return ParsedSpec((), _policy(spec), spec, tuple(problems))


def read_with_runtime(spec: Json, name: str, runtime: Json) -> ParsedSpec:
    """The job with the replicated jobs of its runtime."""
    parsed = read(spec, name)
    if parsed.problems:
        return parsed
    job = {"metadata": {"name": name}, "spec": spec}
    try:
        # Without a webhook, as on a cluster, nobody has asked this before the job was stored.
        if refused := [*admission.unusable_runtime(runtime), *admission.refusals(job, runtime)]:
            return replace(parsed, problems=tuple(refused))
        job_set = job_set_of(spec, name, runtime)
        roles = tuple(map(_role, replicated_jobs(job_set)))
        problems = (*failure_policy.problems(job_set), *_long_names(name, roles))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        text = f"the runtime in status.trainyard.snapshot cannot be rendered: {type(error).__name__}: {error}"
        return replace(parsed, problems=(Problem("spec.runtimeRef", text),))
    ttl = whole_number(job_set["spec"].get("ttlSecondsAfterFinished"))
    policy = replace(parsed.policy, ttl_seconds_after_finished=ttl)
    return replace(parsed, roles=roles, policy=policy, problems=problems)


def job_set_of(spec: Json, name: str, runtime: Json) -> Json:
    """The document of the JobSet that Trainer would make."""
    return render({"metadata": {"name": name}, "spec": spec}, runtime).job_set


def replicated_jobs(job_set: Json) -> list[Json]:
    """The replicated jobs of a JobSet, in their order."""
    jobs: list[Json] = job_set["spec"]["replicatedJobs"]
    return jobs


def _policy(spec: Json) -> Policy:
    """Pods that still run are deleted at the end, as with their Jobs; those that have ended keep their logs."""
    managed_by = spec.get("managedBy")
    return Policy(
        clean_pod_policy="Running",
        active_deadline_seconds=whole_number(spec.get("activeDeadlineSeconds")),
        suspend=spec.get("suspend") is True,
        managed_by=managed_by if isinstance(managed_by, str) else "",
    )


def _role(replicated_job: Json) -> Role:
    pod_set = PodSet(replicated_job, 1)
    limit = whole_number(pod_set.job_spec.get("backoffLimit"))
    names = [container["name"] for container in pod_set.pod_spec["containers"]]
    main = next((name for name in (NODE, pod_set.ancestor) if name in names), names[0])
    return Role(
        pod_set.name,
        int(pod_set.job_spec["parallelism"]),
        0,
        pod_set.pod_template,
        digest(replicated_job),
        main,
        DEFAULT_BACKOFF_LIMIT if limit is None else limit,
    )


def _long_names(name: str, roles: tuple[Role, ...]) -> list[Problem]:
    """A problem if a pod's name would be too long. JobSet refuses such names when the TrainJob has been stored."""
    longest = max((f"{role.name}-0-{max(role.replicas - 1, 0)}-" for role in roles), key=len, default="")
    most = MAX_NAME - len(f"-{longest}12345")
    if len(name) <= most:
        return []
    text = f"has {len(name)} characters: with this runtime the names of its pods allow {most}; choose a shorter one"
    return [Problem("metadata.name", text)]

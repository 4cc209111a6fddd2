"""Annotations of a job with which a user changes what Trainyard does with it, and values that are not understood."""

from __future__ import annotations

from trainyard.core.kind import Job
from trainyard.core.policies import progress
from trainyard.core.policies.restart_limit import MAX_LIMIT, RESTART_LIMIT, parse_limit
from trainyard.objects import Problem
from trainyard.objects.meta import annotations_of


def annotation_problems(job: Job) -> tuple[Problem, ...]:
    """A problem for each annotation whose value is not understood, so that it has no effect."""
    annotations = {name: value for name, value in annotations_of(job.obj).items() if isinstance(value, str)}
    problems = (*progress.annotation_problems(annotations), *job.kind.api.annotation_problems(job))
    if RESTART_LIMIT in annotations and parse_limit(annotations[RESTART_LIMIT]) is None:
        text = (
            f"has no effect as {annotations[RESTART_LIMIT]!r}: write at most {MAX_LIMIT} restarts, a slash and a time "
            "in s, m, h or d, such as 5/1h, or leave it out"
        )
        return (Problem(annotation_path(RESTART_LIMIT), text), *problems)
    return problems


def annotation_path(name: str) -> str:
    """The path of a problem with an annotation."""
    return f"metadata.annotations[{name}]"

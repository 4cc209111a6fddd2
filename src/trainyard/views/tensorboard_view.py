"""The TensorBoard of a job: the pod that serves it, or why none does."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from trainyard.objects import Json, as_dict, namespace_of
from trainyard.views.job_view import job_result, job_state
from trainyard.views.replica_view import replica_view

ROLE = "tensorboard"  # in the view of its pod, which is no replica


class TensorBoardView(msgspec.Struct, frozen=True):
    """The TensorBoard that a job asks for. `pod`: the name of its pod that runs; "" with a `message` why none does."""

    pod: str = ""
    message: str = ""


def tensorboard_view(job: Json, pods: Iterable[Json]) -> TensorBoardView | None:
    """The TensorBoard of a job; None for a job that asks for none. `pods`: those with the label of the job. Pods of
    other namespaces, where somebody else may write that label, are none of its."""
    spec = as_dict(job.get("spec"))
    if not as_dict(spec.get("tensorboard") or spec.get("tensorBoard")):
        return None
    views = [replica_view(pod) for pod in pods if namespace_of(pod) == namespace_of(job)]
    views = [view for view in views if view.role == ROLE and not view.index]
    newest = max(views, key=lambda view: (view.state == "Running", view.created), default=None)
    if newest is None:
        if job_state(job) == "Suspended":
            return TensorBoardView(message="the job is suspended")
        text = "the job has ended, and its pod is gone" if job_result(job) else "it has no pod yet"
        return TensorBoardView(message=text)
    if newest.state != "Running":
        return TensorBoardView(message=newest.blocked or f"its pod is {newest.state}")
    return TensorBoardView(newest.pod)

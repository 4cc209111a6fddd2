"""TensorBoard for a job: a Deployment and a Service, as in the README (docs/rules.md I.8)."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from trainyard.core import AuxiliaryObject, Job
from trainyard.kinds.pods.templates import NULLABLE, PRESERVE_UNKNOWN, copy_required_fields
from trainyard.objects import Json
from trainyard.objects.resources import DEPLOYMENT, SERVICE

PORT = 6006
MASTER, CONTAINER = "MASTER", "tensorflow"  # the role and container whose security context and the like are copied
EVERYWHERE = "0.0.0.0"  # noqa: S104  # in its pod, behind a ClusterIP Service


class TensorBoard(msgspec.Struct, kw_only=True):
    """A TensorBoard instance for the job."""

    logDir: Annotated[str | None, Meta(description="The directory of the event files. Required.")] = None
    volumes: Annotated[
        list[Annotated[dict[str, Any], Meta(extra_json_schema=PRESERVE_UNKNOWN)]] | None,
        Meta(extra_json_schema=NULLABLE),
    ] = None
    volumeMounts: Annotated[
        list[Annotated[dict[str, Any], Meta(extra_json_schema=PRESERVE_UNKNOWN)]] | None,
        Meta(extra_json_schema=NULLABLE),
    ] = None
    serviceType: Annotated[str | None, Meta(description="Type of the Service; by default ClusterIP.")] = None


def tensorboard(job: Job, labels: Json) -> tuple[AuxiliaryObject, ...]:
    """The Service and the Deployment; () when the spec has no tensorboard."""
    spec = job.parsed.spec.get("tensorboard") or job.parsed.spec.get("tensorBoard")
    if not isinstance(spec, dict):
        return ()
    name = f"tensorboard-{job.runtime_id}"
    labels = {**labels, "app": "tensorboard"}
    return (
        AuxiliaryObject(SERVICE, name, lambda: _service(spec, labels), create_after_replicas=True),
        AuxiliaryObject(
            DEPLOYMENT,
            name,
            lambda: _deployment(job, name, spec, labels),
            deleted_on_suspend=True,
            create_after_replicas=True,
        ),
    )


def _service(spec: Json, labels: Json) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"labels": labels},
        "spec": {
            "type": spec.get("serviceType") or "ClusterIP",
            "selector": labels,
            "ports": [{"name": "tb-port", "port": 80, "targetPort": PORT}],
        },
    }


def _deployment(job: Job, name: str, spec: Json, labels: Json) -> Json:
    container: Json = {
        "name": name,
        "image": job.parsed.spec["tfImage"],
        "command": ["tensorboard", "--logdir", spec.get("logDir"), "--host", EVERYWHERE],
        "ports": [{"containerPort": PORT}],
    }
    pod: Json = {"containers": [container]}
    master = job.role(MASTER)
    copy_required_fields(pod, container, master.template if master else None, CONTAINER)
    if spec.get("volumeMounts"):
        container["volumeMounts"] = spec["volumeMounts"]
    if spec.get("volumes"):
        pod["volumes"] = spec["volumes"]
    return {
        "apiVersion": DEPLOYMENT.api_version,
        "kind": "Deployment",
        "metadata": {"labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }

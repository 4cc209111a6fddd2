"""Job objects and pod templates for scripts, which the kinds share (core/scripts.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainyard.core.scripts import JobOptions
from trainyard.objects import Json


def job_object(
    api_version: str, kind: str, options: JobOptions, spec: Json, annotations: Mapping[str, str] | None = None
) -> Json:
    """The job that `trainyard run SCRIPT` submits."""
    metadata: Json = {"name": options.name, **({"annotations": dict(annotations)} if annotations else {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def pod_template(
    options: JobOptions,
    container: str,
    command: tuple[str, ...],
    *,
    args: tuple[str, ...] = (),
    env: Mapping[str, Any] | None = None,
    restart: str = "",
    computes: bool = True,
) -> Json:
    """A pod template with one container. A variable in `options.env` replaces one of the same name in `env`.

    computes: it has the devices of a worker."""
    variables = {**(env or {}), **options.env}
    env_vars = [{"name": name, **_env_value(value)} for name, value in variables.items()]
    mounts = [{"name": f"mount-{index}", "mountPath": path} for index, (_, path) in enumerate(options.mounts)]
    volumes = [
        {"name": f"mount-{index}", "hostPath": {"path": folder, "type": "Directory"}}
        for index, (folder, _) in enumerate(options.mounts)
    ]
    container_spec: Json = {"name": container, "image": options.image, "command": list(map(_escape_expansion, command))}
    container_spec |= {"args": list(map(_escape_expansion, args))} if args else {}
    container_spec |= {"env": env_vars} if env_vars else {}
    container_spec |= {"volumeMounts": mounts} if mounts else {}
    if options.devices and computes:
        container_spec["resources"] = {"limits": dict(options.devices)}
    spec: Json = {"restartPolicy": restart} if restart else {}
    return {"spec": {**spec, "containers": [container_spec], **({"volumes": volumes} if volumes else {})}}


def _env_value(value: Any) -> Json:
    return {"value": _escape_expansion(value)} if isinstance(value, str) else value


def _escape_expansion(text: str) -> str:
    """Escape $ so that Kubernetes keeps the text as it is: it expands $(NAME) to the variable's value, and $$ to $."""
    return text.replace("$", "$$") if "$(" in text or "$$" in text else text

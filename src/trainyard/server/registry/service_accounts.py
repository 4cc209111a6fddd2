"""The ServiceAccount admission of pods, and the TokenRequest API.

Rules, as in kube-apiserver:
- A pod without spec.serviceAccountName runs as `default`. Any other ServiceAccount must exist; `default` may be created
  later.
- Every container gets a volume mount with token, CA certificate and namespace, unless automountServiceAccountToken of
  the pod or of the ServiceAccount is false, or the container already has a mount at that path.
- A token bound to a pod is issued only when the pod runs as that ServiceAccount.
"""

from __future__ import annotations

import random
from typing import Any

from trainyard.objects import Json, Problem, format_time
from trainyard.schema.checks import json_text
from trainyard.server.auth.tokens import ACCOUNTS, PODS, TokenAuthority
from trainyard.server.model import errors
from trainyard.server.model.context import RequestContext
from trainyard.server.registry.metadata import SUFFIX, requested_name

TOKEN_MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 (no secret)
TOKEN_VOLUME_PREFIX = "kube-api-access-"  # noqa: S105 (no secret)
ROOT_CA = "kube-root-ca.crt"
POD_TOKEN_SECONDS = 3607
DEFAULT_SECONDS, MIN_SECONDS, MAX_SECONDS = 3600, 600, 2**32


def admit_pod(new: Json, old: Json | None, context: RequestContext) -> None:
    """Apply the ServiceAccount to a new pod: imagePullSecrets and the token volume. Raises StatusError 403 when the
    pod names a ServiceAccount that does not exist."""
    if old is not None:
        return
    meta, spec = new["metadata"], new["spec"]
    name = spec["serviceAccountName"]
    account = context.get(ACCOUNTS, meta.get("namespace", ""), name)
    if account is None and name != "default":
        reason = f'error looking up service account {meta["namespace"]}/{name}: serviceaccount "{name}" not found'
        raise errors.forbidden("pods", "", requested_name(meta) or "Unknown", errors.printable(reason))
    account = account or {}
    if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
        spec["imagePullSecrets"] = account["imagePullSecrets"]
    if context.reachable and _automounts_token(spec, account):
        _mount_token(spec)


def _automounts_token(spec: Json, account: Json) -> bool:
    if isinstance(automount := spec.get("automountServiceAccountToken"), bool):
        return automount
    return account.get("automountServiceAccountToken") is not False


def _mount_token(spec: Json) -> None:
    """Add the token volume, and a mount to each container that has no mount at FOLDER."""
    containers = [container for group in ("initContainers", "containers") for container in spec.get(group) or ()]
    unmounted = [
        container
        for container in containers
        if all(mount.get("mountPath") != TOKEN_MOUNT_PATH for mount in container.get("volumeMounts") or ())
    ]
    if not unmounted:
        return
    volumes = list(spec.get("volumes") or ())
    names = (volume.get("name", "") for volume in volumes if volume.get("projected"))
    volume_name = next((name for name in names if name.startswith(TOKEN_VOLUME_PREFIX)), "")
    if not volume_name:
        volume_name = TOKEN_VOLUME_PREFIX + "".join(random.choices(SUFFIX, k=5))
        spec["volumes"] = [*volumes, _token_volume(volume_name)]
    for container in unmounted:
        mount = {"name": volume_name, "readOnly": True, "mountPath": TOKEN_MOUNT_PATH}
        container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mount]


def _token_volume(name: str) -> Json:
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    sources = [
        {"serviceAccountToken": {"expirationSeconds": POD_TOKEN_SECONDS, "path": "token"}},
        {"configMap": {"name": ROOT_CA, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [namespace]}},
    ]
    return {"name": name, "projected": {"defaultMode": 420, "sources": sources}}


def create_token_response(tokens: TokenAuthority, account: Json, token_request: Any, context: RequestContext) -> Json:
    """The response to a TokenRequest: the request with a status. Raises StatusError 400, 404, 409 or 422."""
    spec = token_request.get("spec") if isinstance(token_request, dict) else None
    if not isinstance(spec, dict | None):
        raise errors.bad_request(f"spec: must be an object, got {json_text(spec)}")
    spec = dict(spec or {})
    seconds, audiences = _seconds(spec, account), spec.get("audiences") or []
    if not isinstance(audiences, list) or not all(isinstance(audience, str) for audience in audiences):
        raise errors.bad_request(f"spec.audiences: must be a list of strings, got {json_text(audiences)}")
    pod = _bound_pod(spec.get("boundObjectRef"), account, context)
    token = tokens.issue(account, pod, tuple(audiences), seconds)
    meta = {"name": account["metadata"]["name"], "namespace": account["metadata"]["namespace"]}
    return {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {**meta, "creationTimestamp": context.timestamp},
        "spec": {**spec, "expirationSeconds": seconds},
        "status": {"token": token, "expirationTimestamp": format_time(int(context.now) + seconds)},
    }


def _seconds(spec: Json, account: Json) -> int:
    seconds = spec.get("expirationSeconds")
    if seconds is None:
        return DEFAULT_SECONDS
    text = ""
    if isinstance(seconds, bool) or not isinstance(seconds, int):
        text = "must be a number of seconds"
    elif seconds < MIN_SECONDS:
        text = "may not specify a duration less than 10 minutes"
    elif seconds > MAX_SECONDS:
        text = "may not specify a duration larger than 2^32 seconds"
    if text:
        problem = Problem("spec.expirationSeconds", f"Invalid value: {json_text(seconds)}: {text}")
        raise errors.invalid("TokenRequest", "authentication.k8s.io", account["metadata"]["name"], [problem])
    return int(seconds)


def _bound_pod(reference: Any, account: Json, context: RequestContext) -> Json | None:
    """The pod of spec.boundObjectRef; None when the token is not bound to an object."""
    if reference is None:
        return None
    if not isinstance(reference, dict) or reference.get("kind") != "Pod" or not isinstance(reference.get("name"), str):
        raise errors.bad_request(f"spec.boundObjectRef: a token can be bound to a Pod, got {json_text(reference)}")
    meta, name = account["metadata"], reference["name"]
    pod = context.get(PODS, meta["namespace"], name)
    if pod is None:
        raise errors.not_found(PODS, "", errors.printable(name))
    uid = reference.get("uid")
    if uid and uid != pod["metadata"]["uid"]:
        reason = (
            f"the UID in the bound object reference ({json_text(uid)}) does not match the UID in record. "
            "The object might have been deleted and then recreated"
        )
        raise errors.conflict(PODS, "", name, reason)
    if pod["spec"].get("serviceAccountName") != meta["name"]:
        text = f'cannot bind token for serviceaccount "{meta["name"]}" to pod running with different serviceaccount'
        raise errors.bad_request(f"{text} name.")
    return pod

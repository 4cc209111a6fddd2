"""ServiceAccounts at work: what a pod gets of its account, and tokens on request.

Rules, as the real server has them:
- A pod that names no account has `default`. A named one must exist; `default` may still be on its way.
- Unless pod or account say no, every container gets the folder with token, certificate and namespace, except where it
  mounts something of its own there.
- A token that is asked for a pod is given only when the pod runs as that account.
"""

from __future__ import annotations

import random
from typing import Any

from trainyard.objects import Json, Problem, format_time
from trainyard.schema.checks import shown
from trainyard.server import errors
from trainyard.server.metadata import SUFFIX, asked_name
from trainyard.server.site import Site
from trainyard.server.tokens import ACCOUNTS, PODS, Tokens

FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
VOLUME = "kube-api-access-"
ROOT_CA = "kube-root-ca.crt"
POD_SECONDS = 3607
DEFAULT_SECONDS, LEAST_SECONDS, MOST_SECONDS = 3600, 600, 2**32


def admit_pod(new: Json, old: Json | None, site: Site) -> None:
    """Ties a new pod to its ServiceAccount. Raises Refused 403 when a named one does not exist."""
    if old is not None:
        return
    meta, spec = new["metadata"], new["spec"]
    name = spec["serviceAccountName"]
    account = site.get(ACCOUNTS, meta.get("namespace", ""), name)
    if account is None and name != "default":
        why = f'error looking up service account {meta["namespace"]}/{name}: serviceaccount "{name}" not found'
        raise errors.forbidden("pods", "", asked_name(meta) or "Unknown", errors.printable(why))
    account = account or {}
    if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
        spec["imagePullSecrets"] = account["imagePullSecrets"]
    if site.reachable and _wants_token(spec, account):
        _mount(spec)


def _wants_token(spec: Json, account: Json) -> bool:
    if isinstance(said := spec.get("automountServiceAccountToken"), bool):
        return said
    return account.get("automountServiceAccountToken") is not False


def _mount(spec: Json) -> None:
    """The volume, and a mount in each container that has nothing at its place."""
    containers = [one for group in ("initContainers", "containers") for one in spec.get(group) or ()]
    without = [
        one for one in containers if all(mount.get("mountPath") != FOLDER for mount in one.get("volumeMounts") or ())
    ]
    if not without:
        return
    volumes = list(spec.get("volumes") or ())
    names = (one.get("name", "") for one in volumes if one.get("projected"))
    volume = next((name for name in names if name.startswith(VOLUME)), "")
    if not volume:
        volume = VOLUME + "".join(random.choices(SUFFIX, k=5))
        spec["volumes"] = [*volumes, _volume(volume)]
    for container in without:
        mount = {"name": volume, "readOnly": True, "mountPath": FOLDER}
        container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mount]


def _volume(name: str) -> Json:
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    sources = [
        {"serviceAccountToken": {"expirationSeconds": POD_SECONDS, "path": "token"}},
        {"configMap": {"name": ROOT_CA, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [namespace]}},
    ]
    return {"name": name, "projected": {"defaultMode": 420, "sources": sources}}


def token_for(tokens: Tokens, account: Json, asked: Any, site: Site) -> Json:
    """The answer to a TokenRequest: the same with a status. Raises Refused."""
    spec = asked.get("spec") if isinstance(asked, dict) else None
    if not isinstance(spec, dict | None):
        raise errors.bad_request(f"spec: must be an object, got {shown(spec)}")
    spec = dict(spec or {})
    seconds, audiences = _seconds(spec, account), spec.get("audiences") or []
    if not isinstance(audiences, list) or not all(isinstance(one, str) for one in audiences):
        raise errors.bad_request(f"spec.audiences: must be a list of strings, got {shown(audiences)}")
    pod = _bound_to(spec.get("boundObjectRef"), account, site)
    token = tokens.issue(account, pod, tuple(audiences), seconds)
    meta = {"name": account["metadata"]["name"], "namespace": account["metadata"]["namespace"]}
    return {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {**meta, "creationTimestamp": site.stamp},
        "spec": {**spec, "expirationSeconds": seconds},
        "status": {"token": token, "expirationTimestamp": format_time(int(site.now) + seconds)},
    }


def _seconds(spec: Json, account: Json) -> int:
    seconds = spec.get("expirationSeconds")
    if seconds is None:
        return DEFAULT_SECONDS
    text = ""
    if isinstance(seconds, bool) or not isinstance(seconds, int):
        text = "must be a number of seconds"
    elif seconds < LEAST_SECONDS:
        text = "may not specify a duration less than 10 minutes"
    elif seconds > MOST_SECONDS:
        text = "may not specify a duration larger than 2^32 seconds"
    if text:
        problem = Problem("spec.expirationSeconds", f"Invalid value: {shown(seconds)}: {text}")
        raise errors.invalid("TokenRequest", "authentication.k8s.io", account["metadata"]["name"], [problem])
    return int(seconds)


def _bound_to(reference: Any, account: Json, site: Site) -> Json | None:
    """The pod that a token is asked for, None when it is asked for none."""
    if reference is None:
        return None
    if not isinstance(reference, dict) or reference.get("kind") != "Pod" or not isinstance(reference.get("name"), str):
        raise errors.bad_request(f"spec.boundObjectRef: a token can be bound to a Pod, got {shown(reference)}")
    meta, name = account["metadata"], reference["name"]
    pod = site.get(PODS, meta["namespace"], name)
    if pod is None:
        raise errors.not_found(PODS, "", errors.printable(name))
    uid = reference.get("uid")
    if uid and uid != pod["metadata"]["uid"]:
        why = (
            f"the UID in the bound object reference ({shown(uid)}) does not match the UID in record. "
            "The object might have been deleted and then recreated"
        )
        raise errors.conflict(PODS, "", name, why)
    if pod["spec"].get("serviceAccountName") != meta["name"]:
        text = f'cannot bind token for serviceaccount "{meta["name"]}" to pod running with different serviceaccount'
        raise errors.bad_request(f"{text} name.")
    return pod

"""What the real server refuses of the small types: Secrets, Leases, Events, claims.

Each is a function of (new, old or None) that gives problems; the types have been checked.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator

from trainyard.objects import Json, Problem, decode
from trainyard.schema.checks import shown
from trainyard.server.same import same
from trainyard.server.strategies.refusing import one_of

NEEDED = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}
MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
LOGIN = "kubernetes.io/basic-auth"
ACCOUNT_TOKEN, ACCOUNT_NAME = "kubernetes.io/service-account-token", "kubernetes.io/service-account.name"  # names


def secret_problems(new: Json, old: Json | None) -> Iterator[Problem]:
    kind, data = new["type"], new.get("data") or {}
    if old is not None and old.get("type") != kind:
        yield Problem("type", f"Invalid value: {shown(kind)}: field is immutable")
    for key in NEEDED.get(kind, ()):
        if key not in data:
            yield Problem(f"data[{key}]", "Required value")
        elif key.startswith(".docker") and not _is_json(data[key]):
            yield Problem(f"data[{key}]", 'Invalid value: "<secret contents redacted>": must be JSON')
    if kind == LOGIN and not {"username", "password"} & data.keys():
        for key in ("username", "password"):
            yield Problem(f"data[{key}]", "Required value")
    if kind == ACCOUNT_TOKEN and not (new["metadata"].get("annotations") or {}).get(ACCOUNT_NAME):
        yield Problem(f"metadata.annotations[{ACCOUNT_NAME}]", "Required value")


def _is_json(coded: str) -> bool:
    try:
        return isinstance(decode(base64.b64decode(coded)), dict)
    except (ValueError, binascii.Error):
        return False


def lease_problems(new: Json, old: Json | None) -> list[Problem]:
    spec, found = new.get("spec") or {}, []
    seconds, moves = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if seconds is not None and seconds <= 0:
        found.append(Problem("spec.leaseDurationSeconds", f"Invalid value: {seconds}: must be greater than 0"))
    if moves is not None and moves < 0:
        text = f"Invalid value: {moves}: must be greater than or equal to 0"
        found.append(Problem("spec.leaseTransitions", text))
    return found


def event_problems(new: Json, old: Json | None) -> list[Problem]:
    """An event stands in the namespace of its object, one about the cluster in `default` or in kube-system."""
    about = (new.get("involvedObject") or {}).get("namespace") or ""
    place = new["metadata"].get("namespace", "")
    if about == place or (not about and place in ("default", "kube-system")):
        return []
    text = f"Invalid value: {shown(about)}: does not match event.namespace"
    return [Problem("involvedObject.namespace", text)]


def claim_problems(new: Json, old: Json | None) -> Iterator[Problem]:
    spec = new["spec"]
    modes = spec.get("accessModes") or []
    if not modes:
        yield Problem("spec.accessModes", "Required value: at least 1 access mode is required")
    for mode in modes:
        yield from one_of(mode, MODES, "spec.accessModes")
    if ((spec.get("resources") or {}).get("requests") or {}).get("storage") is None:
        yield Problem("spec.resources[storage]", "Required value")
    if old is not None and not same(_fixed(spec), _fixed(old["spec"])):
        text = (
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        )
        yield Problem("spec", f"Forbidden: {text}")


def _fixed(spec: Json) -> Json:
    """A volume may still be named; everything else stays."""
    return {name: part for name, part in spec.items() if name not in ("volumeName", "resources", "storageClassName")}

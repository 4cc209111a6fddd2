"""Secrets: the keys that their types require."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator

from trainyard.objects import Json, Problem, decode

TLS, LOGIN = "kubernetes.io/tls", "kubernetes.io/basic-auth"
REQUIRED_KEYS = {
    TLS: ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}
_REQUIRED_NON_EMPTY = ("ssh-privatekey",)
ACCOUNT_TOKEN, ACCOUNT_NAME = "kubernetes.io/service-account-token", "kubernetes.io/service-account.name"  # names


def secret_problems(new: Json) -> Iterator[Problem]:
    """The problems of a Secret: the keys that its type requires."""
    kind, data = new["type"], new.get("data") or {}
    for key in REQUIRED_KEYS.get(kind, ()):
        if key not in data or (key in _REQUIRED_NON_EMPTY and not data[key]):
            yield Problem(f"data[{key}]", "Required value")
        elif key.startswith(".docker") and not _is_json(data[key]):
            yield Problem(f"data[{key}]", 'Invalid value: "<secret contents redacted>": must be JSON')
    if kind == LOGIN and not {"username", "password"} & data.keys():
        for key in ("username", "password"):
            yield Problem(f"data[{key}]", "Required value")
    if kind == ACCOUNT_TOKEN and not (new["metadata"].get("annotations") or {}).get(ACCOUNT_NAME):
        yield Problem(f"metadata.annotations[{ACCOUNT_NAME}]", "Required value")


def _is_json(encoded: str) -> bool:
    try:
        return isinstance(decode(base64.b64decode(encoded)), dict | None)
    except (ValueError, binascii.Error):
        return False

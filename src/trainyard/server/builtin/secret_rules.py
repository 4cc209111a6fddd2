"""Secrets: validation of their types, and kube-apiserver's warnings."""

from __future__ import annotations

import base64
import binascii
import re
from bisect import bisect_right
from collections.abc import Iterator

from trainyard.objects import Json, Problem, decode
from trainyard.schema.checks import json_text

TLS, LOGIN = "kubernetes.io/tls", "kubernetes.io/basic-auth"
REQUIRED_KEYS = {
    TLS: ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}
_CERTIFICATE, _KEY = "CERTIFICATE", "PRIVATE KEY"
_REQUIRED_NON_EMPTY = ("ssh-privatekey",)
ACCOUNT_TOKEN, ACCOUNT_NAME = "kubernetes.io/service-account-token", "kubernetes.io/service-account.name"  # names
_BEGIN, _END = (re.compile(rb"-----%b ([^\n]*?)-----[ \t]*\r?" % word) for word in (b"BEGIN", b"END"))
_HEADERS = re.compile(rb"(?:[^\n]*:[^\n]*\n)*")


def secret_problems(new: Json, old: Json | None) -> Iterator[Problem]:
    kind, data = new["type"], new.get("data") or {}
    if old is not None and old.get("type") != kind:
        yield Problem("type", f"Invalid value: {json_text(kind)}: field is immutable")
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


def secret_warnings(new: Json) -> Iterator[str]:
    """A warning about a TLS secret without a PEM certificate or key. The content of the PEM blocks is not parsed."""
    if new["type"] != TLS or new.get("data") is None:
        return
    try:
        certificates, keys = (_block_types(base64.b64decode(new["data"].get(key) or "")) for key in REQUIRED_KEYS[TLS])
    except (ValueError, binascii.Error):
        return  # the validation refuses it
    text = ""
    if _CERTIFICATE not in certificates:
        text = _no_certificate(certificates)
    elif not any(block.endswith(_KEY) for block in keys):
        text = _no_key(keys)
    if text:
        yield f"tls: {text}"


def _no_certificate(blocks: list[str]) -> str:
    if not blocks:
        return "failed to find any PEM data in certificate input"
    if len(blocks) == 1 and blocks[0].endswith(_KEY):
        text = "but did find a private key; PEM inputs may have been switched"
        return f"failed to find certificate PEM data in certificate input, {text}"
    return f'failed to find "{_CERTIFICATE}" PEM block in certificate input after {_skipped_text(blocks)}'


def _no_key(blocks: list[str]) -> str:
    if not blocks:
        return "failed to find any PEM data in key input"
    if blocks == [_CERTIFICATE]:
        return "found a certificate rather than a key in the PEM for the private key"
    return f'failed to find PEM block with type ending in "{_KEY}" in key input after {_skipped_text(blocks)}'


def _skipped_text(blocks: list[str]) -> str:
    return f"skipping PEM blocks of the following types: [{' '.join(blocks)}]"


def _block_types(text: bytes) -> list[str]:
    """The types of the PEM blocks in a text. The run time is linear, even for many blocks without an end."""
    lines = text.split(b"\n")
    ends: dict[bytes, list[int]] = {}
    for number, line in enumerate(lines):
        if end := _END.fullmatch(line):
            ends.setdefault(end[1], []).append(number)
    types, next_line = [], 0
    for number, line in enumerate(lines):
        if number < next_line or not (begin := _BEGIN.fullmatch(line)):
            continue
        end_lines = ends.get(begin[1], [])
        position = bisect_right(end_lines, number)
        if position == len(end_lines):
            continue
        next_line = end_lines[position] + 1
        if _is_base64(b"\n".join([*lines[number + 1 : end_lines[position]], b""])):
            types.append(begin[1].decode("utf-8", "replace"))
    return types


def _is_base64(body: bytes) -> bool:
    try:
        base64.b64decode(b"".join(_HEADERS.sub(b"", body, count=1).split()), validate=True)
    except (ValueError, binascii.Error):
        return False
    return True

"""A container of a pod's spec, made ready to run: its environment, its command line, what it refers to.

Rules:
- Pure: what the spec refers to (ConfigMaps, Secrets) is fetched before and handed in as `Refs`.
- A reference that cannot be followed is a `Missing`: the container waits with the kubelet's words until it can.
- Of the variables that Kubernetes adds for Services there are those of the API server only (network.py); nothing of
  the runner's own environment comes in but what `inherited` names."""

from __future__ import annotations

import base64
import binascii
import math
import os
import re
from collections.abc import Iterator, Mapping

import msgspec

from trainyard.node import words
from trainyard.node.words import expand, quantity, resource
from trainyard.objects import Json, namespace_of

Ref = tuple[str, str]  # ("configmap" | "secret", name)
Refs = Mapping[Ref, Json | None]

_NAMES = {"configmap": "ConfigMap", "secret": "Secret"}
_ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
# What a program on this machine needs to find itself and its libraries; a container image would set these.
_INHERITED = (
    *("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "USER", "LOGNAME", "LD_LIBRARY_PATH"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
)
PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


class Missing(Exception):
    """Something the container needs is not there. `ref` is what would change that, None when nothing known would;
    then `again` says after how many seconds it is worth another try, 0 for never."""

    def __init__(
        self, message: str, ref: Ref | None, reason: str = "CreateContainerConfigError", again: float = 0.0
    ) -> None:
        super().__init__(message)
        self.reason, self.message, self.ref, self.again = reason, message, ref, again


class TokenAsked(msgspec.Struct, frozen=True):
    """A service account token as a volume wants it. Without audience it is for the API server."""

    audience: str
    seconds: int

    @classmethod
    def of(cls, source: Json) -> TokenAsked:
        return cls(str(source.get("audience") or ""), int(source.get("expirationSeconds") or 3600))


class Given(msgspec.Struct, frozen=True):
    """What is known when a container is made ready: the pod with its address in status, references, the node, tokens
    (or why there is none)."""

    pod: Json
    refs: Refs
    capacity: Mapping[str, str]
    tokens: Mapping[TokenAsked, str | Missing] = msgspec.field(default_factory=dict)

    def token(self, asked: TokenAsked) -> str:
        found = self.tokens.get(asked) or Missing("failed to fetch token: nobody has asked for it", None)
        if isinstance(found, Missing):
            raise found
        return found

    def pairs(self, ref: Ref, optional: bool, reason: str = "CreateContainerConfigError") -> dict[str, bytes]:
        """The content of a ConfigMap or Secret; empty when it is missing and may be."""
        obj = self.refs.get(ref)
        if obj is None:
            if optional:
                return {}
            raise Missing(f'{ref[0]} "{ref[1]}" not found', ref, reason)
        return content(ref[0], obj)


def content(kind: str, obj: Json) -> dict[str, bytes]:
    """Keys and values, decoded."""
    found: dict[str, bytes] = {}
    encoded = (obj.get("data") if kind == "secret" else obj.get("binaryData")) or {}
    for key, value in encoded.items():
        try:
            found[key] = base64.b64decode(str(value), validate=True)
        except binascii.Error:
            found[key] = b""
    plain = (obj.get("stringData") if kind == "secret" else obj.get("data")) or {}
    return found | {key: str(value).encode() for key, value in plain.items()}


def containers(pod: Json) -> Iterator[tuple[Json, bool]]:
    """Every container and whether it is an init container, in the order of starting."""
    spec = pod.get("spec") or {}
    for one in spec.get("initContainers") or []:
        yield one, True
    for one in spec.get("containers") or []:
        yield one, False


def references(pod: Json) -> set[Ref]:
    """Every ConfigMap and Secret that the pod's containers or volumes name."""
    found: set[Ref] = set()

    def add(kind: str, source: object, key: str = "name") -> None:
        if isinstance(source, dict) and source.get(key):
            found.add((kind, str(source[key])))

    for one, _ in containers(pod):
        for source in one.get("envFrom") or []:
            add("configmap", source.get("configMapRef"))
            add("secret", source.get("secretRef"))
        for variable in one.get("env") or []:
            value_from = variable.get("valueFrom") or {}
            add("configmap", value_from.get("configMapKeyRef"))
            add("secret", value_from.get("secretKeyRef"))
    for volume in (pod.get("spec") or {}).get("volumes") or []:
        add("configmap", volume.get("configMap"))
        add("secret", volume.get("secret"), "secretName")
        for source in (volume.get("projected") or {}).get("sources") or []:
            add("configmap", source.get("configMap"))
            add("secret", source.get("secret"))
    return found


def inherited(environ: Mapping[str, str], proxies: bool) -> dict[str, str]:
    names = (*_INHERITED, *PROXIES) if proxies else _INHERITED
    found = {name: environ[name] for name in names if environ.get(name)}
    found.setdefault("PATH", os.defpath)
    return found


def environment(container: Json, given: Given, base: Mapping[str, str]) -> dict[str, str]:
    """The variables of a container: `base`, over it envFrom, over it env, each expanded with those before it. Raises
    TooLong."""
    own: dict[str, str] = {}
    space = words.TextSpace()
    for source in container.get("envFrom") or []:
        own |= {name: space.take(value) for name, value in _many(source, given).items()}
    for variable in container.get("env") or []:
        name = str(variable.get("name") or "")
        if variable.get("valueFrom"):
            value = _from(container, variable["valueFrom"], given)
            if value is not None:
                own[name] = space.take(value)
        else:
            own[name] = space.take(expand(str(variable.get("value") or ""), own))
    return {**base, **own}


def memory_limit(container: Json) -> int:
    """`resources.limits.memory` in bytes, 0 for none."""
    limits = (container.get("resources") or {}).get("limits") or {}
    return math.ceil(quantity(limits.get("memory")) or 0)


def told(container: Json) -> set[str]:
    """The variables by which a pod is told about itself: who it is, not where somebody is found."""
    listed = (one for one in container.get("env") or [] if (one.get("valueFrom") or {}).get("fieldRef"))
    return {str(one.get("name") or "") for one in listed}


def _many(source: Json, given: Given) -> dict[str, str]:
    prefix = str(source.get("prefix") or "")
    found: dict[str, str] = {}
    for word, kind in (("configMapRef", "configmap"), ("secretRef", "secret")):
        if reference := source.get(word):
            pairs = given.pairs((kind, str(reference.get("name"))), bool(reference.get("optional")))
            found |= {prefix + key: value.decode(errors="replace") for key, value in pairs.items()}
    return {name: value for name, value in found.items() if _ENV_NAME.fullmatch(name)}


def _from(container: Json, source: Json, given: Given) -> str | None:
    if reference := source.get("fieldRef"):
        path = str(reference.get("fieldPath"))
        value = words.field(given.pod, path)
        if value is None:
            raise Missing(f"unsupported fieldPath: {path}", None)
        return value
    if reference := source.get("resourceFieldRef"):
        return resource(container, reference, given.capacity)
    for word, kind in (("configMapKeyRef", "configmap"), ("secretKeyRef", "secret")):
        if reference := source.get(word):
            return _key(kind, reference, given)
    raise Missing(f"unsupported valueFrom: {', '.join(source) or 'empty'}", None)


def _key(kind: str, reference: Json, given: Given) -> str | None:
    name, key = str(reference.get("name")), str(reference.get("key"))
    optional = bool(reference.get("optional"))
    pairs = given.pairs((kind, name), optional)
    if key in pairs:
        return pairs[key].decode(errors="replace")
    if optional:
        return None
    where = f"{namespace_of(given.pod)}/{name}"
    raise Missing(f"couldn't find key {key} in {_NAMES[kind]} {where}", (kind, name))


def command_line(container: Json, entrypoint: list[str], args: list[str], env: Mapping[str, str]) -> list[str]:
    """As Kubernetes combines them: a command replaces the image's entrypoint and its arguments. Raises TooLong."""
    space = words.TextSpace()
    command = [space.take(expand(str(word), env)) for word in container.get("command") or []]
    own_args = [space.take(expand(str(word), env)) for word in container.get("args") or []]
    if command:
        return command + own_args
    return list(entrypoint) + (own_args or list(args))

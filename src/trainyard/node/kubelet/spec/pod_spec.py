"""From a container of a pod's spec: its environment, its command line, and the objects it refers to.

Rules:
- Pure: the objects that the spec refers to (ConfigMaps, Secrets) are fetched before and passed as `Refs`.
- A reference that cannot be resolved raises `Missing`: the container waits, with the kubelet's reason and message.
- Of the environment variables that Kubernetes adds for Services, only those of the API server exist
  (network/pod_network.py). Of the node process's own environment, a container gets only the variables in `inherited`
  (sandbox/inherited_environment.py)."""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Mapping

import msgspec

from trainyard.node.kubelet.spec import interpolation
from trainyard.node.kubelet.spec.interpolation import expand, resource
from trainyard.objects import Json, namespace_of, pod_containers, quantities

ConfigRef = tuple[str, str]  # ("configmap" | "secret", name)
Refs = Mapping[ConfigRef, Json | None]

_KIND_NAMES = {"configmap": "ConfigMap", "secret": "Secret"}
_ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")


class Missing(Exception):
    """An object or file that the container needs does not exist. `ref`: the object whose change can resolve this, None
    when there is no such object; then `retry_after` is the time in seconds until a retry, 0 for no retry."""

    def __init__(
        self, message: str, ref: ConfigRef | None, reason: str = "CreateContainerConfigError", retry_after: float = 0.0
    ) -> None:
        super().__init__(message)
        self.reason, self.message, self.ref, self.retry_after = reason, message, ref, retry_after


class TokenRequest(msgspec.Struct, frozen=True):
    """The request of a volume for a service account token. An empty audience is the API server; `seconds` of
    validity."""

    audience: str
    seconds: int

    @classmethod
    def of(cls, source: Json) -> TokenRequest:
        """From a `serviceAccountToken` source of a projected volume, with kube-apiserver's default of one hour."""
        return cls(str(source.get("audience") or ""), int(source.get("expirationSeconds") or 3600))


class EnvContext(msgspec.Struct, frozen=True):
    """The inputs for a container's environment and volumes: the pod with its address in its status, the objects it
    refers to, the capacity of the node, and its tokens (or the reason why there is none)."""

    pod: Json
    refs: Refs
    capacity: Mapping[str, str]
    tokens: Mapping[TokenRequest, str | Missing] = msgspec.field(default_factory=dict)

    def token(self, request: TokenRequest) -> str:
        """The token for the request. Raises Missing when it could not be fetched."""
        token = self.tokens.get(request) or Missing("failed to fetch token: not requested", None)
        if isinstance(token, Missing):
            raise token
        return token

    def data(self, ref: ConfigRef, optional: bool, reason: str = "CreateContainerConfigError") -> dict[str, bytes]:
        """Key -> value of a ConfigMap or Secret; empty when the object does not exist and is optional. Raises
        Missing."""
        obj = self.refs.get(ref)
        if obj is None:
            if optional:
                return {}
            raise Missing(f'{ref[0]} "{ref[1]}" not found', ref, reason)
        return content(ref[0], obj)


def with_addresses(pod: Json, address: str, host_ip: str) -> Json:
    """The pod with its address, and that of its node, in its status."""
    addresses = {"podIP": address, "podIPs": [{"ip": address}], "hostIP": host_ip}
    return {**pod, "status": {**(pod.get("status") or {}), **addresses}}


def content(kind: str, obj: Json) -> dict[str, bytes]:
    """Key -> value of a ConfigMap or Secret, base64 decoded."""
    data: dict[str, bytes] = {}
    encoded = (obj.get("data") if kind == "secret" else obj.get("binaryData")) or {}
    for key, value in encoded.items():
        try:
            data[key] = base64.b64decode(str(value), validate=True)
        except binascii.Error:
            data[key] = b""
    plain = (obj.get("stringData") if kind == "secret" else obj.get("data")) or {}
    return data | {key: str(value).encode() for key, value in plain.items()}


def container_images(pod: Json) -> dict[str, str]:
    """Container name -> image."""
    return {str(container.get("name")): str(container.get("image") or "") for container, _ in pod_containers(pod)}


def mounted_volumes(pod: Json) -> list[Json]:
    """The volumes of a pod that one of its containers mounts: as in a kubelet, the others are not set up."""
    mounts = [mount for container, _ in pod_containers(pod) for mount in container.get("volumeMounts") or []]
    names = {mount.get("name") for mount in mounts}
    return [volume for volume in (pod.get("spec") or {}).get("volumes") or [] if volume.get("name") in names]


def references(pod: Json) -> set[ConfigRef]:
    """Every ConfigMap and Secret that the pod's containers or mounted volumes name."""
    refs: set[ConfigRef] = set()

    def add(kind: str, source: object, key: str = "name") -> None:
        if isinstance(source, dict) and source.get(key):
            refs.add((kind, str(source[key])))

    for container, _ in pod_containers(pod):
        for source in container.get("envFrom") or []:
            add("configmap", source.get("configMapRef"))
            add("secret", source.get("secretRef"))
        for variable in container.get("env") or []:
            value_from = variable.get("valueFrom") or {}
            add("configmap", value_from.get("configMapKeyRef"))
            add("secret", value_from.get("secretKeyRef"))
    for volume in mounted_volumes(pod):
        add("configmap", volume.get("configMap"))
        add("secret", volume.get("secret"), "secretName")
        for source in (volume.get("projected") or {}).get("sources") or []:
            add("configmap", source.get("configMap"))
            add("secret", source.get("secret"))
    return refs


def environment(container: Json, env_context: EnvContext, base: Mapping[str, str]) -> dict[str, str]:
    """The environment of a container: `base`, overridden by envFrom, then by env, whose values are expanded with the
    variables before them. Raises TooLong and Missing."""
    env: dict[str, str] = {}
    space = interpolation.ArgumentSpace()
    for source in container.get("envFrom") or []:
        env |= {name: space.take(value) for name, value in _env_from(source, env_context).items()}
    for variable in container.get("env") or []:
        name = str(variable.get("name") or "")
        if variable.get("valueFrom"):
            value = _value_from(container, variable["valueFrom"], env_context)
            if value is not None:
                env[name] = space.take(value)
        else:
            env[name] = space.take(expand(str(variable.get("value") or ""), env))
    return {**base, **env}


def memory_limit(container: Json) -> int:
    """`resources.limits.memory` in bytes, 0 for none."""
    limits = (container.get("resources") or {}).get("limits") or {}
    return math.ceil(quantities.number(str(limits.get("memory") or "0")))


def field_variables(container: Json) -> set[str]:
    """Names of the variables with a fieldRef: they are about the pod itself, so the shared network does not rewrite
    them."""
    field_variables = (
        variable for variable in container.get("env") or [] if (variable.get("valueFrom") or {}).get("fieldRef")
    )
    return {str(variable.get("name") or "") for variable in field_variables}


def _env_from(source: Json, env_context: EnvContext) -> dict[str, str]:
    prefix = str(source.get("prefix") or "")
    env: dict[str, str] = {}
    for field, kind in (("configMapRef", "configmap"), ("secretRef", "secret")):
        if reference := source.get(field):
            pairs = env_context.data((kind, str(reference.get("name"))), bool(reference.get("optional")))
            env |= {prefix + key: value.decode(errors="replace") for key, value in pairs.items()}
    return {name: value for name, value in env.items() if _ENV_NAME.fullmatch(name)}


def _value_from(container: Json, source: Json, env_context: EnvContext) -> str | None:
    if reference := source.get("fieldRef"):
        path = str(reference.get("fieldPath"))
        value = interpolation.field(env_context.pod, path)
        if value is None:
            raise Missing(f"unsupported fieldPath: {path}", None)
        return value
    if reference := source.get("resourceFieldRef"):
        return resource(container, reference, env_context.capacity)
    for field, kind in (("configMapKeyRef", "configmap"), ("secretKeyRef", "secret")):
        if reference := source.get(field):
            return _key_value(kind, reference, env_context)
    raise Missing(f"unsupported valueFrom: {', '.join(source) or 'empty'}", None)


def _key_value(kind: str, reference: Json, env_context: EnvContext) -> str | None:
    name, key = str(reference.get("name")), str(reference.get("key"))
    optional = bool(reference.get("optional"))
    pairs = env_context.data((kind, name), optional)
    if key in pairs:
        return pairs[key].decode(errors="replace")
    if optional:
        return None
    where = f"{namespace_of(env_context.pod)}/{name}"
    raise Missing(f"couldn't find key {key} in {_KIND_NAMES[kind]} {where}", (kind, name))


def command_line(container: Json, entrypoint: list[str], args: list[str], env: Mapping[str, str]) -> list[str]:
    """The argv, combined as in Kubernetes: `command` replaces the image's entrypoint and arguments. Raises TooLong."""
    space = interpolation.ArgumentSpace()
    command = [space.take(expand(str(argument), env)) for argument in container.get("command") or []]
    own_args = [space.take(expand(str(argument), env)) for argument in container.get("args") or []]
    if command:
        return command + own_args
    return list(entrypoint) + (own_args or list(args))

"""Validation of the security contexts of a pod and its containers.

The node does not enforce them (docs/security.md): the validation reports mistakes before a manifest is used on a real
cluster. `windowsOptions` are not validated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from trainyard.api_types.validators import MAX_INT32, validate_enum
from trainyard.objects import Json, Problem
from trainyard.objects.patterns import lazy_pattern
from trainyard.schema.checks import json_text

CAP_SYS_ADMIN = "CAP_SYS_ADMIN"
_SYSCTL = lazy_pattern(r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?")
_IPC_SYSCTLS = ("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.")


def pod_context_problems(spec: Json, path: str) -> Iterator[Problem]:
    """Problems of a pod's security context. `spec`: the pod's spec; `path`: the path of the spec."""
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        text = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield Problem(f"{path}.shareProcessNamespace", f"Invalid value: true: {text}")
    context, here = spec.get("securityContext") or {}, f"{path}.securityContext"
    for name in ("fsGroup", "runAsUser", "runAsGroup"):
        yield from _id(context.get(name), f"{here}.{name}")
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        yield from _id(group, f"{here}.supplementalGroups[{index}]")
    change_policies = ("MountOption", "Recursive")
    yield from validate_enum(context.get("seLinuxChangePolicy"), change_policies, f"{here}.seLinuxChangePolicy")
    yield from _sysctls(spec, context.get("sysctls") or (), f"{here}.sysctls")
    yield from _profiles(context, here)


def container_context_problems(context: Json, spec: Json, path: str) -> Iterator[Problem]:
    """Problems of a container's security context. `spec`: the pod's spec; `path`: the path of the context."""
    for name in ("runAsUser", "runAsGroup"):
        yield from _id(context.get(name), f"{path}.{name}")
    if context.get("procMount") == "Unmasked" and spec.get("hostUsers") is not False:
        text = 'Invalid value: "Unmasked": `hostUsers` must be false to use `Unmasked`'
        yield Problem(f"{path}.procMount", text)
    if context.get("allowPrivilegeEscalation") is False:
        prefix = f"Invalid value: {json_text(context)}: cannot set `allowPrivilegeEscalation` to false and"
        if context.get("privileged"):
            yield Problem(path, f"{prefix} `privileged` to true")
        if CAP_SYS_ADMIN in ((context.get("capabilities") or {}).get("add") or ()):
            yield Problem(path, f"{prefix} `capabilities.Add` {CAP_SYS_ADMIN}")
    yield from _profiles(context, path)


def _id(number: int | None, path: str) -> Iterator[Problem]:
    if number is not None and not 0 <= number <= MAX_INT32:
        yield Problem(path, f"Invalid value: {number}: must be between 0 and {MAX_INT32}, inclusive")


def _profiles(context: Json, path: str) -> Iterator[Problem]:
    for name, kind in (("seccompProfile", "seccomp"), ("appArmorProfile", "AppArmor")):
        if (profile := context.get(name)) is not None:
            yield from _profile(profile, kind, f"{path}.{name}")


def _profile(profile: Json, kind: str, path: str) -> Iterator[Problem]:
    profile_type, file, here = profile.get("type") or "", profile.get("localhostProfile"), f"{path}.localhostProfile"
    if profile_type == "Localhost":
        if file is None or (kind == "AppArmor" and not file.strip()):
            yield Problem(here, f"Required value: must be set when {kind} type is Localhost")
        else:
            yield from _localhost_profile(file, kind, here)
    elif file is not None:
        yield Problem(here, f"Invalid value: {json_text(file)}: can only be set when {kind} type is Localhost")


def _localhost_profile(file: str, kind: str, path: str) -> Iterator[Problem]:
    mistakes = {
        "must be a relative path": kind == "seccomp" and file.startswith("/"),
        "must not contain '..'": kind == "seccomp" and ".." in file.split("/"),
        "must not be padded with whitespace": kind == "AppArmor" and file != file.strip(),
    }
    yield from (
        Problem(path, f"Invalid value: {json_text(file)}: {text}")
        for text, is_mistake in mistakes.items()
        if is_mistake
    )


def _sysctls(spec: Json, sysctls: Any, path: str) -> Iterator[Problem]:
    earlier_names: set[str] = set()
    for index, sysctl in enumerate(sysctls):
        name, here = sysctl.get("name") or "", f"{path}[{index}].name"
        if name and (len(name) > 253 or not _SYSCTL.fullmatch(name)):
            text = f"must have at most 253 characters and match regex ^{_SYSCTL.pattern}$"
            yield Problem(here, f"Invalid value: {json_text(name)}: {text}")
        elif name in earlier_names:
            yield Problem(here, f"Duplicate value: {json_text(name)}")
        earlier_names.add(name)
        dotted = _dotted_sysctl(name)
        for field, prefixes in (("hostNetwork", ("net.",)), ("hostIPC", _IPC_SYSCTLS)):
            if spec.get(field) and dotted.startswith(prefixes):
                text = f"Invalid value: {json_text(name)}: may not be specified when '{field}' is true"
                yield Problem(here, text)


def _dotted_sysctl(name: str) -> str:
    """The name of a sysctl with dots as separators. If its first separator is a slash, slashes and dots are swapped."""
    separator = re.search("[./]", name)
    return name.translate(str.maketrans("./", "/.")) if separator and separator[0] == "/" else name

"""What the real server refuses of the security contexts of a pod and its containers.

Nothing here is enforced (docs/security.md): a manifest is told of its mistakes before it meets a cluster.
`windowsOptions` are not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from trainyard.objects import Json, Problem
from trainyard.schema.checks import shown
from trainyard.server.strategies.refusing import MOST, one_of

PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")
MOUNTS = ("Default", "Unmasked")
POLICIES = {
    "fsGroupChangePolicy": ("Always", "OnRootMismatch"),
    "supplementalGroupsPolicy": ("Merge", "Strict"),
    "seLinuxChangePolicy": ("MountOption", "Recursive"),
}
ALL_OF_THE_KERNEL = "CAP_SYS_ADMIN"
_SYSCTL = re.compile(r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?")
_OF_IPC = ("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.")


def pod_context_problems(spec: Json, path: str) -> Iterator[Problem]:
    """`spec` is the pod's."""
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        text = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield Problem(f"{path}.shareProcessNamespace", f"Invalid value: true: {text}")
    context, here = spec.get("securityContext") or {}, f"{path}.securityContext"
    for name in ("fsGroup", "runAsUser", "runAsGroup"):
        yield from _id(context.get(name), f"{here}.{name}")
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        yield from _id(group, f"{here}.supplementalGroups[{index}]")
    for name, known in POLICIES.items():
        yield from one_of(context.get(name), known, f"{here}.{name}")
    yield from _sysctls(spec, context.get("sysctls") or (), f"{here}.sysctls")
    yield from _profiles(context, here)


def container_context_problems(context: Json, spec: Json, path: str) -> Iterator[Problem]:
    """`spec` is the pod's, `path` that of the context."""
    for name in ("runAsUser", "runAsGroup"):
        yield from _id(context.get(name), f"{path}.{name}")
    yield from one_of(mount := context.get("procMount"), MOUNTS, f"{path}.procMount")
    if mount == "Unmasked" and spec.get("hostUsers") is not False:
        text = 'Invalid value: "Unmasked": `hostUsers` must be false to use `Unmasked`'
        yield Problem(f"{path}.procMount", text)
    if context.get("allowPrivilegeEscalation") is False:
        unfit = f"Invalid value: {shown(context)}: cannot set `allowPrivilegeEscalation` to false and"
        if context.get("privileged"):
            yield Problem(path, f"{unfit} `privileged` to true")
        if ALL_OF_THE_KERNEL in ((context.get("capabilities") or {}).get("add") or ()):
            yield Problem(path, f"{unfit} `capabilities.Add` {ALL_OF_THE_KERNEL}")
    yield from _profiles(context, path)


def _id(number: int | None, path: str) -> Iterator[Problem]:
    if number is not None and not 0 <= number <= MOST:
        yield Problem(path, f"Invalid value: {number}: must be between 0 and {MOST}, inclusive")


def _profiles(context: Json, path: str) -> Iterator[Problem]:
    for name, called in (("seccompProfile", "seccomp"), ("appArmorProfile", "AppArmor")):
        if (profile := context.get(name)) is not None:
            yield from _profile(profile, called, f"{path}.{name}")


def _profile(profile: Json, called: str, path: str) -> Iterator[Problem]:
    kind, file, here = profile.get("type") or "", profile.get("localhostProfile"), f"{path}.localhostProfile"
    if not kind:
        yield Problem(f"{path}.type", f"Required value: type is required when {path.rpartition('.')[2]} is set")
    else:
        yield from one_of(kind, PROFILES, f"{path}.type")
    if kind == "Localhost":
        if file is None or (called == "AppArmor" and not file.strip()):
            yield Problem(here, f"Required value: must be set when {called} type is Localhost")
        else:
            yield from _file(file, called, here)
    elif file is not None:
        yield Problem(here, f"Invalid value: {shown(file)}: can only be set when {called} type is Localhost")


def _file(file: str, called: str, path: str) -> Iterator[Problem]:
    wrong = {
        "must be a relative path": called == "seccomp" and file.startswith("/"),
        "must not contain '..'": called == "seccomp" and ".." in file.split("/"),
        "must not be padded with whitespace": called == "AppArmor" and file != file.strip(),
    }
    yield from (Problem(path, f"Invalid value: {shown(file)}: {text}") for text, is_so in wrong.items() if is_so)


def _sysctls(spec: Json, sysctls: Any, path: str) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, one in enumerate(sysctls):
        name, here = one.get("name") or "", f"{path}[{index}].name"
        if not name:
            yield Problem(here, "Required value")
        elif len(name) > 253 or not _SYSCTL.fullmatch(name):
            text = f"must have at most 253 characters and match regex ^{_SYSCTL.pattern}$"
            yield Problem(here, f"Invalid value: {shown(name)}: {text}")
        elif name in seen:
            yield Problem(here, f"Duplicate value: {shown(name)}")
        seen.add(name)
        dotted = _dotted(name)
        for word, group in (("hostNetwork", ("net.",)), ("hostIPC", _OF_IPC)):
            if spec.get(word) and dotted.startswith(group):
                text = f"Invalid value: {shown(name)}: may not be specified when '{word}' is true"
                yield Problem(here, text)


def _dotted(name: str) -> str:
    """A name may be written with slashes, too; the first of both tells which."""
    first = re.search("[./]", name)
    return name.translate(str.maketrans("./", "/.")) if first and first[0] == "/" else name

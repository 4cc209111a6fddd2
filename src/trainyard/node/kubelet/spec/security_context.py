"""The user and the groups of a container's programs, from the security contexts of the pod and the container.

Rules:
- A field of the container takes precedence over that of the pod.
- A user of this machine has its primary group and its further groups, another one the group 0, as in an image whose
  /etc/passwd is that of this machine.
- A user who may not enter the folders of the image's programs, or the working directory, has no effect, in words."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from trainyard.node.kubelet.spec.pod_spec import Missing
from trainyard.node.sandbox.supervisor_client import User
from trainyard.objects import Json


def user_of(pod: Json, container: Json, full_name: str, changes_users: bool) -> User | None:
    """The user of the container's programs; None for that of the node. `full_name`: of the pod, as in the kubelet's
    messages. `changes_users`: whether the node can. Raises Missing if the programs must not run as root, and are to."""
    if _field(pod, container, "runAsNonRoot") is True and _field(pod, container, "runAsUser") == 0:
        of_container = f'(pod: "{full_name}", container: {container.get("name")})'
        raise Missing(f"container's runAsUser breaks non-root policy {of_container}", None)
    user, group = _field(pod, container, "runAsUser"), _field(pod, container, "runAsGroup")
    groups = [*(_context(pod.get("spec")).get("supplementalGroups") or ()), *_fs_groups(pod)]
    if not changes_users or (user is None and group is None and not groups):
        return None
    uid = os.getuid() if user is None else int(user)
    try:
        entry = pwd.getpwuid(uid)
    except (KeyError, OverflowError):
        of_machine, gid, home = [], 0, "/"
    else:
        of_machine, gid, home = os.getgrouplist(entry.pw_name, entry.pw_gid), entry.pw_gid, entry.pw_dir
    gid = gid if group is None else int(group)
    return User(uid, gid, sorted({gid, *of_machine, *map(int, groups)}), home)


def with_programs(user: User, folders: Iterable[str], print_once: Callable[[str], object]) -> User | None:
    """The user, or None, that of the node, for one who may not enter the folders of the programs and of the job."""
    closed = closed_folder(user, filter(None, folders))
    if closed:
        text = f"user {user.uid} may not enter {closed}, so the programs run as the user of the node"
        print_once(f"node: securityContext.runAsUser: no effect: {text}")
    return None if closed else user


def closed_folder(user: User, folders: Iterable[str]) -> str:
    """The first of these folders that the user may not enter, "" if there is none. One that does not exist is left out.

    On a cluster an image has what its programs need. Here they may lie in the home of root, as the environments of
    images do, and their user would find none of them."""
    for folder in folders:
        for part in reversed((Path(folder), *Path(folder).parents)):
            try:
                status = part.stat()
            except OSError:
                continue
            bit = 0o100 if status.st_uid == user.uid else 0o010 if status.st_gid in user.groups else 0o001
            if user.uid and not status.st_mode & bit:
                return str(part)
    return ""


def fs_group(pod: Json) -> int | None:
    """The group of the files in the pod's volumes; None for that of the node."""
    return next(iter(_fs_groups(pod)), None)


def _fs_groups(pod: Json) -> list[int]:
    group = _context(pod.get("spec")).get("fsGroup")
    return [] if group is None else [int(group)]


def _field(pod: Json, container: Json, name: str) -> Any:
    value = _context(container).get(name)
    return _context(pod.get("spec")).get(name) if value is None else value


def _context(part: Json | None) -> Json:
    return (part or {}).get("securityContext") or {}

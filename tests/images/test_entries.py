"""An entry of one line, and the paths of a catalogue."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.images.image_fixtures import make, messages, refused
from trainyard.node.images import Image, Images, catalogue, problems
from trainyard.objects.yaml_reader import ManifestError

__all__ = ["make", "messages"]


def entry(make: Callable[..., Images], text: str) -> Image:
    image = make(f"images:\n- {text}\n").find("my/img")
    assert image is not None
    return image


@pytest.mark.parametrize(
    ("written", "place"),
    [("venv", "{}/venv"), ("../venv", "{}/../venv"), ("/opt/venv", "/opt/venv"), ("~/venv", "{home}/venv")],
)
def test_one_line_names_an_environment(make: Callable[..., Images], tmp_path: Path, written: str, place: str) -> None:
    (provider,) = entry(make, f"{{match: my/img, python: {written}}}").providers
    assert provider.interpreter == os.path.normpath(place.format(tmp_path, home=Path.home()))


def test_one_line_names_a_requirements_file(make: Callable[..., Images], tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("a==1 --hash=sha256:0\nb[c]==2  # why\n")
    (provider,) = entry(make, "{match: my/img, requirements: requirements.txt}").providers
    assert (provider.requirements, provider.name) == (["a==1 --hash=sha256:0", "b[c]==2"], "requirements.txt")
    (provider,) = entry(make, "{match: my/img, requirements: [a==1]}").providers
    assert provider.requirements == ["a==1"]


def test_an_entry_without_ways_runs_with_the_chosen_interpreter(make: Callable[..., Images]) -> None:
    assert entry(make, "{match: my/img}").providers == (catalogue.Provider(current={}),)


@pytest.mark.parametrize(
    ("text", "workdir"),
    [
        ("python: venv", catalogue.WORKING_DIRECTORY),
        ("requirements: [a==1]", catalogue.WORKING_DIRECTORY),
        ("entrypoint: [python, -m, train]", catalogue.WORKING_DIRECTORY),
        ("python: venv, workdir: work", "{}/work"),
        ("python: venv, workdir: '{{working-directory}}'", catalogue.WORKING_DIRECTORY),
        ("providers: [{{current: {{}}}}]", ""),
        ("ways: [{{current: {{}}}}]", ""),  # the former name of `providers`
    ],
)
def test_an_entry_with_only_an_interpreter_runs_in_the_pods_folder(
    make: Callable[..., Images], tmp_path: Path, text: str, workdir: str
) -> None:
    expected = workdir if workdir == catalogue.WORKING_DIRECTORY else workdir.format(tmp_path)
    assert entry(make, f"{{match: my/img, {text.format()}}}").workdir == expected


def test_paths_are_relative_to_the_catalogue(make: Callable[..., Images], tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    image_entry = entry(
        make,
        "{match: my/img, entrypoint: [python, train.py], args: [./data, ~/out, -m, train, --file=./x, https://a/b],"
        " workdir: work, path: [bin, ~/bin], files: {/a: a/b, /c: ~/c, /etcd: etcd}}",
    )
    assert image_entry.entrypoint == ("python", f"{tmp_path}/train.py")
    assert image_entry.args == (f"{tmp_path}/data", f"{Path.home()}/out", "-m", "train", "--file=./x", "https://a/b")
    assert (image_entry.workdir, image_entry.path) == (f"{tmp_path}/work", (f"{tmp_path}/bin", f"{Path.home()}/bin"))
    assert image_entry.files == {"/a": f"{tmp_path}/a/b", "/c": f"{Path.home()}/c", "/etcd": "etcd"}


def test_a_module_name_is_no_path(make: Callable[..., Images], tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    assert entry(make, "{match: my/img, entrypoint: [python, -m, train]}").entrypoint[1:] == ("-m", "train")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("python: a, requirements: [b==1]", "images[0]: has more than one of python, requirements and providers"),
        ("python: a, providers: [{current: {}}]", "images[0]: has more than one of python, requirements and providers"),
        ("python: ''", "images[0].python: is empty; name a virtual environment, a conda prefix or an interpreter"),
        ("providers: [{interpreter: ''}]", "images[0].providers[0].interpreter: is empty; name a virtual environment"),
        ("providers: [{interpreter: a, current: {}}]", "images[0].providers[0]: must be exactly one of current,"),
        ("requirements: [numpy]", "images[0].requirements: 'numpy' is not pinned; write it as name==version"),
        ("requirements: r.txt", "images[0].requirements: {}/r.txt:2: 'numpy' is not pinned; write it as"),
        ("requirements: none.txt", "images[0].requirements: {}/none.txt:1: file: cannot be read (No such file"),
        ("requirements: []", "images[0].requirements: names no package; write name==version"),
    ],
)
def test_a_line_that_cannot_be_used_is_refused(
    make: Callable[..., Images], tmp_path: Path, text: str, problem: str
) -> None:
    (tmp_path / "r.txt").write_text("a==1\nnumpy\n")
    with pytest.raises(ManifestError) as caught:
        make(f"images:\n- {{match: my/img, {text}}}\n")
    assert problem.format(tmp_path) in str(caught.value)


async def test_the_required_modules_of_an_entry_are_checked_in_its_environment(make: Callable[..., Images]) -> None:
    provider = f"[{{interpreter: {sys.executable}, check: no_such_module}}]"
    message = (await refused(make(f"images:\n- match: x\n  providers: {provider}\n"), "x")).message
    assert f"{sys.executable} has no module no_such_module; install it there with pip" in message


def test_make_frameworks_is_suggested_for_the_packages_that_it_installs() -> None:
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()
    system = re.search(r"^SYSTEM := (.*)$", makefile, re.M)
    assert system is not None
    assert set(system[1].split()) | {"python3-numpy"} == problems.FRAMEWORKS, "python3-torch brings python3-numpy"
    ours, two_packages = problems.install_command(["python3-torch"]), problems.install_command(["python3-torch", "gdb"])
    assert ours.startswith("run 'make frameworks' in a checkout of trainyard, or, on Debian: ")
    assert two_packages.startswith("on Debian: ") and two_packages.endswith("apt-get install -y python3-torch gdb")


def test_every_package_of_the_shipped_entries_is_installed_by_make_frameworks() -> None:
    providers = [provider for image in catalogue.read(catalogue.SHIPPED) for provider in image.providers]
    packages = {name for provider in providers for name in provider.needs.values()}
    packages |= {name for provider in providers if provider.system for name in provider.system.modules.values()}
    assert packages <= problems.FRAMEWORKS and len(packages) >= 4

"""Images without containers: the catalogue, the providers, and environments that are complete or not there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.images.image_fixtures import make, messages, output, refused
from trainyard.node.images import WORKING_DIRECTORY, Images, catalogue, interpreters
from trainyard.node.images.catalogue import Provider, python_in_range, version_satisfies
from trainyard.objects.yaml_reader import ManifestError

__all__ = ["make", "messages"]

TINY = "tomli==2.0.1"  # pure Python, no dependencies, 13 kB


# --- The catalogue --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("image", "program"),
    [
        ("gcr.io/tf-on-k8s-dogfood/tf_sample:dc944ff", "tf_sample.py"),
        ("gcr.io/tf-on-k8s-dogfood/tf_sample_gpu:latest", "tf_sample.py"),
        ("trainyard/tf-train", "tf_train.py"),
        ("trainyard/tf-train:1", "tf_train.py"),
        ("tensorflow/tensorflow:1.3.0", ""),
        ("docker.io/tensorflow/tensorflow", ""),
    ],
)
def test_the_images_of_the_first_readme_are_known_and_their_programs_exist(
    make: Callable[..., Images], image: str, program: str
) -> None:
    entry = make().find(image)
    assert entry is not None
    assert [Path(argument).name for argument in entry.entrypoint[1:]] == ([program] if program else [])
    assert all(Path(argument).is_file() for argument in entry.entrypoint[1:])
    assert entry.env["TF_CPP_MIN_LOG_LEVEL"] == "2"
    pins = entry.providers[1].requirements
    assert pins is not None and "tensorflow-cpu==2.21.0" in pins and "tensorboard==2.21.0" in pins


def test_a_users_entry_takes_precedence_and_the_first_file_wins(make: Callable[..., Images], tmp_path: Path) -> None:
    mine = "images:\n- match: [tensorflow/*, mine]\n  entrypoint: [python, '{here}/one.py', '{programs}']\n"
    images = make(mine, mine.replace("one", "two"))
    entry = images.find("tensorflow/tensorflow:2")
    assert entry is not None and entry.entrypoint[1:] == (f"{tmp_path}/one.py", str(catalogue.PROGRAMS))
    assert images.find("docker.io/library/mine") is entry
    assert images.find("nobody/knows") is None


async def test_the_shipped_catalogue_is_read_for_the_first_pod_or_ahead_of_it(
    make: Callable[..., Images], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once; the start of a background cluster does not wait for it."""
    files: list[Path] = []
    read = catalogue.read
    monkeypatch.setattr(catalogue, "read", lambda file: files.append(file) or read(file))
    for_check, prepared = make(), make()
    assert files == []
    assert for_check.find("tensorflow/tensorflow") is for_check.find("tensorflow/tensorflow")
    assert files == [catalogue.SHIPPED]
    prepared.prepare_ahead("")
    assert prepared._ahead is not None
    await prepared._ahead
    assert prepared.find("tensorflow/tensorflow") is not None and files == [catalogue.SHIPPED] * 2
    await prepared.close()


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("- a\n", "Expected `object`, got `array`; write `images:` above the list of entries"),
        ("", "missing required field `images`"),
        ("images: {}\n", "Expected `array`"),
        ("images:\n- {}\n", "images[0]: Object missing required field `match`"),
        ("images:\n- {match: a, entry: [x]}\n", "images[0]: Object contains unknown field `entry`"),
        ("images:\n- {match: a, env: {A: 1}}\n", "images[0].env[...]: Expected `str`, got `int`"),
        ("images:\n- {match: []}\n", "images-0.yaml:2: images[0].match: is empty"),
        (
            "images:\n- {match: a, providers: [{}]}\n",
            "images[0].providers[0]: must be exactly one of current, requirements",
        ),
        ("images:\n- {match: a, providers: [{current: {}, requirements: [a==1]}]}\n", "must be exactly one of"),
        (
            "images:\n- {match: a, providers: [{requirements: ['a>=1']}]}\n",
            "'a>=1' is not pinned; write it as name==version",
        ),
        ("images:\n- {match: a, providers: [{requirements: [a==1.*]}]}\n", "is not pinned"),
        (
            "images:\n- {match: a, providers: [{requirements: no.txt}]}\n",
            "no.txt:1: file: cannot be read (",
        ),
        (
            "images:\n- {match: a, providers: [{current: {a: new}}]}\n",
            "'new' is not a version range; write for example",
        ),
        (
            "images:\n- {match: a, providers: [{current: {}, python: new}]}\n",
            "'new' is not a range; write for example '3.11",
        ),
        ("images:\n- {match: a, providers: [{current: {}, disk: big}]}\n", "'big' is not a size; write for example"),
        ("images: []\n---\nimages: []\n", "images-0.yaml:3: document: is a second document"),
        ("images:\n- match: a\n  match: b\n", "images-0.yaml:3: images[0].match: is written twice"),
    ],
)
def test_a_catalogue_that_cannot_be_used_is_refused_with_the_place_and_the_fix(
    make: Callable[..., Images], text: str, part: str
) -> None:
    with pytest.raises(ManifestError) as caught:
        make(text)
    assert part in str(caught.value) and "images-0.yaml" in str(caught.value)


def test_a_catalogue_that_is_not_there_is_refused(tmp_path: Path, messages: list[str]) -> None:
    with pytest.raises(
        ManifestError, match=r"none\.yaml:1: file: cannot be read \(No such file or directory\); name a file"
    ):
        Images([tmp_path / "none.yaml"], tmp_path, messages.append)


@pytest.mark.parametrize(
    ("version", "terms", "right"),
    [
        ("2.16.1", ">=2.16,<3", True), ("2.15.9", ">=2.16,<3", False), ("3.0", ">=2.16,<3", False),
        ("2.21.0rc1", ">=2.21", True), ("1.13.1+dfsg", "==1.13.1", True), ("1", "", True), ("1.2", "!=1.2", False),
        ("1.2", ">1.1.9", True), ("1.10", "<=1.9", False), ("", ">=1", False), ("1", "~=1", False),
        ("2", "==2.0", True),
    ],
)  # fmt: skip
def test_versions_are_compared_number_by_number(version: str, terms: str, right: bool) -> None:
    assert version_satisfies(version, terms) is right


def test_a_python_range_holds_both_its_ends() -> None:
    assert [python_in_range("3.11 - 3.13", (3, minor)) for minor in (10, 11, 13, 14)] == [False, True, True, False]
    assert python_in_range("3.12", (3, 12)) and not python_in_range("3.12", (3, 13)) and python_in_range("", (3, 99))


# --- Providers ------------------------------------------------------------------------------------------------------


async def test_an_unknown_image_with_a_command_runs_with_the_chosen_python_and_one_message(
    make: Callable[..., Images], messages: list[str]
) -> None:
    images = make()
    first = await images.prepare("my/image:1", need_command=False)
    assert await images.prepare("my/image:1", need_command=False) == first
    version = ".".join(map(str, sys.version_info[:3]))
    place = sys.prefix if sys.prefix != sys.base_prefix else sys.executable
    line = f"images: my/image:1 runs with Python {version} of {place} (--python); it is not in the catalogue"
    assert messages == [line]
    code = "import sys; print(sys.prefix)"
    assert output("python", "-c", code, env={"PATH": first.path[0]}) == sys.prefix
    assert first.entrypoint == first.args == [] and first.workdir == WORKING_DIRECTORY


@pytest.mark.parametrize("image", ["trainyard/local", "docker.io/trainyard/local:1"])
async def test_this_machine_is_an_image_that_runs_the_chosen_python_in_the_pods_folder(
    make: Callable[..., Images], messages: list[str], image: str
) -> None:
    prepared = await make().prepare(image, need_command=False)
    assert output("python", "-c", "import sys; print(sys.prefix)", env={"PATH": prepared.path[0]}) == sys.prefix
    assert prepared.workdir == WORKING_DIRECTORY
    (line,) = messages
    assert line.startswith(f"images: {image} runs with Python ") and line.endswith(" (--python)")


async def test_an_unknown_image_without_a_command_waits_with_an_entry_to_paste(make: Callable[..., Images]) -> None:
    problem = await refused(make(), "my/image:1", need_command=True)
    assert problem.reason == "ErrImageNeverPull"
    pasted = problem.message.split("\n", 1)[1]
    prepared = await make(pasted).prepare("my/image:1", need_command=True)
    assert prepared.entrypoint == ["python", "/path/to/train.py"]


async def test_an_image_without_a_program_wants_a_command_or_arguments(make: Callable[..., Images]) -> None:
    images = make("images:\n- match: bare\n  providers: [{current: {}}]\n")
    problem = await refused(images, "bare", need_command=True)
    assert problem.reason == "CreateContainerError" and "write 'command' in the container" in problem.message
    await images.prepare("bare", need_command=True, has_args=True)
    await images.prepare("bare", need_command=False)


async def test_the_first_working_provider_is_used(make: Callable[..., Images]) -> None:
    providers = "[{current: {no_such_module: ''}}, {system: {python: /nowhere/python, modules: {a: b}}}, {current: {}}]"
    prepared = await make(f"images:\n- match: x\n  providers: {providers}\n  env: {{A: b}}\n  workdir: /w\n").prepare(
        "x", False
    )
    assert (prepared.env["A"], prepared.workdir) == ("b", "/w")


async def test_without_a_working_provider_every_reason_is_reported(make: Callable[..., Images]) -> None:
    providers = "[{current: {yaml: '<1'}}, {system: {python: /nowhere/python, modules: {torch: python3-torch}}}]"
    problem = await refused(make(f"images:\n- match: x\n  providers: {providers}\n"), "x")
    assert problem.reason == "ErrImagePull"
    assert "has yaml 6" in problem.message and "not <1; install it there with pip" in problem.message
    assert "/nowhere/python has no module torch; run 'make frameworks' in a checkout" in problem.message
    assert problem.message.endswith("apt-get install -y python3-torch")


async def test_an_environment_with_system_site_packages_imports_them(
    make: Callable[..., Images], tmp_path: Path
) -> None:
    provider = f"{{system: {{python: {sys.executable}, modules: {{pip: python3-pip}}}}, check: pip}}"
    prepared = await make(f"images:\n- match: x\n  providers: [{provider}]\n").prepare("x", False)
    assert output(f"{prepared.path[0]}/python", "-c", "import sys; print(sys.prefix)").startswith(str(tmp_path))


async def test_locks_for_another_python_version_are_refused_with_it(make: Callable[..., Images]) -> None:
    provider = f"{{requirements: [{TINY}], name: tiny 2, python: 3.98 - 3.99}}"
    problem = await refused(make(f"images:\n- match: x\n  providers: [{provider}]\n"), "x")
    this = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert f"tiny 2 needs Python 3.98 to 3.99; this is {this}, and no other was found; install Python 3.99" in str(
        problem
    )


async def test_another_python_on_path_is_used_for_locks_of_its_version(
    make: Callable[..., Images], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for minor, said_version in ((19, "3.2.1"), (18, "3.18.4")):  # the first answers with a version that is not its name
        program = tmp_path / f"python3.{minor}"
        program.write_text(f"#!/bin/sh\necho {said_version}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    interpreter = interpreters.interpreter_for(Provider(requirements=[TINY], python="3.17 - 3.19"))
    assert (
        interpreter is not None and interpreter.version == (3, 18) and interpreter.path == str(tmp_path / "python3.18")
    )


def test_a_python_whose_folder_has_no_python_gets_one_that_keeps_its_environment(tmp_path: Path) -> None:
    named = tmp_path / "bin" / "python3.99"
    named.parent.mkdir()
    named.symlink_to(sys.executable)
    folder = interpreters.shim_folder(str(named), tmp_path / "cache")
    assert folder.startswith(str(tmp_path / "cache"))
    done = subprocess.run([f"{folder}/python", "-c", "print(1)"], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"

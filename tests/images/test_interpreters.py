"""Which interpreter runs an image, how it is queried, and the message when it is broken. With real environments."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.images.image_fixtures import make, messages, output, refused
from trainyard.node.images import Images, PreparedImage, interpreters
from trainyard.node.images.interpreters import Interpreters

__all__ = ["make", "messages"]

VERSION = ".".join(map(str, sys.version_info[:3]))
REAL = os.path.realpath(sys.executable)
NO_SHELL = {"PATH": "/nowhere"}


@pytest.fixture(scope="module")
def built_venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real virtual environment, to be copied or looked at, not changed."""
    folder = tmp_path_factory.mktemp("environments") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder


def made_venv(built: Path, folder: Path) -> Path:
    """A copy: an environment finds itself by pyvenv.cfg beside its interpreter."""
    shutil.copytree(built, folder, symlinks=True)
    return folder


def packages(venv: Path) -> Path:
    (folder,) = (venv / "lib").glob("python3*/site-packages")
    return folder


def conda_prefix(folder: Path) -> Path:
    """As conda lays one out: bin/python, conda-meta, no pyvenv.cfg. Its sys.prefix is its folder."""
    (folder / "bin").mkdir(parents=True)
    (folder / "conda-meta").mkdir()
    script = f'#!/bin/sh\nPYTHONHOME={folder} exec {os.path.realpath(sys.executable)} "$@"\n'
    (folder / "bin" / "python").write_text(script)
    (folder / "bin" / "python").chmod(0o755)
    library = f"python3.{sys.version_info[1]}"
    (folder / "lib").mkdir()
    (folder / "lib" / library).symlink_to(Path(sys.base_prefix, "lib", library))
    return folder


def prefix_of(prepared: PreparedImage, program: str = "python") -> str:
    """What a container of that image gets when it calls `python`."""
    env = {**prepared.env, "PATH": os.pathsep.join([*prepared.path, "/usr/bin", "/bin"])}
    executable = shutil.which(program, path=env["PATH"])
    assert executable
    return output(executable, "-c", "import sys; print(sys.prefix)", env=env)


# --- Which one ------------------------------------------------------------------------------------------------------


async def test_the_active_environment_runs_images_without_one_of_their_own(
    make: Callable[..., Images], built_venv: Path, messages: list[str]
) -> None:
    images = make(python="", environ={**NO_SHELL, "VIRTUAL_ENV": str(built_venv)})
    prepared = await images.prepare("my/img", False)
    await images.prepare("my/img", False)
    assert messages == [
        f"images: my/img runs with Python {VERSION} of {built_venv} (the active virtual environment); "
        "it is not in the catalogue"
    ]
    assert prefix_of(prepared) == prefix_of(prepared, "python3") == str(built_venv)
    assert prepared.env == {"VIRTUAL_ENV": str(built_venv)}


async def test_the_option_comes_before_the_active_environment(make: Callable[..., Images], built_venv: Path) -> None:
    environ = {**NO_SHELL, "VIRTUAL_ENV": "/nowhere/venv"}
    for place in (built_venv, built_venv / "bin" / "python"):
        assert prefix_of(await make(python=str(place), environ=environ).prepare("x", False)) == str(built_venv)


async def test_an_active_conda_environment_is_used_and_named(
    make: Callable[..., Images], tmp_path: Path, messages: list[str]
) -> None:
    prefix = conda_prefix(tmp_path / "conda")
    prepared = await make(python="", environ={**NO_SHELL, "CONDA_PREFIX": str(prefix)}).prepare("x", False)
    assert f"of {prefix} (the active conda environment)" in messages[0]
    assert prepared.env == {"CONDA_PREFIX": str(prefix)} and prefix_of(prepared) == str(prefix)


@pytest.mark.parametrize("name", [".venv", "venv"])
async def test_an_environment_in_the_working_directory_is_used(
    make: Callable[..., Images], built_venv: Path, tmp_path: Path, messages: list[str], name: str
) -> None:
    venv = made_venv(built_venv, tmp_path / "project" / name)
    images = make(python="", environ=dict(os.environ, VIRTUAL_ENV="", CONDA_PREFIX=""))
    prepared = await images.prepare("x", False, folder=str(tmp_path / "project"))
    assert prefix_of(prepared) == str(venv) and f"of {venv} ({name} in {tmp_path / 'project'})" in messages[0]


async def test_python3_on_path_comes_before_the_one_that_runs_trainyard(
    make: Callable[..., Images], built_venv: Path, tmp_path: Path, messages: list[str]
) -> None:
    dead = tmp_path / "dead"
    dead.mkdir()
    (dead / "python3").write_text("#!/bin/sh\necho 'no version is selected' >&2\nexit 127\n")
    (dead / "python3").chmod(0o755)
    path = os.pathsep.join([str(dead), str(built_venv / "bin"), "/usr/bin", "/bin"])
    assert prefix_of(await make(python="", environ={"PATH": path}).prepare("x", False)) == str(built_venv)
    assert "(python3 on PATH)" in messages[0]


async def test_a_shim_on_path_is_resolved_to_its_interpreter(
    make: Callable[..., Images], built_venv: Path, tmp_path: Path
) -> None:
    shim = tmp_path / "python3"
    shim.write_text('#!/bin/sh\nread name < .python-version\nexec "$PICKED/$name" "$@"\n')
    shim.chmod(0o755)
    (tmp_path / ".python-version").write_text("python\n")
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "PICKED": str(built_venv / "bin")}
    prepared = await make(python="", environ=environ).prepare("x", False, folder=str(tmp_path))
    assert prepared.path[0] == str(built_venv / "bin"), "the program's variables have no PICKED"


async def test_the_default_interpreter_is_that_of_trainyard(make: Callable[..., Images], messages: list[str]) -> None:
    assert prefix_of(await make(python="", environ=NO_SHELL).prepare("x", False)) == sys.prefix
    assert messages[0].endswith("(the Python that runs trainyard); it is not in the catalogue")


async def test_a_conda_environment_without_a_python_is_ignored(
    make: Callable[..., Images], tmp_path: Path, messages: list[str]
) -> None:
    (tmp_path / "tools" / "conda-meta").mkdir(parents=True)
    await make(python="", environ={**NO_SHELL, "CONDA_PREFIX": str(tmp_path / "tools")}).prepare("x", False)
    assert "(the Python that runs trainyard)" in messages[0]


async def test_programs_of_the_environment_are_found(
    make: Callable[..., Images], built_venv: Path, tmp_path: Path
) -> None:
    venv = made_venv(built_venv, tmp_path / "venv")
    (venv / "bin" / "torchrun").write_text("#!/bin/sh\necho its own\n")
    (venv / "bin" / "torchrun").chmod(0o755)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "python3.99").symlink_to(REAL)
    (tmp_path / "other" / "tool").touch(0o755)
    for place, program in ((venv, "torchrun"), (tmp_path / "other" / "python3.99", "tool")):
        prepared = await make(python=str(place)).prepare("x", False)
        executable = shutil.which(program, path=os.pathsep.join(prepared.path))
        assert executable and Path(executable).parent == (place / "bin" if place == venv else place.parent)


# --- What is checked is what is used --------------------------------------------------------------------------------


async def test_modules_are_searched_where_the_program_runs(
    make: Callable[..., Images], built_venv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "only_in_our_process.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path / "mine"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "mine"))  # programs do not get it
    venv = made_venv(built_venv, tmp_path / "venv")
    entry = "images:\n- match: x\n  providers: [{current: {only_in_our_process: ''}}]\n"
    assert f"{venv}/bin/python has no module only_in_our_process" in str(
        await refused(make(entry, python=str(venv)), "x")
    )
    with_pythonpath = entry.replace("  providers", f"  env: {{PYTHONPATH: {tmp_path}/mine}}\n  providers")
    await make(with_pythonpath, python=str(venv)).prepare("x", False)


async def test_our_own_files_are_no_modules_of_an_interpreter(make: Callable[..., Images], built_venv: Path) -> None:
    entry = "images:\n- match: x\n  providers: [{current: {catalogue: '', requirements: ''}}]\n"
    message = (await refused(make(entry, python=str(built_venv)), "x")).message
    assert "has no module catalogue, no module requirements; install it there with pip" in message


async def test_a_package_installed_meanwhile_is_detected(
    make: Callable[..., Images], built_venv: Path, tmp_path: Path
) -> None:
    venv = made_venv(built_venv, tmp_path / "venv")
    images = make("images:\n- match: x\n  providers: [{current: {late: '>=2'}}]\n", python=str(venv))
    assert "has no module late" in (await refused(images, "x")).message
    (packages(venv) / "late").mkdir()
    (packages(venv) / "late" / "__init__.py").touch()
    info = packages(venv) / "late-2.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: late\nVersion: 2.1\n")
    (info / "RECORD").write_text("late/__init__.py,,\nlate-2.1.dist-info/METADATA,,\n")
    await images.prepare("x", False)


def test_an_interpreter_is_queried_once_until_it_changes(tmp_path: Path) -> None:
    program = tmp_path / "python"
    log = tmp_path / "asked"
    program.write_text(f'#!/bin/sh\necho >> {log}\nexec {sys.executable} "$@"\n')
    program.chmod(0o755)
    asking = Interpreters()
    with ThreadPoolExecutor(8) as pool:
        versions = {
            interpreter.python.full_version
            for interpreter in pool.map(lambda _: asking.describe(str(program), {}), range(8))
        }
    assert versions == {VERSION} and log.read_text() == "\n"
    os.utime(program, (1, 1))
    asking.describe(str(program), {})
    assert log.read_text() == "\n\n"


def test_several_pods_may_put_one_interpreter_on_path_at_once(tmp_path: Path) -> None:
    named = tmp_path / "python3.99"
    named.symlink_to(sys.executable)
    for at in range(20):
        with ThreadPoolExecutor(8) as pool:
            folders = set(pool.map(lambda cache: interpreters.shim_folder(str(named), cache), [tmp_path / str(at)] * 8))
        assert [sorted(os.listdir(folder)) for folder in folders] == [["python", "python3"]]


# --- Broken ones ----------------------------------------------------------------------------------------------------


def dangling(folder: Path) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to("/nowhere/python3.9")
    return folder


def not_python(folder: Path) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").write_text(
        "#!/bin/sh\necho 'libpython3.9.so: cannot open shared object file' >&2\nexit 1\n"
    )
    (folder / "bin" / "python").chmod(0o755)
    return folder


def empty(folder: Path) -> Path:
    folder.mkdir()
    return folder


def plain_file(folder: Path) -> Path:
    folder.write_text("")
    return folder


BROKEN = [
    (lambda folder: folder, "{} does not exist; make it (python3 -m venv {}) or name an existing one"),
    (empty, "{} is neither a virtual environment nor a conda prefix: it has no bin/python; make one there"),
    (
        dangling,
        "{} is broken: its interpreter /nowhere/python3.9 does not exist; make it again (python3 -m venv --clear {})",
    ),
    (not_python, "{}/bin/python does not work as Python 3: libpython3.9.so: cannot open shared object file; repair it"),
    (plain_file, "{} is not a program; name an interpreter, a virtual environment, or a prefix"),
]


@pytest.mark.parametrize(("broken", "expected_message"), BROKEN)
async def test_an_environment_that_is_broken_is_named_with_the_fix(
    make: Callable[..., Images], tmp_path: Path, broken: Callable[[Path], Path], expected_message: str
) -> None:
    place = str(broken(tmp_path / "venv"))
    expected = expected_message.format(place, place)
    entry = await refused(make("images:\n- {match: x, python: venv}\n"), "x")
    assert entry.reason == "ErrImagePull" and entry.message.startswith(f"x: {expected}")
    assert entry.message.endswith(f"('python' of its entry in {tmp_path}/images-0.yaml)")
    option = await refused(make(python=place), "any")
    assert option.message.startswith(f"any: --python: {expected}")
    active = await refused(make(python="", environ={"VIRTUAL_ENV": place}), "any")
    assert active.message.startswith(f"any: VIRTUAL_ENV: {expected}")
    assert active.message.endswith(", or leave it (deactivate), or use --python")

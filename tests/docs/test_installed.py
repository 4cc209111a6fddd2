"""Trainyard as a user installs it: pip with the wheel, `uv tool install .`, `pipx install .`, and each file of a
release with the locked dependencies; then their first job."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainyard import __version__

ROOT = Path(__file__).parents[2]
SCRIPT = """import pathlib
pathlib.Path("model.txt").write_text("weights")
print("trained")
"""


# Without the development tools: nothing that is installed needs them, and the tests' own modules are not installed.
EVERY_MODULE = """
import importlib, pkgutil, trainyard
names = [module.name for module in pkgutil.walk_packages(trainyard.__path__, "trainyard.")]
assert names and not [name for name in names if not name.startswith("trainyard.")], names
for name in names:
    if not name.endswith(".__main__") and name != "trainyard.testing.plugin":  # pytest itself loads the plugin
        importlib.import_module(name)
print("imported")
"""


def run(*argv: str | Path, cwd: Path, env: dict[str, str]) -> str:
    """stdout and stderr together; the command must end with 0."""
    arguments = [str(argument) for argument in argv]
    ended = subprocess.run(arguments, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{arguments}: {ended.stdout}{ended.stderr}"
    return ended.stdout + ended.stderr


def with_pip(place: Path, env: dict[str, str]) -> Path:
    """The wheel, into a virtual environment of the user's."""
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", place / "dist", ROOT, cwd=place, env=env)
    (wheel,) = (place / "dist").glob("*.whl")
    run(sys.executable, "-m", "venv", place / "venv", cwd=place, env=env)
    run(place / "venv" / "bin" / "pip", "install", "-q", wheel, cwd=place, env=env)
    return place / "venv" / "bin"


def with_uv(place: Path, env: dict[str, str]) -> Path:
    uv = Path(sys.executable).with_name("uv")
    run(uv, "tool", "install", "-q", "--python", sys.executable, ROOT, cwd=place, env=env)
    return place / "bin"


def with_pipx(place: Path, env: dict[str, str]) -> Path:
    run(sys.executable, "-m", "venv", place / "pipx", cwd=place, env=env)
    run(place / "pipx" / "bin" / "pip", "install", "-q", "pipx==1.8.0", cwd=place, env=env)
    run(place / "pipx" / "bin" / "pipx", "install", "-q", ROOT, cwd=place, env=env)
    return place / "bin"


def with_locked_wheel(place: Path, env: dict[str, str]) -> Path:
    return with_lock(place, env, "wheel")


def with_locked_sdist(place: Path, env: dict[str, str]) -> Path:
    return with_lock(place, env, "sdist")


def with_lock(place: Path, env: dict[str, str], target: str) -> Path:
    """A file of a release, into a fresh virtual environment that has what the lock files pin and nothing else."""
    run(sys.executable, "-m", "hatchling", "build", "-t", target, "-d", place / "dist", cwd=ROOT, env=env)
    (file,) = (place / "dist").iterdir()
    uv, venv = Path(sys.executable).with_name("uv"), place / "venv"
    run(uv, "venv", "-q", "--python", sys.executable, venv, cwd=place, env=env)
    install: list[str | Path] = [uv, "pip", "install", "-q", "--no-deps", "--python", venv]
    locks = [ROOT / "requirements" / name for name in ("runtime.lock", "build.lock")[: 1 if target == "wheel" else 2]]
    run(*install, "--require-hashes", *(word for lock in locks for word in ("-r", lock)), cwd=place, env=env)
    run(*install, "--no-index", "--no-build-isolation", file, cwd=place, env=env)
    return venv / "bin"


INSTALLERS = {
    "pip": with_pip,
    "uv": with_uv,
    "pipx": with_pipx,
    "locked wheel": with_locked_wheel,
    "locked sdist": with_locked_sdist,
}


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.parametrize("install", INSTALLERS.values(), ids=INSTALLERS)
def test_an_installed_trainyard_runs_a_users_script(install: object, tmp_path: Path) -> None:
    """The script's folder is the user's own, and what the script writes there is there afterwards."""
    place, project = tmp_path / "installed", tmp_path / "project"
    place.mkdir()
    project.mkdir()
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    env |= {"HOME": str(place), "PIPX_HOME": str(place / "home"), "PIPX_BIN_DIR": str(place / "bin")}
    env |= {"UV_TOOL_DIR": str(place / "tools"), "UV_TOOL_BIN_DIR": str(place / "bin")}
    # What pip and uv have downloaded before is used again: a home of its own would have an empty cache each time.
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    env = {"PIP_CACHE_DIR": str(cache / "pip"), "UV_CACHE_DIR": str(cache / "uv"), "PIP_NO_COMPILE": "1", **env}
    binaries = install(place, env)  # type: ignore[operator]  # one of the functions above
    env["PATH"] = f"{binaries}:/usr/local/bin:/usr/bin:/bin"
    (project / "train.py").write_text(SCRIPT)
    assert run("trainyard", "--version", cwd=project, env=env) == f"trainyard {__version__}\n"
    printed = run("trainyard", "run", "train.py", cwd=project, env=env)
    assert "trained" in printed
    assert "Succeeded" in printed
    assert (project / "model.txt").read_text() == "weights"
    assert "1 job, no problem" in run("trainyard", "lint", ROOT / "examples" / "tf_job.yaml", cwd=project, env=env)
    assert "CustomResourceDefinition" in run("trainyard", "manifests", cwd=project, env=env)
    if install is with_pip:
        assert run(binaries / "python", "-c", EVERY_MODULE, cwd=project, env=env).split() == ["imported"]

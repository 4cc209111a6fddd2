"""Environments are complete or not there: with a scripted installer, and with the real ones."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.images.image_fixtures import make, messages, output, refused
from tests.support.waiting import until_async
from trainyard.node.images import Images, catalogue, environments, interpreters

pytestmark = pytest.mark.slow

__all__ = ["make", "messages"]

VERSION = ".".join(map(str, sys.version_info[:3]))
TINY = "tomli==2.0.1"  # pure Python, no dependencies, 13 kB


SCRIPT = """#!{python}
import os, pathlib, sys, time
arguments = sys.argv[1:]
with open({log!r}, "a") as log:
    log.write(arguments[0] + "\\n")
if arguments[0] == "venv":
    folder = pathlib.Path(arguments[-1])
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to({python!r})
    (folder / "bin" / "tool").write_text("#!" + str(folder / "bin" / "python") + "\\nimport sys; print(sys.argv[0])\\n")
    (folder / "bin" / "tool").chmod(0o755)
else:
    {install}
"""
PROVIDER = "images:\n- match: x\n  providers:\n  - {requirements: [a==1], name: Tiny One, download: 5 GB, disk: 1 kB}\n"


@pytest.fixture
def installer(tmp_path: Path) -> Callable[[str], str]:
    """A program that is called as uv is, and does what a line of Python says instead of `pip install`."""

    def write_installer(install: str) -> str:
        program = tmp_path / "installer"
        program.write_text(SCRIPT.format(python=sys.executable, log=str(tmp_path / "log"), install=install))
        program.chmod(0o755)
        return str(program)

    return write_installer


async def test_an_environment_is_built_once_and_its_scripts_name_their_folder(
    make: Callable[..., Images], installer: Callable[[str], str], messages: list[str], tmp_path: Path
) -> None:
    images = make(PROVIDER, uv=installer("pass"))
    first, second = await asyncio.gather(images.prepare("x", False), images.prepare("x", False))
    assert first == second == await make(PROVIDER, uv="/not/used").prepare("x", False)
    assert (tmp_path / "log").read_text().split() == ["venv", "pip"]
    tool = Path(first.path[0]) / "tool"
    assert tool.read_text().startswith(f"#!{first.path[0]}/python\n")
    assert output(str(tool)) == str(tool)
    assert messages[0].startswith(
        "images: installing Tiny One with uv (about 5 GB to download, 1 kB on disk), once, into"
    )
    assert (
        messages[1].startswith("images: Tiny One is ready after")
        and messages[2] == f"images: x runs as Tiny One, Python {VERSION}"
    )
    assert [path.name for path in tool.parents[2].iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("last_words", "part"),
    [
        ("error: failed to write: No space left on device (os error 28)", "no space left in"),
        ("Caused by: dns error: failed to lookup address information", "the package index cannot be reached"),
        ("WARNING: Retrying ... NewConnectionError(': Failed to establish')", "the package index cannot be reached"),
        ("ERROR: No matching distribution found for a==1", "does not have a pin for this Python and platform"),
        ("Package 'a' requires a different Python: 3.14 not in '<3.14'", "a pin does not support this Python"),
        (
            "error: Failed to initialize cache at `/x`: permission denied",
            "set UV_CACHE_DIR to a folder that you can write",
        ),
        ("something new", "its installer ended with code 3"),
    ],
)
async def test_a_failed_build_reports_the_reason_and_leaves_nothing(
    make: Callable[..., Images], installer: Callable[[str], str], tmp_path: Path, last_words: str, part: str
) -> None:
    images = make(PROVIDER, uv=installer(f"print({last_words!r}, file=sys.stderr); sys.exit(3)"))
    problem = await refused(images, "x")
    assert problem.reason == "ErrImagePull" and part in problem.message and last_words in problem.message
    assert [path.suffix for path in (tmp_path / "cache" / "environments").iterdir()] == [".lock"]
    assert (await make(PROVIDER, uv=installer("pass")).prepare("x", False)).path


RETRY = (
    "WARNING: Retrying (Retry(total=%d, connect=None, read=None, redirect=None, status=None)) after connection broken "
    "by 'NewConnectionError('<pip._vendor.urllib3.connection.HTTPConnection object at 0x7f3b23130510>: "
    "Failed to establish a new connection: [Errno 111] Connection refused')': /simple/six/"
)


async def test_the_message_about_an_unreachable_index_has_the_error_and_not_all_attempts(
    make: Callable[..., Images], installer: Callable[[str], str]
) -> None:
    output = "\n".join([*(RETRY % left for left in (1, 0)), "ERROR: No matching distribution found for six==1.16.0"])
    problem = await refused(make(PROVIDER, uv=installer(f"print({output!r}, file=sys.stderr); sys.exit(1)")), "x")
    assert problem.message.endswith(
        "the package index cannot be reached; check the network and the proxy, or set PIP_INDEX_URL and UV_INDEX_URL. "
        "Its last output: [Errno 111] Connection refused / ERROR: No matching distribution found for six==1.16.0"
    )


async def test_a_check_that_does_not_import_fails_the_build(
    make: Callable[..., Images], installer: Callable[[str], str]
) -> None:
    checked = PROVIDER.replace("disk: 1 kB", "check: no_such_module")
    assert "No module named 'no_such_module'" in (await refused(make(checked, uv=installer("pass")), "x")).message


async def test_too_little_space_is_reported_before_the_installation(
    make: Callable[..., Images], installer: Callable[[str], str], tmp_path: Path
) -> None:
    problem = await refused(make(PROVIDER.replace("1 kB", "999999999 GB"), uv=installer("pass")), "x")
    assert "Tiny One needs 999999999 GB in" in problem.message and "--cache" in problem.message
    assert not (tmp_path / "log").exists()


async def test_a_cache_that_cannot_be_written_is_reported(make: Callable[..., Images], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    problem = await refused(make(PROVIDER, cache=tmp_path / "file" / "cache"), "x")
    assert "cannot be written (Not a directory); make it writable, or name another folder" in problem.message


async def test_a_cancelled_build_ends_its_programs_and_is_not_used(
    make: Callable[..., Images], installer: Callable[[str], str], tmp_path: Path
) -> None:
    install = f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid())); time.sleep(600)"
    images = make(PROVIDER, uv=installer(install))
    waiting = asyncio.create_task(images.prepare("x", False))
    pid = await written(tmp_path / "pid")
    waiting.cancel()  # one caller goes; the build is everyone's
    assert alive(pid)
    await images.close()
    assert not alive(pid)
    assert [path.suffix for path in (tmp_path / "cache" / "environments").iterdir()] == [".lock"]


async def test_a_builder_that_is_killed_takes_its_programs_along_and_the_next_one_builds_anew(
    make: Callable[..., Images], installer: Callable[[str], str], tmp_path: Path
) -> None:
    installer(f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid())); time.sleep(600)")
    make(PROVIDER)
    code = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom trainyard.node.images import Images\n"
        "here = Path(sys.argv[1])\n"
        "images = Images([here / 'images-0.yaml'], here / 'cache', print, uv=str(here / 'installer'))\n"
        "asyncio.run(images.prepare('x', False))\n"
    )
    runner = await asyncio.create_subprocess_exec(sys.executable, "-c", code, str(tmp_path), stdout=-3, stderr=-3)
    pid = await written(tmp_path / "pid")
    left = [path.name for path in (tmp_path / "cache" / "environments").iterdir() if path.name.startswith(".")]
    assert len(left) == 1
    runner.send_signal(signal.SIGKILL)
    await runner.wait()
    await until_async(lambda: not alive(pid), "the installer is gone")
    prepared = await make(PROVIDER, uv=installer("pass")).prepare("x", False)
    assert (Path(prepared.path[0]) / "tool").exists()
    assert not [path for path in (tmp_path / "cache" / "environments").iterdir() if path.name.startswith(".")]


async def test_a_second_builder_waits_for_the_first_and_uses_its_environment(
    make: Callable[..., Images], installer: Callable[[str], str], tmp_path: Path, messages: list[str]
) -> None:
    wait = f"\n    while not pathlib.Path({str(tmp_path / 'go')!r}).exists(): time.sleep(0.01)"
    first, second = make(PROVIDER, uv=installer(wait)), make(PROVIDER, uv="/not/used")
    building = asyncio.create_task(first.prepare("x", False))
    await until_async(
        (tmp_path / "log").read_text, "pip runs", accept=lambda log: "pip" in log, retry_on=FileNotFoundError
    )
    waiting = asyncio.create_task(second.prepare("x", False))
    await until_async(
        lambda: any("another process is installing Tiny One" in line for line in messages), "the second builder waits"
    )
    (tmp_path / "go").touch()
    assert await waiting == await building


async def test_an_environment_without_its_python_is_rebuilt(
    make: Callable[..., Images], installer: Callable[[str], str], tmp_path: Path
) -> None:
    prepared = await make(PROVIDER, uv=installer("pass")).prepare("x", False)
    python = Path(prepared.path[0]) / "python"
    python.unlink()
    python.symlink_to("/nowhere/python")
    assert await make(PROVIDER, uv=installer("pass")).prepare("x", False) == prepared
    assert python.exists()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def written(file: Path) -> int:
    return int(await until_async(file.read_text, f"{file.name} is written", retry_on=FileNotFoundError))


# --- Environments, for real -----------------------------------------------------------------------------------------


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.parametrize("tool", ["uv", "pip"])
async def test_a_real_environment_is_built_from_the_index(make: Callable[..., Images], tool: str) -> None:
    uv = interpreters.find_uv() if tool == "uv" else ""
    assert uv or tool == "pip", "the development environment brings uv"
    providers = f"[{{requirements: [{TINY}], name: tomli, check: tomli}}]"
    prepared = await make(f"images:\n- match: x\n  providers: {providers}\n", uv=uv).prepare("x", False)
    code = "import tomli; print(tomli.__file__)"
    python = f"{prepared.path[0]}/python"
    assert output(python, "-c", code).startswith(str(Path(prepared.path[0]).parent))


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.parametrize("tool", ["uv", "pip"])
async def test_an_index_that_does_not_answer_is_named(
    make: Callable[..., Images], monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    monkeypatch.setenv("UV_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setenv("PIP_RETRIES", "1")
    providers = f"[{{requirements: [{TINY}]}}]"
    uv = interpreters.find_uv() if tool == "uv" else ""
    monkeypatch.setenv("UV_NO_CACHE", "1")
    problem = await refused(make(f"images:\n- match: x\n  providers: {providers}\n", uv=uv), "x")
    assert "the package index cannot be reached; check the network and the proxy" in problem.message


def test_the_shipped_locks_are_complete(tmp_path: Path) -> None:
    (entry,) = [
        candidate for candidate in catalogue.read(catalogue.SHIPPED) if "tensorflow/tensorflow*" in candidate.match
    ]
    names = [line.split("==")[0] for line in entry.providers[1].requirements or ()]
    assert {"numpy", "protobuf", "grpcio", "keras", "setuptools"} <= set(names)
    builder = environments.Builder(tmp_path, "", print)
    python = interpreters.current()
    assert builder.folder(entry.providers[1], python) == builder.folder(entry.providers[1], python)
    other = interpreters.Python(python.path, python.version, "another")
    assert builder.folder(entry.providers[1], python) != builder.folder(entry.providers[1], other)

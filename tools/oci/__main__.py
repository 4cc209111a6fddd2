"""Builds the operator's image for several platforms without a container daemon: `make image`.

    python -m tools.oci [--platform linux/arm64 ...] [--base IMAGE] [--name NAME] [--output FOLDER]

The image is that of the Dockerfile: a Python image from a registry, and on top a layer with the locked wheels of each
platform and Trainyard's own. Nothing of the platform is run, so no emulator is needed. FOLDER gets an archive with all
platforms, and one for each.
"""

from __future__ import annotations

import argparse
import compileall
import py_compile
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.oci import archive
from tools.oci.archive import File, Image
from tools.oci.registry import RegistryError, pull
from trainyard import __version__
from trainyard.app.install.installation import IMAGE, USER

ROOT = Path(__file__).parents[2]
FOLDER = "/opt/trainyard"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
BASE = f"docker.io/library/python:{PYTHON}-slim"
PLATFORMS = {"linux/amd64": "x86_64-manylinux_2_28", "linux/arm64": "aarch64-manylinux_2_28"}  # -> that of uv
SCRIPT = "#!/usr/local/bin/python3\nimport sys\n\nfrom trainyard.__main__ import start\n\nsys.exit(start())\n"
SETTINGS = {
    "Env": [
        f"PATH={FOLDER}/bin:/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin",
        f"PYTHONPATH={FOLDER}/lib",
        "PYTHONDONTWRITEBYTECODE=1",
        "PYTHONUNBUFFERED=1",
        "HOME=/nonexistent",
    ],
    "User": f"{USER}:{USER}",
    "Entrypoint": ["trainyard"],
    "Cmd": ["operator"],
    "Labels": {"org.opencontainers.image.title": "trainyard", "org.opencontainers.image.version": __version__},
}


def wheel(folder: Path) -> Path:
    """Trainyard's own wheel, built into this folder."""
    words = ["-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps", "--no-build-isolation"]
    subprocess.run([sys.executable, *words, "-w", str(folder), str(ROOT)], check=True)
    return next(folder.glob("*.whl"))


def install(platform: str, own_wheel: Path, target: Path) -> None:
    """Install the locked wheels of a platform and our own into this folder, with compiled modules. The modules of this
    interpreter's minor version are the same on every platform."""
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "-q", "--no-deps", "--target", str(target)]
    uv += ["--python-version", PYTHON, "--python-platform", PLATFORMS[platform], "--only-binary", ":all:"]
    subprocess.run([*uv, "--require-hashes", "-r", str(ROOT / "requirements/runtime.lock")], check=True)
    subprocess.run([*uv, "--no-index", str(own_wheel)], check=True)
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH  # the times of files are not kept
    compileall.compile_dir(target, quiet=2, stripdir=str(target), prependdir=f"{FOLDER}/lib", invalidation_mode=mode)


def files(target: Path) -> list[File]:
    """The layer's files: what `install` has made, and the command."""
    installed = [path for path in target.rglob("*") if path.is_file() and path.parent != target / "bin"]
    library = [File(f"{FOLDER}/lib/{path.relative_to(target)}", path.read_bytes()) for path in installed]
    return [*library, File(f"{FOLDER}/bin/trainyard", SCRIPT.encode(), executable=True)]


def build(platform: str, base: str, own_wheel: Path) -> Image:
    """The image of one platform. Raises RegistryError, subprocess.CalledProcessError."""
    with tempfile.TemporaryDirectory() as folder:
        install(platform, own_wheel, Path(folder))
        return archive.with_layer(pull(base, platform), files(Path(folder)), SETTINGS, "python -m tools.oci")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.oci")
    parser.add_argument("--platform", action="append", choices=list(PLATFORMS), help="[default: all]")
    parser.add_argument("--base", default=BASE, help=f"[default: {BASE}]")
    parser.add_argument("--name", default=f"docker.io/{IMAGE}", help=f"[default: docker.io/{IMAGE}]")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="[default: dist]")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        own_wheel = wheel(Path(folder))
        try:
            images = [build(platform, options.base, own_wheel) for platform in options.platform or PLATFORMS]
        except RegistryError as error:
            print(f"the base image cannot be read: {error}", file=sys.stderr)
            return 1
    for chosen in ([images] if len(images) > 1 else []) + [[image] for image in images]:
        suffix = "" if len(chosen) > 1 else f"-{chosen[0].config['architecture']}"
        target = options.output / f"trainyard-operator-{__version__}{suffix}.tar"
        archive.write(chosen, options.name, target)
        print(f"{target}: {', '.join(image.platform for image in chosen)}, {target.stat().st_size >> 20} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

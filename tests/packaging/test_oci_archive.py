"""Images that are built without a daemon: archives, layers and what is read from a registry."""

from __future__ import annotations

import gzip
import io
import json
import platform
import re
import struct
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.packaging.base_registry import REPOSITORY, TAG, base, base_registry
from tools.oci import archive
from tools.oci.__main__ import PLATFORMS, SETTINGS, main
from tools.oci.archive import File, digest_of
from tools.oci.registry import Reference, RegistryError, pull
from trainyard import __version__

ROOT = Path(__file__).parents[2]
NATIVE = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}[platform.machine()]
MACHINES = {"linux/amd64": 62, "linux/arm64": 183}  # e_machine of ELF


class Archive:
    """An archive, read as a container runtime reads it: from index.json by digests."""

    def __init__(self, path: Path) -> None:
        with tarfile.open(path) as tar:
            self.names = tar.getnames()
            entries = [(entry, tar.extractfile(entry)) for entry in tar if entry.isfile()]
            self.files = {entry.name: content.read() for entry, content in entries if content}

    def json(self, name: str) -> Any:
        return json.loads(self.files[name])

    def blob(self, descriptor: dict[str, Any]) -> bytes:
        data = self.files[f"blobs/{descriptor['digest'].replace(':', '/')}"]
        assert (digest_of(data), len(data)) == (descriptor["digest"], descriptor["size"])
        return data

    def images(self) -> dict[str, tuple[dict[str, Any], list[bytes]]]:
        """By platform: the config and the uncompressed layers."""
        (entry,) = self.json("index.json")["manifests"]
        body = json.loads(self.blob(entry))
        manifests = [json.loads(self.blob(entry)) for entry in body["manifests"]] if "manifests" in body else [body]
        images = {}
        for manifest in manifests:
            config = json.loads(self.blob(manifest["config"]))
            layers = [gzip.decompress(self.blob(layer)) for layer in manifest["layers"]]
            assert config["rootfs"]["diff_ids"] == [digest_of(layer) for layer in layers]
            assert len(config["history"]) == len(layers)
            images[f"{config['os']}/{config['architecture']}"] = config, layers
        return images


def write(path: Path, *platforms: str) -> Archive:
    images = [archive.with_layer(base(name), [File("/opt/a", b"a")], {"Env": ["PATH=/opt"]}, "x") for name in platforms]
    archive.write(images, "example.com/team/operator:1", path)
    return Archive(path)


def test_an_archive_of_two_platforms_has_an_index_of_both(tmp_path: Path) -> None:
    content = write(tmp_path / "a.tar", *PLATFORMS)
    assert set(content.images()) == set(PLATFORMS) and "manifest.json" not in content.names
    (entry,) = content.json("index.json")["manifests"]
    assert entry["annotations"]["io.containerd.image.name"] == "example.com/team/operator:1"
    named = [manifest["platform"] for manifest in json.loads(content.blob(entry))["manifests"]]
    assert {f"{platform['os']}/{platform['architecture']}" for platform in named} == set(PLATFORMS)


def test_an_archive_of_one_platform_is_one_of_docker_save_too(tmp_path: Path) -> None:
    content = write(tmp_path / "a.tar", "linux/arm64")
    (docker,) = content.json("manifest.json")
    ((config, layers),) = content.images().values()
    assert json.loads(content.files[docker["Config"]]) == config and docker["RepoTags"] == [
        "example.com/team/operator:1"
    ]
    assert [gzip.decompress(content.files[path]) for path in docker["Layers"]] == layers


def test_the_same_files_make_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / name, *PLATFORMS)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_settings_replace_those_of_the_base_and_variables_are_merged() -> None:
    image = archive.with_layer(
        base("linux/amd64"), [], {"Env": ["PATH=/opt"], "Cmd": ["operator"], "Labels": {"a": "b"}}, "x"
    )
    config = image.config["config"]
    assert config["Env"] == ["PATH=/opt", "LANG=C.UTF-8"] and config["Cmd"] == ["operator"]
    assert config["Labels"] == {"base": "yes", "a": "b"}


def test_a_layer_has_the_folders_of_its_files_and_belongs_to_root() -> None:
    image = archive.with_layer(base("linux/amd64"), [File("/opt/bin/run", b"#!", True), File("/opt/a", b"")], {}, "x")
    with tarfile.open(fileobj=io.BytesIO(image.layers[-1].data)) as tar:
        entries = {entry.name: (entry.isdir(), entry.mode, entry.uid, entry.mtime) for entry in tar}
    assert entries == {
        "opt": (True, 0o755, 0, 0),
        "opt/a": (False, 0o644, 0, 0),
        "opt/bin": (True, 0o755, 0, 0),
        "opt/bin/run": (False, 0o755, 0, 0),
    }


@pytest.mark.parametrize("name", PLATFORMS)
def test_the_image_of_a_platform_is_pulled_with_a_token(name: str) -> None:
    with base_registry() as registry:
        assert pull(f"{registry.host}/{REPOSITORY}:{TAG}", name) == base(name)
        assert pull(f"{registry.host}/{REPOSITORY}@{base(name).manifest.digest}", name) == base(name)


def test_an_image_that_cannot_be_pulled_is_reported() -> None:
    with base_registry("linux/amd64") as registry:
        name = f"{registry.host}/{REPOSITORY}"
        with pytest.raises(RegistryError, match="has no image for linux/arm64"):
            pull(f"{name}:{TAG}", "linux/arm64")
        with pytest.raises(RegistryError, match="manifests/other: 404"):
            pull(f"{name}:other", "linux/amd64")
        registry.corrupt.add(base("linux/amd64").layers[0].digest)
        with pytest.raises(RegistryError, match="has another digest"):
            pull(f"{name}:{TAG}", "linux/amd64")
    with pytest.raises(RegistryError):
        pull(f"{name}:{TAG}", "linux/amd64")


@pytest.mark.parametrize(
    ("text", "host", "repository", "tag"),
    [
        ("python", "docker.io", "library/python", "latest"),
        ("python:3.13-slim", "docker.io", "library/python", "3.13-slim"),
        ("team/a:1", "docker.io", "team/a", "1"),
        ("localhost:5000/a", "localhost:5000", "a", "latest"),
        ("quay.io/team/a@sha256:00", "quay.io", "team/a", "sha256:00"),
    ],
)
def test_references_are_parsed_as_docker_does(text: str, host: str, repository: str, tag: str) -> None:
    assert Reference.parse(text) == (host, repository, tag)
    assert Reference.parse(text).url.startswith("http:" if "localhost" in host else "https:")


def test_the_image_is_configured_as_that_of_the_dockerfile() -> None:
    text = (ROOT / "Dockerfile").read_text()
    last = text.rpartition("FROM ")[2]
    assert f"USER {SETTINGS['User']}" in last
    for field, instruction in (("Entrypoint", "ENTRYPOINT"), ("Cmd", "CMD")):
        assert json.loads(re.findall(rf"^{instruction} (.*)$", last, re.M)[0]) == SETTINGS[field]
    (env,) = re.findall(r"^ENV (.*)$", last, re.M)
    names = {entry.partition("=")[0] for entry in env.split()}
    assert names == {entry.partition("=")[0] for entry in SETTINGS["Env"]} - {"PYTHONPATH"}


@pytest.mark.slow
@pytest.mark.network
def test_the_operator_runs_from_the_layer_and_its_libraries_are_of_the_platform(tmp_path: Path) -> None:
    """The wheels come from the package index. The layer of the other platform is not run."""
    with base_registry() as registry:
        arguments = ["--base", f"{registry.host}/{REPOSITORY}:{TAG}", "--output", str(tmp_path)]
        assert main([*arguments, "--name", "example.com/operator:1"]) == 0
    names = {f"trainyard-operator-{__version__}{suffix}.tar" for suffix in ("", "-amd64", "-arm64")}
    assert {path.name for path in tmp_path.iterdir()} == names
    images = Archive(tmp_path / f"trainyard-operator-{__version__}.tar").images()
    for name, (config, layers) in images.items():
        with tarfile.open(fileobj=io.BytesIO(layers[-1])) as tar:
            tar.extraction_filter = getattr(tarfile, "data_filter", None)  # not in 3.11.2
            tar.extractall(tmp_path / name)  # noqa: S202  (our own archive)
        libraries = list((tmp_path / name / "opt/trainyard/lib").rglob("*.so"))
        machines = {struct.unpack_from("<H", path.read_bytes(), 18)[0] for path in libraries}
        assert machines == {MACHINES[name]} and config["config"]["Entrypoint"] == ["trainyard"]
    root = tmp_path / NATIVE / "opt/trainyard"
    env = {"PYTHONPATH": str(root / "lib"), "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/nonexistent"}
    command = [sys.executable, "-S", str(root / "bin/trainyard"), "operator", "--kinds", "nothing"]
    completed = subprocess.run(command, env=env, capture_output=True, text=True, cwd="/")
    assert completed.returncode in (2, 3) and "Traceback" not in completed.stderr
    assert (root / "lib/trainyard/__main__.py").is_file() and list(root.rglob("*.pyc"))

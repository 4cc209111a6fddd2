"""The initializers of TrainJobs, as processes. Hugging Face and S3 are stand-ins for their two libraries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainyard.node.images.catalogue import PROGRAMS

HUB = """
import json, os
class GatedRepoError(Exception): pass
def snapshot_download(**options):
    if options["token"] == "refused":
        raise GatedRepoError("401 Client Error.\\n\\nAccess is restricted")
    with open(os.path.join(options["local_dir"], "options.json"), "w") as file:
        json.dump(options, file)
"""
OPENDAL = """
import io, json, os
OBJECTS = json.loads(os.environ["OBJECTS"])
class Entry:
    def __init__(self, path): self.path = path
class Operator:
    def __init__(self, scheme, **options): print(json.dumps([scheme, options]))
    def layer(self, layer): return self
    def list(self, prefix, recursive): return [Entry(key) for key in OBJECTS if key.startswith(prefix)]
    def open(self, key, mode): return io.BytesIO(OBJECTS[key].encode())
class layers:
    class RetryLayer:
        def __init__(self, **options): pass
"""


class Initializer:
    """`run` starts it with these variables. `folder` is what it fills."""

    def __init__(self, place: Path) -> None:
        self.folder, self.modules = place / "workspace" / "dataset", place / "modules"
        self.modules.mkdir()

    def run(self, uri: str, kind: str = "dataset", **variables: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-S", str(PROGRAMS / "initializer.py"), kind, str(self.folder)]
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(self.modules), "STORAGE_URI": uri, **variables}
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    def files(self) -> dict[str, str]:
        """Path in the folder -> text."""
        paths = (path for path in self.folder.rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder)): path.read_text() for path in paths}


@pytest.fixture
def initializer(tmp_path: Path) -> Initializer:
    return Initializer(tmp_path)


def refusal(completed: subprocess.CompletedProcess[str]) -> str:
    """Its only line on stderr."""
    assert completed.returncode == 1
    (line,) = completed.stderr.splitlines()
    return line


def test_a_folder_of_this_machine_is_copied(initializer: Initializer, tmp_path: Path) -> None:
    source = tmp_path / "my data"
    (source / "train").mkdir(parents=True)
    (source / "train" / "a.csv").write_text("1,2")
    (source / "train" / "a.log").write_text("noise")
    (source / "b.csv").write_text("3")
    completed = initializer.run(f"file://{tmp_path}/my%20data", IGNORE_PATTERNS="*.log, *.tmp")
    assert completed.returncode == 0, completed.stderr
    assert initializer.files() == {"train/a.csv": "1,2", "b.csv": "3"}
    assert completed.stdout.splitlines()[-1] == "dataset: 2 files, 4 bytes"
    (source / "b.csv").write_text("4")
    assert initializer.run(f"file://{tmp_path}/my%20data").returncode == 0  # after a restart of its pod
    assert initializer.files()["b.csv"] == "4"


def test_a_file_of_this_machine_is_copied(initializer: Initializer, tmp_path: Path) -> None:
    (tmp_path / "weights.safetensors").write_text("w")
    assert initializer.run(f"file://{tmp_path}/weights.safetensors", "model").returncode == 0
    assert initializer.files() == {"weights.safetensors": "w"}


@pytest.mark.parametrize(
    ("kind", "uri", "variables", "expected"),
    [
        ("dataset", "hf://tatsu-lab/alpaca/data", {}, {"repo_id": "tatsu-lab/alpaca", "repo_type": "dataset"}),
        ("dataset", "hf://squad", {"ACCESS_TOKEN": "t"}, {"repo_id": "squad", "token": "t"}),
        ("model", "hf://meta-llama/Llama-3.2-1B", {}, {"repo_id": "meta-llama/Llama-3.2-1B", "repo_type": None}),
        (
            "model",
            "hf://gpt2",
            {"IGNORE_PATTERNS": "*.bin,*.pt"},
            {
                "repo_id": "gpt2",
                "ignore_patterns": ["*.bin", "*.pt"],
                "allow_patterns": ["*.json", "*.safetensors", "*.model", "*.txt"],
            },
        ),
    ],
)
def test_repositories_are_downloaded_by_huggingface_hub(
    initializer: Initializer, kind: str, uri: str, variables: dict[str, str], expected: dict[str, Any]
) -> None:
    (initializer.modules / "huggingface_hub.py").write_text(HUB)
    completed = initializer.run(uri, kind, **variables)
    assert completed.returncode == 0, completed.stderr
    options = json.loads((initializer.folder / "options.json").read_text())
    assert {name: options.get(name) for name in expected} == expected
    assert options["local_dir"] == str(initializer.folder)


def test_a_gated_repository_is_told_with_the_fix(initializer: Initializer) -> None:
    (initializer.modules / "huggingface_hub.py").write_text(HUB)
    text = refusal(initializer.run("hf://meta-llama/x", "model", ACCESS_TOKEN="refused"))
    assert text.startswith("model: hf://meta-llama/x: GatedRepoError: 401 Client Error. Access is restricted; if")
    assert "set ACCESS_TOKEN" in text


@pytest.mark.parametrize("prefix", ["v1", "v1/"])
def test_objects_of_a_bucket_are_downloaded_below_their_prefix(initializer: Initializer, prefix: str) -> None:
    (initializer.modules / "opendal.py").write_text(OPENDAL)
    objects = {"v1/": "", "v1/a.csv": "1", "v1/deep/b.csv": "2", "v1/c.log": "3", "v10/d.csv": "4"}
    completed = initializer.run(
        f"s3://data/{prefix}",
        OBJECTS=json.dumps(objects),
        ENDPOINT="http://minio:9000",
        ACCESS_KEY_ID="key",
        IGNORE_PATTERNS="*.log",
    )
    assert completed.returncode == 0, completed.stderr
    assert initializer.files() == {"a.csv": "1", "deep/b.csv": "2"}
    options = {"root": "/", "bucket": "data", "region": "auto", "endpoint": "http://minio:9000", "access_key_id": "key"}
    assert json.loads(completed.stdout.splitlines()[1]) == ["s3", options]


@pytest.mark.parametrize("key", ["v1/../../escaped", "v1//../../escaped"])
def test_an_object_does_not_leave_the_folder(initializer: Initializer, key: str) -> None:
    (initializer.modules / "opendal.py").write_text(OPENDAL)
    text = refusal(initializer.run("s3://data/v1", OBJECTS=json.dumps({key: "x"})))
    assert "its path leads out of" in text
    assert initializer.files() == {} and not (initializer.folder.parents[1] / "escaped").exists()


@pytest.mark.parametrize(
    ("uri", "part"),
    [
        ("", "STORAGE_URI is empty; set spec.initializer.dataset.storageUri: hf://"),
        ("cache://tables/x", "no dataset comes from there on this machine; write hf://"),
        ("data/x", "no dataset comes from there on this machine; write hf://"),
        ("hf://", "names no repository"),
        ("s3:///x", "names no bucket"),
        ("file://data/x", "has no absolute path; write file:///PATH"),
        ("file:///does/not/exist", "there is no /does/not/exist; check the path"),
        ("hf://a/b", "needs huggingface_hub, and"),
        ("s3://a/b", "needs opendal, and"),
    ],
)
def test_what_cannot_be_downloaded_is_one_line_with_the_fix(initializer: Initializer, uri: str, part: str) -> None:
    text = refusal(initializer.run(uri))
    assert text.startswith("dataset: ") and part in text


@pytest.mark.parametrize("uri", ["s3://data", "s3://data/", "s3://data/only.csv"])
def test_a_bucket_or_one_object_is_downloaded(initializer: Initializer, uri: str) -> None:
    (initializer.modules / "opendal.py").write_text(OPENDAL)
    assert initializer.run(uri, OBJECTS=json.dumps({"only.csv": "1"})).returncode == 0
    assert initializer.files() == {"only.csv": "1"}


def test_an_empty_prefix_is_no_success(initializer: Initializer) -> None:
    (initializer.modules / "opendal.py").write_text(OPENDAL)
    text = refusal(initializer.run("s3://data/v3", OBJECTS="{}"))
    assert text == "dataset: s3://data/v3: nothing is there; check bucket and prefix"


def test_a_folder_is_not_copied_into_itself(initializer: Initializer) -> None:
    initializer.folder.mkdir(parents=True)
    text = refusal(initializer.run(f"file://{initializer.folder.parent}"))
    assert "into which it would be copied; name another folder" in text


def test_a_file_that_cannot_be_read_is_named(initializer: Initializer, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "gone").symlink_to(tmp_path / "nowhere")
    assert str(tmp_path / "data" / "gone") in refusal(initializer.run(f"file://{tmp_path}/data"))

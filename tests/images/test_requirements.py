"""Requirement files as pip reads them, and the lines that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainyard.node.images.requirements import parse_pins
from trainyard.objects.yaml_reader import ManifestError

HASH = "--hash=sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("# all we need\na==1  # and why\n\n", ["a==1"]),
        ("a[b,c] == 1.0 ; python_version < '3.12'\n", ["a[b,c] == 1.0 ; python_version < '3.12'"]),
        (f"a==1 \\\n    {HASH} \\\n    {HASH}\nb==2", [f"a==1 {HASH} {HASH}", "b==2"]),
        ("a @ https://example.org/a-1-py3-none-any.whl\n", ["a @ https://example.org/a-1-py3-none-any.whl"]),
        ("a===1+local\n", ["a===1+local"]),
        (
            "--index-url https://example.org/simple\n--pre\na==1\n",
            ["--index-url https://example.org/simple", "--pre", "a==1"],
        ),
        ("-f https://example.org/wheels\na==1\n", ["--find-links https://example.org/wheels", "a==1"]),
        ("-r sub/more.txt\na==1\n", ["--find-links {}/sub/wheels", "m==3", "a==1"]),
        ("--requirement=sub/more.txt\n", ["--find-links {}/sub/wheels", "m==3"]),
    ],
)
def test_a_requirements_file_is_parsed_as_pip_does(tmp_path: Path, text: str, lines: list[str]) -> None:
    (tmp_path / "requirements.txt").write_text(text)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "more.txt").write_text("--find-links wheels\nm==3\n")
    assert parse_pins("requirements.txt", tmp_path) == [line.format(tmp_path) for line in lines]


PINNED = "write it as name==version (pip freeze prints the versions of an environment that works)"
OWN = "write a released version as name==version, or use your own environment with 'python: FOLDER'"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a==1\n\nnumpy>=1.26  # new enough\n", f"{{}}/r.txt:3: 'numpy>=1.26' is not pinned; {PINNED}"),
        ("numpy\n", f"{{}}/r.txt:1: 'numpy' is not pinned; {PINNED}"),
        ("a==1.*\n", f"{{}}/r.txt:1: 'a==1.*' is not pinned; {PINNED}"),
        ("a==1 \\\n --hash=sha256:0\nb~=2 \\\n --hash=sha256:0\n", "{}/r.txt:3: 'b~=2 --hash=sha256:0' is not pinned"),
        ("-e .\n", f"{{}}/r.txt:1: '-e .' is not pinned; {OWN}"),
        ("./wheels/a-1.whl\n", f"{{}}/r.txt:1: './wheels/a-1.whl' is not pinned; {OWN}"),
        ("-c limits.txt\na==1\n", f"{{}}/r.txt:1: '-c limits.txt' is not pinned; {OWN}"),
        ("-r r.txt\n", "{}/r.txt:1: file: includes itself; remove its -r line"),
        ("-r none.txt\n", "{}/none.txt:1: file: cannot be read (No such file or directory); name a requirements file"),
        ("# nothing\n--pre\n", "r.txt: names no package; write name==version"),
        (b"a==1\n\xff\n", "{}/r.txt:1: file: is not UTF-8 text; name a file with one pin per line"),
    ],
)
def test_an_unpinned_requirement_is_reported_with_its_line_and_the_fix(
    tmp_path: Path, text: str | bytes, problem: str
) -> None:
    (tmp_path / "r.txt").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ManifestError) as caught:
        parse_pins("r.txt", tmp_path)
    assert problem.format(tmp_path) in str(caught.value)

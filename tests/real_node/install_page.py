"""docs/install.md as a reader uses it: its tables and blocks of commands, and a shell to type them into.

Rules:
- A command is typed as the page has it. Nothing is inserted: no image, no namespace.
- The shell stands in a copy of the folders that the page names. It has trainyard, kubectl and one Helm.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.support.real_node import RealNode

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "install.md").read_text()
SECONDS = 300.0


class Way(NamedTuple):
    """A way of installing: the commands that install, uninstall, and delete the definitions."""

    install: tuple[str, ...]
    uninstall: str
    delete_definitions: str

    @property
    def is_helm(self) -> bool:
        return self.install[0].startswith("helm ")


def table(first: str) -> list[list[str]]:
    """The cells of the rows of the table whose first column has this title."""
    lines = TEXT[TEXT.index(f"\n| {first} |") + 1 :].split("\n\n", 1)[0].splitlines()[2:]
    return [[cell.replace("\\|", "|").strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def code(cell: str) -> list[str]:
    """What the cell has between backticks."""
    return re.findall(r"`([^`]+)`", cell)


def ways() -> list[Way]:
    """The rows of the table of installations, each with its row of the other table."""
    installs = [tuple(code(row[0])) for row in table("command")]
    *uninstalls, (manifests, part, delete) = [code(row[1]) for row in table("installed with")]
    uninstall = [*(command for (command,) in uninstalls), f"{manifests} {part} | {delete}"]
    sentence = TEXT[TEXT.index("delete the CRDs:") :].split("\n\n", 1)[0]
    first, *more, part = code(sentence)
    definitions = [first, *(f"kubectl delete {rest}" for rest in more), f"{manifests} {part} | kubectl delete -f -"]
    return [Way(*row) for row in zip(installs, uninstall, definitions, strict=True)]


def block(containing: str) -> list[str]:
    """The commands of the block that has this text, without comments."""
    blocks = re.findall(r"^```\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    (text,) = (text for text in blocks if containing in text)
    return [re.sub(r"\s+# .*", "", line) for line in text.splitlines()]


def sentence_command(start: str) -> str:
    """The command between backticks, outside tables and blocks, that starts so."""
    prose = re.sub(r"^(```.*?^```|\|.*?)$", "", TEXT, flags=re.MULTILINE | re.DOTALL)
    (command,) = {text for text in code(prose) if text.startswith(start)}
    return command


class Shell:
    """A shell of the administrator of the cluster."""

    def __init__(self, node: RealNode, folder: Path, helm: Path) -> None:
        self.folder = folder / "trainyard"
        for name in ("examples", "charts", "deploy", "config"):
            shutil.copytree(ROOT / name, self.folder / name)
        programs = folder / "bin"
        programs.mkdir()
        (programs / "trainyard").symlink_to(Path(sys.executable).with_name("trainyard"))
        (programs / "kubectl").symlink_to(node.programs["kubectl"])
        (programs / "helm").symlink_to(helm)
        self._env = {
            "HOME": str(folder),
            "KUBECONFIG": str(node.kubeconfig),
            "PATH": f"{programs}:{os.environ.get('PATH', os.defpath)}",
        }

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-o", "pipefail", "-c", command],
            cwd=self.folder,
            env=self._env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )

    def type(self, command: str) -> str:
        """What the command prints, errors after it. It must end with 0."""
        completed = self.run(command)
        assert completed.returncode == 0, f"{command}\n{completed.stdout}{completed.stderr}"
        return completed.stdout + completed.stderr

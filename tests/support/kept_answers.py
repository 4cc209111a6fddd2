"""What the real API server has answered, kept in testdata/kept: a run sends it only requests that are new.

Two things are kept: the answers to requests, with which a test is run in full, and, for a conformance check, which has
watches and times in it, that it has passed.

Rules:
- The key of an answer has all that it depends on: the server (its version, its dependencies, its flags), the definition
  of the job's kind without its descriptions, and every request of the test until this one.
- The key of a check has the server and the text of every module of `tests` that the check's module imports.
- What is not kept is asked for, and the test warns. `make kept-answers` writes all anew.
- `make test-nightly` asks for everything (TRAINYARD_KEPT=compare), and fails where an answer is not what is kept, or
  where nothing is kept.
- Another server than the pinned one (KUBEBUILDER_ASSETS) is asked for everything.
"""

from __future__ import annotations

import ast
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from tests.support import control_plane_flags
from tests.support.control_plane_build import FILES, KUBERNETES, MODULE
from trainyard.objects import Json, decode, encode

FOLDER = Path(__file__).parents[2] / "testdata" / "kept"
ANSWERS, CHECKS = FOLDER / "answers.jsonl", FOLDER / "checks.json"
TESTS = Path(__file__).parents[1]
MODES = ("use", "compare", "write")
OF_ONE_RUN = ("uid", "resourceVersion", "creationTimestamp", "managedFields")
"""Fields of metadata that differ from run to run."""


class NotKept(Exception):
    """There is no answer to this request: the test has to be run beside a real server."""


class ApiServer(Protocol):
    """What can be asked: a control plane, or `KeptServer`."""

    def ask(self, method: str, path: str, body: Json | None = None) -> tuple[int, Json]: ...


def mode() -> str:
    """One of MODES, or `ask`: take nothing that is kept, and compare nothing."""
    value = os.environ.get("TRAINYARD_KEPT", "use")
    assert value in MODES, f"TRAINYARD_KEPT={value} is none of {', '.join(MODES)}"
    if os.environ.get("KUBEBUILDER_ASSETS"):
        assert value == "use", f"TRAINYARD_KEPT={value} is about the pinned server: unset KUBEBUILDER_ASSETS"
        return "ask"
    return value


def digest(*parts: bytes) -> str:
    """20 letters; the parts cannot run into each other."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(f"{len(part)}\0".encode() + part)
    return whole.hexdigest()[:20]


@cache
def server_key() -> str:
    """Of the API server: its version, all modules that it is built from, and how it is started."""
    files = [*(MODULE / name for name in FILES), Path(control_plane_flags.__file__)]
    return digest(KUBERNETES.encode(), *(file.read_bytes() for file in files))


def definition_key(definition: Json) -> str:
    """Of a CustomResourceDefinition without what people read only."""
    return digest(encode(_without_descriptions(definition)))


def _without_descriptions(part: Any) -> Any:
    """A property may be called `description`: its value is a schema, and stays."""
    if isinstance(part, dict):
        kept = {name: value for name, value in part.items() if name != "description" or not isinstance(value, str)}
        return {name: _without_descriptions(kept[name]) for name in sorted(kept)}
    return [_without_descriptions(item) for item in part] if isinstance(part, list) else part


def comparable(obj: Json) -> Json:
    """The object without the fields of one run."""
    meta = obj.get("metadata")
    if not isinstance(meta, dict):
        return obj
    return {**obj, "metadata": {name: value for name, value in meta.items() if name not in OF_ONE_RUN}}


def comparable_answer(code: int, body: Json) -> tuple[int, Json]:
    """The answer without what differs from run to run: of several causes also their order, and so the message."""
    body = comparable(body)
    causes = (body.get("details") or {}).get("causes") or []
    if len(causes) > 1:
        ordered = sorted(causes, key=lambda cause: encode(_sorted(cause)))
        body = {**body, "message": "", "details": {**body["details"], "causes": ordered}}
    return code, body


class KeptAnswers:
    """The file of answers by key; `new` are those of this run."""

    def __init__(self, path: Path = ANSWERS) -> None:
        self.path = path
        self.new: dict[str, Json] = {}
        lines = path.read_bytes().splitlines() if path.is_file() else []
        self._lines: dict[str, Json] = {line["key"]: line for line in map(decode, lines)}

    def get(self, key: str) -> tuple[int, Json] | None:
        line = self._lines.get(key)
        return (line["code"], line["body"]) if line else None

    def add(self, key: str, test: str, code: int, body: Json) -> None:
        """A body that differs from the kept one by fields of one run alone leaves its line, and the diff, as it is."""
        kept = self._lines.get(key)
        if (
            kept
            and kept["test"] == test
            and comparable_answer(kept["code"], kept["body"]) == comparable_answer(code, body)
        ):
            self.new[key] = kept
            return
        meta = {name: value for name, value in body.get("metadata", {}).items() if name != "managedFields"}
        body = {**body, "metadata": meta} if "metadata" in body else body
        self.new[key] = {"test": test, "key": key, "code": code, "body": body}

    def write(self) -> None:
        """Replace the file by the answers of this run, in the order of their tests."""
        self.path.parent.mkdir(exist_ok=True)
        lines = sorted(self.new.values(), key=lambda line: line["test"])  # stable: requests of a test stay in order
        self.path.write_bytes(b"".join(encode(line) + b"\n" for line in lines))


class KeptServer:
    """For one test about one kind: an API server that answers as the real one did.

    `namespace` is the test's own; its name is the same in each run.
    """

    def __init__(
        self,
        answers: KeptAnswers,
        test: str,
        definition: str,
        real: Callable[[str], ApiServer],
        mode: str = "use",
        server: str = "",
    ) -> None:
        """`definition` is its key; `real` gives a real server that has that namespace."""
        self.answers, self.test, self.mode = answers, test, mode
        self.namespace = f"kept-{digest(test.encode())}"
        self._connect = real
        self._first = self._key = digest((server or server_key()).encode(), definition.encode())
        self._real: ApiServer | None = None

    def ask_the_real_server(self) -> None:
        """From now on, for a test that begins again."""
        self._key = self._first
        self._real = self._connect(self.namespace)

    def ask(self, method: str, path: str, body: Json | None = None) -> tuple[int, Json]:
        """The code and the object of the answer. Raises NotKept."""
        sent = encode(_sorted(comparable(body or {})))
        self._key = digest(self._key.encode(), method.encode(), path.encode(), sent)
        kept = self.answers.get(self._key)
        if self._real is None and self.mode == "use":
            if kept is None:
                raise NotKept(f"{method} {path}")
            return kept
        if self._real is None:
            self._real = self._connect(self.namespace)
        code, answer = self._real.ask(method, path, body)
        if self.mode == "compare":
            assert kept is not None, f"{method} {path}: not in testdata/kept; run `make kept-answers`"
            same = comparable_answer(code, answer) == comparable_answer(*kept)
            assert same, f"{method} {path}: not what testdata/kept has"
        self.answers.add(self._key, self.test, code, answer)
        return code, answer


def _sorted(part: Any) -> Any:
    if isinstance(part, dict):
        return {name: _sorted(part[name]) for name in sorted(part)}
    return [_sorted(item) for item in part] if isinstance(part, list) else part


# --- checks


def check_key(module: str, tests: Path = TESTS, server: str = "") -> str:
    """Of every check of conformance/checks/MODULE.py in the folder `tests`."""
    texts = dict(_texts(tests / "conformance" / "checks" / f"{module}.py", tests))
    parts = [part for name in sorted(texts) for part in (name.encode(), texts[name])]
    return digest((server or server_key()).encode(), *parts)


def _texts(start: Path, tests: Path) -> Iterator[tuple[str, bytes]]:
    """(name, text) of that module, of those that run a check, and of all modules of `tests` that these import."""
    due = [start, *(tests / "conformance" / name for name in ("cluster.py", "connect.py", "runner.py"))]
    for path in due:
        text = path.read_bytes()
        yield str(path.relative_to(tests)), text
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests."):
                names = [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
                files = (tests.joinpath(*name.split(".")[1:]).with_suffix(".py") for name in names)
                due += [file for file in files if file.is_file() and file not in due]


class KeptChecks:
    """Check -> the key with which it has passed."""

    def __init__(self, path: Path = CHECKS) -> None:
        self.path = path
        self.new: dict[str, str] = {}
        self._keys: Mapping[str, str] = decode(path.read_bytes()) if path.is_file() else {}

    def passed(self, check: str, key: str) -> bool:
        return self._keys.get(check) == key

    def write(self) -> None:
        """Replace the file by what has passed in this run."""
        self.path.parent.mkdir(exist_ok=True)
        lines = ",\n".join(f'  "{name}": "{self.new[name]}"' for name in sorted(self.new))
        self.path.write_text(f"{{\n{lines}\n}}\n")

"""Manifests: the objects of a user's YAML or JSON file, each with its file and line.

Rules:
- The input is text, the output documents; the caller reads the file. `strict` defines which text is accepted.
- A list (`kind: List`, or `TfJobList` as the API returns it) is expanded to its items. An empty document is skipped.
- An object has an apiVersion and a kind. Callers check whether Trainyard supports them.
- Every problem has the file, the line, the field, what is wrong and what to write; all problems of a file are raised
  at once.
"""

from __future__ import annotations

from typing import Any

import msgspec

from trainyard.objects.lines import Lines
from trainyard.objects.meta import Json
from trainyard.objects.problems import Problem
from trainyard.objects.yaml_builder import DOCUMENT, Value
from trainyard.objects.yaml_reader import ManifestError, load

__all__ = ["Document", "ManifestError", "read"]


class Document(msgspec.Struct, frozen=True):
    """One object of a manifest, its file and the line on which it begins.

    `lines` are the lines of the whole document; `prefix` is the path of the object in it ("" unless it is an item of a
    list).
    """

    obj: Json
    source: str
    line: int
    lines: Lines | None = None
    prefix: str = ""

    @property
    def object_location(self) -> str:
        """The place in messages: `FILE:LINE` of the document's first line."""
        return f"{self.source}:{self.line}"

    def location(self, path: str) -> str:
        """file:line of the field at `path` of the object; of its nearest existing parent when it is missing."""
        full_path = ".".join(filter(None, (self.prefix, path)))
        return f"{self.source}:{self.lines.line_of(full_path)}" if self.lines else self.object_location


def read(text: str | bytes, source: str) -> list[Document]:
    """The objects of a manifest, lists expanded, in the order of the file. Raises ManifestError."""
    documents: list[Document] = []
    problems: list[Problem] = []
    values = load(text, source)
    if not values:
        raise ManifestError(
            [Problem(f"{source}:1: {DOCUMENT}", "has no object; write one, beginning with apiVersion and kind")]
        )
    for value in values:
        _expand(value, source, documents, problems)
    if problems:
        raise ManifestError(problems)
    return documents


def _expand(value: Value, source: str, documents: list[Document], problems: list[Problem]) -> None:
    stack: list[tuple[Any, int, str]] = [(value.value, value.line, "")]
    while stack:
        obj, line, prefix = stack.pop()
        if problem := _object_problem(obj, prefix):
            problems.append(Problem(f"{source}:{line}: {problem.path}", problem.text))
        elif _is_list(obj):
            items = [(_with_type_meta(item, obj), index) for index, item in enumerate(obj["items"])]
            # In reverse: the stack pops the last item first, so the documents are in the order of the file.
            for item, index in items[::-1]:
                item_path = ".".join(filter(None, (prefix, f"items[{index}]")))
                # JSON: computed on demand only.
                item_line = line if value.lines.load else value.lines.line_of(item_path)
                stack.append((item, item_line, item_path))
        else:
            documents.append(Document(obj, source, line, value.lines, prefix))


def _object_problem(obj: Any, path: str) -> Problem | None:
    """What is wrong with a value that should be an API object, None when nothing is. `path`: of the value in its
    document."""
    if not isinstance(obj, dict):
        return Problem(
            path or DOCUMENT, f"is {_type_name(obj)}, not an object; an object begins with apiVersion and kind"
        )
    for name, example in (("apiVersion", "tensorflow.org/v1alpha1"), ("kind", "TfJob")):
        value = obj.get(name)
        field = f"{path}.{name}" if path else name
        if value is None or value == "":
            return Problem(field, f"is missing; write one, for example {name}: {example}")
        if not isinstance(value, str):
            return Problem(field, f"is {_type_name(value)}, not text; write it as text, for example {name}: {example}")
    return None


def _is_list(obj: Json) -> bool:
    return obj["kind"].endswith("List") and isinstance(obj.get("items"), list)


def _with_type_meta(item: Any, parent: Json) -> Any:
    """The item with apiVersion and kind: the API leaves them out of the items of a typed list such as TfJobList."""
    kind = parent["kind"].removesuffix("List")
    if isinstance(item, dict) and kind and "kind" not in item:
        return {"apiVersion": parent["apiVersion"], "kind": kind, **item}
    return item


def _type_name(value: Any) -> str:
    names = ((bool, "a boolean"), ((int, float), "a number"), (str, "text"), (list, "a list"), (dict, "a mapping"))
    return next((name for types, name in names if isinstance(value, types)), "null")

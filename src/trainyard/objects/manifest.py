"""Manifests: the objects in a file that a person wrote, each with the place it was written.

Rules:
- Text comes in, documents go out; reading the file is the caller's task. What the text may hold says `strict`.
- A list (`kind: List`, or `TfJobList` as the API answers it) is its items. An empty document is nothing.
- An object has an apiVersion and a kind. Whether we know them is asked elsewhere.
- Every problem names the file, the line, what is wrong and what to write; all of them are told at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trainyard.objects.lines import Lines
from trainyard.objects.meta import Json
from trainyard.objects.problems import Problem
from trainyard.objects.strict import ManifestError, Value, load

__all__ = ["Document", "ManifestError", "read"]


@dataclass(frozen=True, slots=True)
class Document:
    """One object of a manifest, the file it stands in and the line it begins on.

    `lines` are those of the whole document, in which the object stands at `prefix` (an item of a list).
    """

    obj: Json
    source: str
    line: int
    lines: Lines | None = field(default=None, repr=False, compare=False)
    prefix: str = ""

    @property
    def where(self) -> str:
        return f"{self.source}:{self.line}"

    def place(self, path: str) -> str:
        """File and line of a field of the object; of the mapping where it belongs when it is missing."""
        whole = ".".join(filter(None, (self.prefix, path)))
        return f"{self.source}:{self.lines.of(whole)}" if self.lines else self.where


def read(text: str | bytes, source: str) -> list[Document]:
    """The objects of a manifest, lists expanded, in the order of the file. Raises ManifestError."""
    documents: list[Document] = []
    problems: list[Problem] = []
    values = load(text, source)
    if not values:
        raise ManifestError([Problem(source, "holds no object; write one, beginning with apiVersion and kind")])
    for value in values:
        _expand(value, source, documents, problems)
    if problems:
        raise ManifestError(problems)
    return documents


def _expand(value: Value, source: str, documents: list[Document], problems: list[Problem]) -> None:
    waiting: list[tuple[Any, int, str, str]] = [(value.value, value.line, "the document", "")]
    while waiting:
        obj, line, called, prefix = waiting.pop()
        text = _refusal(obj, called)
        if text:
            problems.append(Problem(f"{source}:{line}", text))
        elif _is_list(obj):
            items = [(_typed(item, obj), index) for index, item in enumerate(obj["items"])]
            # A stack hands out the last first, so that the items come out in the order of the file.
            for item, at in items[::-1]:
                inner = ".".join(filter(None, (prefix, f"items[{at}]")))
                at_line = line if value.lines.read else value.lines.of(inner)  # JSON: only when somebody asks
                waiting.append((item, at_line, f"items[{at}]", inner))
        else:
            documents.append(Document(obj, source, line, value.lines, prefix))


def _refusal(obj: Any, called: str) -> str:
    """What is wrong with a value that should be an object, "" when nothing is."""
    if not isinstance(obj, dict):
        return f"{called} is {_noun(obj)}, not an object; an object begins with apiVersion and kind"
    for name, example in (("apiVersion", "tensorflow.org/v1alpha1"), ("kind", "TfJob")):
        found = obj.get(name)
        if found is None or found == "":
            return f"{called} has no {name}; write one, for example {name}: {example}"
        if not isinstance(found, str):
            return f"{called}: {name} is {_noun(found)}, not text; write it as text, for example {name}: {example}"
    return ""


def _is_list(obj: Json) -> bool:
    return obj["kind"].endswith("List") and isinstance(obj.get("items"), list)


def _typed(item: Any, parent: Json) -> Any:
    """The API leaves kind and apiVersion out of the items of a typed list; they follow from the list's own."""
    kind = parent["kind"].removesuffix("List")
    if isinstance(item, dict) and kind and "kind" not in item:
        return {"apiVersion": parent["apiVersion"], "kind": kind, **item}
    return item


def _noun(value: Any) -> str:
    nouns = ((bool, "a boolean"), ((int, float), "a number"), (str, "text"), (list, "a list"), (dict, "a mapping"))
    return next((noun for types, noun in nouns if isinstance(value, types)), "null")

"""The documents of a file, each with its text, so that those without a job can be written as they were."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from trainyard.objects.manifest import Document, ManifestError, read

_SEPARATOR = re.compile(r"^---(?=\s|$)", re.MULTILINE)


class SourceDocument(NamedTuple):
    """One document of a file. `text` is without the line `---`; `objects` are its items if it is a list."""

    text: str
    objects: list[Document]

    @property
    def is_list(self) -> bool:
        """Whether the document is a list of objects."""
        return any(document.prefix for document in self.objects)


def split_documents(text: str, source: str) -> list[SourceDocument]:
    """The documents of a manifest, in the order of the file; those of comments only have no objects. Raises
    ManifestError with the problems of all documents."""
    all_objects = read(text, source)
    documents = []
    for first_line, part in _parts(text):
        try:
            # Empty lines in place of those before the document keep the line numbers of messages.
            documents.append(SourceDocument(part, read("\n" * first_line + part, source)))
        except ManifestError:  # it has no object
            documents += [SourceDocument(part, [])] if part.strip() else []
    count = sum(len(document.objects) for document in documents)
    # Where a document needs text of another part, the text stays in one piece.
    return documents if count == len(all_objects) else [SourceDocument(text, all_objects)]


def _parts(text: str) -> Iterator[tuple[int, str]]:
    """The texts between the lines `---`, each with the number of lines before it. Such a line is never a part of a
    value: the lines of a value of an object are indented."""
    start = 0
    for separator in _SEPARATOR.finditer(text):
        yield text.count("\n", 0, start), text[start : separator.start()]
        start = separator.end()
    yield text.count("\n", 0, start), text[start:]

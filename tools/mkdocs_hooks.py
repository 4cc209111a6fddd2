"""A hook of mkdocs: what GitHub does with a page and Python-Markdown does not.

Links out of docs/, such as `../README.md`: mkdocs knows only the files of docs/, and its strict mode would call each of
them dead. This hook checks that the target exists in the repository; a dead one is a warning, which fails a strict
build. On the site the link leads to the file in the repository if mkdocs.yml has a `repo_url`; otherwise only its text
stays. Links between pages are left to mkdocs.

A list may follow a paragraph or a code block without an empty line, and `\\|` within code of a table is a vertical bar.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree.ElementTree import Element

from markdown import Extension, Markdown
from markdown.preprocessors import Preprocessor
from markdown.treeprocessors import Treeprocessor

log = logging.getLogger("mkdocs.hooks.github")  # strict mode counts the warnings of loggers below "mkdocs"

LIST_ITEM = re.compile(r"(?:[-*]|1\.) ")
BEFORE_A_LIST = re.compile(r"[\w`*(\x02]")  # the start of a paragraph's line; Markdown has put \x02 for a code block
CODE = re.compile(r"`[^`]+`")


class ListsAndTables(Preprocessor):
    """Renders lists without an empty line before them, and escaped pipes in tables, as GitHub does."""

    def run(self, lines: list[str]) -> list[str]:
        rendered: list[str] = []
        for line in lines:
            if (
                LIST_ITEM.match(line)
                and rendered
                and BEFORE_A_LIST.match(rendered[-1])
                and not LIST_ITEM.match(rendered[-1])
            ):
                rendered.append("")
            if line.startswith("|"):
                line = CODE.sub(lambda code: code[0].replace("\\|", "|"), line)
            rendered.append(line)
        return rendered


class RepositoryLinks(Treeprocessor):
    """Treats the links of `page`, which is set before each page is rendered."""

    def __init__(self, docs: Path, repository_url: str) -> None:
        super().__init__()
        self.docs, self.repository, self.repository_url = docs, docs.parent, repository_url.rstrip("/")
        self.page = docs

    def run(self, root: Element) -> None:
        for link in root.iter("a"):
            url = urlsplit(link.get("href", ""))
            target = (self.page.parent / url.path).resolve()
            if url.scheme or url.netloc or url.path in ("", "/") or target.is_relative_to(self.docs):
                continue
            if not target.is_relative_to(self.repository) or not target.exists():
                log.warning("%s: the link '%s' leads to no file of the repository", self.page.name, link.get("href"))
            elif self.repository_url:
                link.set("href", f"{self.repository_url}/blob/HEAD/{target.relative_to(self.repository)}")
            else:
                link.tag = "span"
                del link.attrib["href"]


class GitHub(Extension):
    """The Markdown extension with what GitHub renders differently."""

    def __init__(self, links: RepositoryLinks) -> None:
        super().__init__()
        self.links = links

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802  (the name that Markdown calls)
        md.preprocessors.register(ListsAndTables(md), "github_lists_and_tables", 24)  # after code blocks: theirs is 25
        md.treeprocessors.register(self.links, "github_repository_links", 5)  # before mkdocs resolves links: its is 0


links: RepositoryLinks


def on_config(config: Any) -> None:
    global links  # noqa: PLW0603  (mkdocs gives its hooks no place of their own)
    links = RepositoryLinks(Path(config.docs_dir).resolve(), config.repo_url or "")
    config.markdown_extensions.append(GitHub(links))


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> None:
    links.page = links.docs / page.file.src_uri

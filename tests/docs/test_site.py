"""docs/layers.md and docs/reference.md depend on the source. `make docs` builds the whole site."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

import pytest

from tools import architecture

ROOT = Path(__file__).parents[2]


def test_the_architecture_page_is_generated_by_the_tool() -> None:
    assert architecture.PAGE.read_text(encoding="utf-8") == architecture.page(), "run: python -m tools.architecture"


REFERENCE = re.findall(r"^::: (\S+)$", (ROOT / "docs" / "reference.md").read_text(encoding="utf-8"), re.M)


@pytest.mark.parametrize("name", REFERENCE)
def test_the_api_reference_documents_existing_names(name: str) -> None:
    assert pkgutil.resolve_name(name).__doc__

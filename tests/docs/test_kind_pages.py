"""The pages in docs/kinds are what the kinds' values give. `pytest --update` writes them anew."""

from __future__ import annotations

import pytest

from tools.generate_kind_pages import FOLDER, write, written
from trainyard import kinds
from trainyard.core import Kind
from trainyard.core.status import WARNING_CONDITIONS
from trainyard.kinds.definitions.immutability import rules_of
from trainyard.kinds.definitions.pages import CONDITIONS, POLICIES, kind_page
from trainyard.kinds.policies import Policies


def test_the_kind_pages_are_generated_from_the_kinds(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update"):
        write()
    assert {path: path.read_text() for path in FOLDER.glob("*.md")} == written()


@pytest.mark.parametrize("kind", kinds.KINDS, ids=lambda kind: kind.gvk.kind)
def test_a_kind_page_has_everything_in_the_kind_value(kind: Kind) -> None:
    text = kind_page(kind)
    for term in (
        kind.gvk.api_version,
        *kind.api.groups,
        *kind.api.short_names,
        kind.roles.container,
        kind.status.source,
    ):
        assert term in text
    assert all(rule.default_message.replace("|", "\\|") in text for rule in rules_of(kind))
    assert all(column["name"] in text for column in kind.api.columns)
    assert all(f"`{gvk.api_version}`" in text for gvk in kind.roles.child_resources)
    assert all(line.count("|") - line.count("\\|") in (3, 5) for line in text.splitlines() if line.startswith("|"))


def test_the_tables_name_every_policy_and_every_alarm() -> None:
    assert {*POLICIES, "managedBy"} == set(Policies.__struct_fields__)
    assert set(CONDITIONS) >= WARNING_CONDITIONS

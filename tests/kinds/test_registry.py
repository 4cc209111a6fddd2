"""The registry of kinds repeats what commands need of a kind before its module is imported."""

from __future__ import annotations

from trainyard import kinds


def test_the_registry_has_the_names_of_each_kind_and_group() -> None:
    names = [(kind.gvk, kind.singular, kind.short_names) for kind in kinds.all_names()]
    assert names == [(kind.gvk, kind.api.singular, kind.api.short_names) for kind in kinds.ALL]

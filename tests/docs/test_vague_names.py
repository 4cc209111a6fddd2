"""tools/vague_names.py reports each name that does not say what it holds."""

from __future__ import annotations

import pytest

from tools.vague_names import vague_names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("pod = 1\nprint(one, found)", []),
        ("one, pod = 1, 2", ["one"]),
        ("pods = [one for one in pods]", ["one"]),
        ("def f(said, *told, **found): ...", ["found", "said", "told"]),
        ("async def told(): ...", ["told"]),
        ("lambda one: 1", ["one"]),
        ("class C:\n    found: int = 1", ["found"]),
        ("self.said = 1", ["said"]),
        ("try: ...\nexcept OSError as said: ...", ["said"]),
        ("if found := 1: ...", ["found"]),
        ("match x:\n    case [one, *told]: ...", ["one", "told"]),
        ("async def well(asked): ...", ["asked", "well"]),
        ("made = [each for each in pods]", ["each", "made"]),
        ("asked_by, every_pod = seen(still)", []),
    ],
)
def test_vague_names_are_reported(text: str, names: list[str]) -> None:
    assert [name for _, name in vague_names(text)] == names

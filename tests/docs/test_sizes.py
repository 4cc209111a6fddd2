"""tools/sizes.py reports what is too long, unless it says why in its head."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.sizes import FILE_LINES, LINES, METHODS, MODULES, crowded, exceeded

BODY = "\n    x = 1" * LINES
MANY = "".join(f"\n    def m{number}(self): ..." for number in range(METHODS + 1))


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        (f'def f():\n    """Docstring."""{BODY[10:]}', []),
        (f'def f():\n    """Docstring."""{BODY}', [f"f: {LINES + 1} lines"]),
        (f'def f():\n    """Docstring. Longer than 40 lines: a table."""{BODY}', []),
        (f"# Longer than 40 lines: a table.\nasync def f():{BODY}", []),
        (f"class C:{MANY}", [f"C: {METHODS + 1} methods"]),
        (f'class C:\n    """More than 15 methods: one for each request."""{MANY}', []),
        (f"class C:{MANY}".replace("m0", "__init__").replace("m1(", "m1("), []),
        ("\n" * (FILE_LINES + 1), [f"{FILE_LINES + 1} lines, more than {FILE_LINES}"]),
    ],
)
def test_functions_classes_and_files_beyond_the_limits_are_reported(text: str, messages: list[str]) -> None:
    assert [message for _, message in exceeded(text)] == messages


def test_a_folder_with_too_many_modules_is_reported_and_its_subfolders_do_not_count(tmp_path: Path) -> None:
    for index in range(MODULES):
        (tmp_path / f"module_{index}.py").touch()
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "module.py").touch()
    assert not list(crowded(tmp_path))
    (tmp_path / "more.py").touch()
    assert list(crowded(tmp_path)) == [f".: {MODULES + 1} modules, more than {MODULES}: group them in packages"]

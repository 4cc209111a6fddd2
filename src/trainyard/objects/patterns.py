"""Regular expressions that are compiled when they are first used.

A command imports hundreds of them and uses few: compiling all takes a thirtieth of the time of `trainyard get`.
"""

from __future__ import annotations

import re
from typing import Any, cast


def lazy_pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """As re.compile, but an error in the expression is raised when it is first used."""
    return cast("re.Pattern[str]", _Pattern(text, flags))


class _Pattern:
    """Has each attribute of the compiled expression from the first access on, so that later ones are as fast."""

    def __init__(self, text: str, flags: int) -> None:
        self._text, self._flags = text, flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copy and pickle ask for methods of their protocols
            raise AttributeError(name)
        value = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, value)
        return value

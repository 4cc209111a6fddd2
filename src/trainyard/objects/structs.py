"""Copies of frozen values. msgspec structs are created, copied and imported several times faster than dataclasses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    # mypy checks the field names and types in calls of this function, also for structs.
    from dataclasses import replace as replace
else:

    def replace(value: Any, /, **changes: Any) -> Any:
        """A copy of a struct, or of a dataclass, with some fields changed."""
        if isinstance(value, msgspec.Struct):
            return msgspec.structs.replace(value, **changes)
        import dataclasses

        return dataclasses.replace(value, **changes)

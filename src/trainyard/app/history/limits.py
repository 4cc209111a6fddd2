"""The limits of the history. `up` and `run` check them before they start anything: this module imports no other."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from trainyard.objects.patterns import lazy_pattern

_SIZE = lazy_pattern(r"(\d{1,15}(?:\.\d{1,3})?)(?:([KMGT])(i?))?", re.ASCII)


class RetentionLimits(msgspec.Struct, frozen=True):
    """How much of the history is kept."""

    jobs: int = 200  # 0 turns the history off
    size: int = 5_000_000_000  # bytes, all jobs together; the newest job stays whatever its size
    days: int = 90  # after the last change of a record; 0: whatever its age
    log_size: int = 64 << 20  # bytes of one log file: its beginning and its end are kept; the node has the same limit
    pods: int = 10  # of each replica: so many first and so many last ones are kept, with their logs
    events: int = 1000  # of each job: so many first and so many last ones are kept

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> RetentionLimits:
        """The defaults, changed by the variables TRAINYARD_HISTORY_JOBS, _SIZE and _DAYS. Raises ValueError."""
        limits = cls()
        names = ("TRAINYARD_HISTORY_JOBS", "TRAINYARD_HISTORY_DAYS", "TRAINYARD_HISTORY_SIZE")
        jobs, days, size = (environment.get(name, "") for name in names)
        if jobs and not _is_number(jobs):
            raise ValueError(
                f"TRAINYARD_HISTORY_JOBS: {jobs!r} is not a number of jobs; write 200, or 0 for no history"
            )
        if days and not _is_number(days):
            raise ValueError(f"TRAINYARD_HISTORY_DAYS: {days!r} is not a number of days; write 90, or 0 for no limit")
        match = _SIZE.fullmatch(size)
        if size and match is None:
            raise ValueError(f"TRAINYARD_HISTORY_SIZE: {size!r} is not a size; write bytes, or such as 500Mi or 1Gi")
        return cls(
            jobs=int(jobs) if jobs else limits.jobs,
            days=int(days) if days else limits.days,
            size=_bytes(match) if match else limits.size,
        )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10


def _bytes(size: re.Match[str]) -> int:
    """The number of bytes that a matched size stands for."""
    power = " KMGT".index(size[2] or " ")
    from fractions import Fraction

    return int(Fraction(size[1]) * (1024 if size[3] else 1000) ** power)

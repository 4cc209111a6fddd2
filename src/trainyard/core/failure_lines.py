"""The line of a termination message that tells why a container failed."""

from __future__ import annotations

import re

_EXCEPTION = re.compile(r"(\[[^\]]*\]:)?\s*[A-Za-z_][\w.]*(Error|Exception|Failed|Closed|Interrupt)\b")


def failure_line(message: str, exit_code: int) -> str:
    """The line of a failed container's termination message that tells the cause: the last exception, else the last line
    with a letter or digit; "" for exit code 0.

    A launcher's ChildFailedError is skipped: it follows the exception of the child process and tells less."""
    lines = [line.strip() for line in message.splitlines() if re.search(r"\w", line)] if exit_code else []
    exceptions = [line for line in lines if _EXCEPTION.match(line) and "ChildFailedError" not in line]
    return (exceptions or lines or [""])[-1]

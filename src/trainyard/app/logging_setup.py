"""The log format of the long-running programs: one line per message, as text or as JSON.

The log messages of Trainyard are written `message name=%s name=%d`. The text format prints them so; in JSON each such
name is a field, taken from the template and not from the formatted text, so that a value with spaces or "=" cannot pass
as a field.
"""

from __future__ import annotations

import json
import logging
import time
from datetime import UTC, datetime
from textwrap import indent
from typing import Any

from trainyard.objects.patterns import lazy_pattern
from trainyard.objects.printable import printable

FORMATS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")
_DIRECTIVE = lazy_pattern(r"%%|%[-#0 +]*\d*(?:\.\d+)?[a-zA-Z]")
_PAIR = lazy_pattern(r"(?:^|(?<=\s))(\w+)=([^\s=]*%[^\s=]*)(?=\s|$)")
RESERVED_FIELDS = frozenset({"time", "level", "logger", "message", "stacktrace"})


def split_message(template: str, args: tuple[Any, ...]) -> tuple[str, dict[str, str]]:
    """The text and the fields of a message. Whatever is no `name=value` stays in the text."""
    fields: dict[str, str] = {}
    text, remaining, end = "", list(args), 0
    for match in _PAIR.finditer(template):
        text += _fill(template[end : match.start()], remaining)
        fields[match[1]] = _fill(match[2], remaining)
        end = match.end()
    text += _fill(template[end:], remaining)
    return " ".join(text.split()), fields


def _fill(part: str, remaining: list[Any]) -> str:
    """This part of the template, formatted with its arguments, which are removed from `remaining`."""
    count = sum(directive != "%%" for directive in _DIRECTIVE.findall(part))
    arguments, remaining[:] = remaining[:count], remaining[count:]
    return part % tuple(arguments)


class TextFormatter(logging.Formatter):
    """`2026-11-21T20:00:00.123Z INFO app.operating message name=value`; a line break in a value is written \\n."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; a traceback follows in indented lines."""
        message = printable(record.getMessage(), line=True)
        line = f"{_time(record)} {record.levelname} {_logger(record)} {message}"
        if not record.exc_info:
            return line
        # Indented, so that a line in the text of an error cannot pass as a line of the log.
        return f"{line}\n{indent(printable(self.formatException(record.exc_info)), '    ', lambda _: True)}"


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, the fields of the message, and a traceback as
    `stacktrace`."""

    def format(self, record: logging.LogRecord) -> str:
        """One JSON object: time, level, logger, message, the fields of the message, and `stacktrace`."""
        words, fields = record.getMessage(), dict[str, str]()
        if isinstance(record.msg, str) and isinstance(record.args, tuple):
            words, fields = split_message(record.msg, record.args) if record.args else (record.msg, {})
        line: dict[str, str] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": _logger(record),
            "message": words,
        }
        line.update((f"field_{name}" if name in RESERVED_FIELDS else name, value) for name, value in fields.items())
        if record.exc_info:
            line["stacktrace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _time(record: logging.LogRecord) -> str:
    text = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _logger(record: logging.LogRecord) -> str:
    return record.name.removeprefix("trainyard.")


class _ExhaustionFilter(logging.Filter):
    """asyncio logs a traceback for each failed accept: a hundred a second for each listener, while any local user holds
    more connections than there are descriptors. One line a minute is left of them."""

    def __init__(self) -> None:
        super().__init__()
        self._next = float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is logged."""
        if not str(record.msg).startswith("socket.accept() out of system resource"):
            return True
        if (now := time.monotonic()) < self._next:
            return False
        self._next = now + 60
        record.msg, record.args = "no descriptors are left, new connections wait; raise `ulimit -n`", ()
        record.exc_info = None
        return True


_exhaustion_filter = _ExhaustionFilter()


def limit_accept_errors() -> None:
    """Let asyncio log once a minute that no connection can be accepted. Idempotent."""
    logging.getLogger("asyncio").addFilter(_exhaustion_filter)


def configure_logging(form: str, level: str) -> None:
    """Log to stderr from now on. `form`: one of FORMATS; `level`: one of LEVELS."""
    # No line has them, and to look them up is half of the cost of a record.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    limit_accept_errors()
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)

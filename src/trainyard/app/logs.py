"""What a program that runs for weeks logs: one line each, as text for people or as JSON for those who collect them.

Our log messages are written `words name=%s name=%d`. In text they stay so; in JSON each such name is a field of its
own, taken from the template and not from the text, so that a value with spaces or "=" in it cannot pretend to be one.
"""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime
from textwrap import indent
from typing import Any

from trainyard.objects.printable import printable

FORMATS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")
_PLACE = re.compile(r"%%|%[-#0 +]*\d*(?:\.\d+)?[a-zA-Z]")
_PAIR = re.compile(r"(?:^|(?<=\s))(\w+)=([^\s=]*%[^\s=]*)(?=\s|$)")
OWN = frozenset({"time", "level", "logger", "message", "error"})


def split(template: str, args: tuple[Any, ...]) -> tuple[str, dict[str, str]]:
    """The words and the fields of a message. What is no pair stays among the words."""
    fields: dict[str, str] = {}
    words, left, end = "", list(args), 0
    for pair in _PAIR.finditer(template):
        words += _fill(template[end : pair.start()], left)
        fields[pair[1]] = _fill(pair[2], left)
        end = pair.end()
    words += _fill(template[end:], left)
    return " ".join(words.split()), fields


def _fill(part: str, left: list[Any]) -> str:
    """This part of the template with its arguments, which are taken from `left`."""
    count = sum(found != "%%" for found in _PLACE.findall(part))
    taken, left[:] = left[:count], left[count:]
    return part % tuple(taken)


class Text(logging.Formatter):
    """`2026-11-21T20:00:00.123Z INFO control.loop words name=value`; a line break in a value is written \\n."""

    def format(self, record: logging.LogRecord) -> str:
        said = printable(record.getMessage(), line=True)
        line = f"{_time(record)} {record.levelname} {_logger(record)} {said}"
        if not record.exc_info:
            return line
        # Indented: a line in the text of an error cannot pretend to be one of the log.
        return f"{line}\n{indent(printable(self.formatException(record.exc_info)), '    ', lambda _: True)}"


class Lines(logging.Formatter):
    """One JSON object a line: time, level, logger, message, the fields of the message, and the traceback if any."""

    def format(self, record: logging.LogRecord) -> str:
        words, fields = record.getMessage(), dict[str, str]()
        if isinstance(record.msg, str) and isinstance(record.args, tuple):
            words, fields = split(record.msg, record.args) if record.args else (record.msg, {})
        line: dict[str, str] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": _logger(record),
            "message": words,
        }
        line.update((f"field_{name}" if name in OWN else name, value) for name, value in fields.items())
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z"


def _logger(record: logging.LogRecord) -> str:
    return record.name.removeprefix("trainyard.")


def begin(form: str, level: str) -> None:
    """From now on everything that is logged goes to stderr like this."""
    speaker = logging.StreamHandler()
    speaker.setFormatter(Lines() if form == "json" else Text())
    logging.basicConfig(level=level.upper(), handlers=[speaker], force=True)

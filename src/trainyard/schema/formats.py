"""The string formats that an API server validates. Other formats are ignored, as in an API server.

Rules for this file:
- A format is a function from a string to bool. It never raises.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable

_DAY = r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
_TIME = r"([01]\d|2[0-4]):[0-5]\d:([0-5]\d|60)(\.\d+)?([zZ]|[+-]([01]\d|2[0-3]):?[0-5]\d)?"
_UNITS = (
    r"(ns|nano(second)?s?|us|µs|μs|micro(second)?s?|ms|milli(second)?s?|s|sec(ond)?s?|m|min(ute)?s?"
    r"|h|hrs?|hours?|d|days?|w|wks?|weeks?)"
)
_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_HEX = "[0-9a-fA-F]"


def _matches(pattern: str, max_length: int = 1 << 20) -> Callable[[str], bool]:
    # `re` compiles it at its first use.
    return lambda text: len(text) <= max_length and re.fullmatch(pattern, text) is not None


def _parsed_by(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def is_parsable(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True

    return is_parsable


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _uuid(version: str = "[0-9a-fA-F]") -> Callable[[str], bool]:
    return _matches(f"{_HEX}{{8}}-?{_HEX}{{4}}-?{version}{_HEX}{{3}}-?{_HEX}{{4}}-?{_HEX}{{12}}")


FORMATS: dict[str, Callable[[str], bool]] = {
    "byte": _is_base64,
    "cidr": _parsed_by(lambda text: ipaddress.ip_interface(text if "/" in text else "?")),
    "date": _matches(_DAY),
    "date-time": _matches(f"{_DAY}[tT]{_TIME}"),
    "datetime": _matches(f"{_DAY}[tT]{_TIME}"),
    "duration": _matches(rf"[+-]?(0|(\d+(\.\d*)?|\.\d+)\s*{_UNITS}(\s*(\d+(\.\d*)?|\.\d+)\s*{_UNITS})*)"),
    "email": _matches(r"[^\s@<>,;:\"()\[\]]+@[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?"),
    "hostname": _matches(rf"(?i:{_LABEL}(\.{_LABEL})*)", 255),
    "ipv4": _parsed_by(ipaddress.IPv4Address),
    "ipv6": _parsed_by(ipaddress.IPv6Address),
    "k8s-long-name": _matches(rf"{_LABEL}(\.{_LABEL})*", 253),
    "k8s-short-name": _matches(_LABEL, 63),
    "mac": _matches(rf"{_HEX}{{2}}([:-]{_HEX}{{2}}){{5}}"),
    "uri": _matches(r"([A-Za-z][A-Za-z0-9+.-]*:[^\s]*|/[^\s]*)"),
    "uuid": _uuid(),
    "uuid3": _uuid("3"),
    "uuid4": _uuid("4"),
    "uuid5": _uuid("5"),
}

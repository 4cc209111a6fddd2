"""The formats of strings that an API server checks. One that is not here says nothing, as there.

Rules for this file:
- A format is a function from a string to yes or no. It never raises.
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


def _like(pattern: str, longest: int = 1 << 20) -> Callable[[str], bool]:
    return lambda text: len(text) <= longest and re.fullmatch(pattern, text) is not None  # compiled when first used


def _read_by(read: Callable[[str], object]) -> Callable[[str], bool]:
    def reads(text: str) -> bool:
        try:
            read(text)
        except ValueError:
            return False
        return True

    return reads


def _coded(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _uuid(version: str = "[0-9a-fA-F]") -> Callable[[str], bool]:
    return _like(f"{_HEX}{{8}}-?{_HEX}{{4}}-?{version}{_HEX}{{3}}-?{_HEX}{{4}}-?{_HEX}{{12}}")


FORMATS: dict[str, Callable[[str], bool]] = {
    "byte": _coded,
    "cidr": _read_by(lambda text: ipaddress.ip_interface(text if "/" in text else "?")),
    "date": _like(_DAY),
    "date-time": _like(f"{_DAY}[tT]{_TIME}"),
    "datetime": _like(f"{_DAY}[tT]{_TIME}"),
    "duration": _like(rf"[+-]?(0|(\d+(\.\d*)?|\.\d+)\s*{_UNITS}(\s*(\d+(\.\d*)?|\.\d+)\s*{_UNITS})*)"),
    "email": _like(r"[^\s@<>,;:\"()\[\]]+@[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?"),
    "hostname": _like(rf"(?i:{_LABEL}(\.{_LABEL})*)", 255),
    "ipv4": _read_by(ipaddress.IPv4Address),
    "ipv6": _read_by(ipaddress.IPv6Address),
    "k8s-long-name": _like(rf"{_LABEL}(\.{_LABEL})*", 253),
    "k8s-short-name": _like(_LABEL, 63),
    "mac": _like(rf"{_HEX}{{2}}([:-]{_HEX}{{2}}){{5}}"),
    "uri": _like(r"([A-Za-z][A-Za-z0-9+.-]*:[^\s]*|/[^\s]*)"),
    "uuid": _uuid(),
    "uuid3": _uuid("3"),
    "uuid4": _uuid("4"),
    "uuid5": _uuid("5"),
}

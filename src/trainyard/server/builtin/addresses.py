"""Validation of IP addresses and CIDR ranges, with the messages and warnings of kube-apiserver."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address

from trainyard.objects import Problem
from trainyard.schema.checks import json_text
from trainyard.server.builtin.validators import validate_ip

_MULTICAST = ipaddress.ip_network("224.0.0.0/24")
_RANGE_TEXT = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"


def parse_ip(text: str) -> IPv4Address | IPv6Address | None:
    """The parsed IP address, None if the text is no IP address or has a zone."""
    try:
        return ipaddress.ip_address(text) if "%" not in text else None
    except ValueError:
        return None


def ip_problems(text: str, path: str, *, canonical: bool = False) -> Iterator[Problem]:
    """Problems of the notation of an address. `canonical`: only the canonical form is valid."""
    problems = list(validate_ip(text, path))
    if not problems and (parsed := parse_ip(text)) is not None:
        if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped:
            problems = [Problem(path, f"Invalid value: {json_text(text)}: must not be an IPv4-mapped IPv6 address")]
        elif canonical and str(parsed) != text:
            problems = [Problem(path, f'Invalid value: {json_text(text)}: must be in canonical form ("{parsed}")')]
    yield from problems


def non_special_ip_problems(text: str, path: str) -> Iterator[Problem]:
    """A problem for an address that other hosts cannot reach: unspecified, loopback or link-local."""
    parsed = parse_ip(text)
    if parsed is None:
        return
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped:
        parsed = parsed.ipv4_mapped
    reason = ""
    if parsed.is_unspecified:
        reason = f"may not be unspecified ({parsed})"
    elif parsed.is_loopback:
        reason = "may not be in the loopback range (127.0.0.0/8, ::1/128)"
    elif parsed.is_link_local:
        reason = "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
    elif _is_link_local_multicast(parsed):
        reason = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
    if reason:
        yield Problem(path, f"Invalid value: {json_text(text)}: {reason}")


def _is_link_local_multicast(parsed: IPv4Address | IPv6Address) -> bool:
    if isinstance(parsed, IPv4Address):
        return parsed in _MULTICAST
    first, second = parsed.packed[:2]
    return first == 0xFF and second & 0x0F == 2


def cidr_problems(text: str, path: str) -> Iterator[Problem]:
    """Problems of a CIDR range such as 10.9.8.0/24."""
    reason = ""
    if re.search(r"(^|[./])0\d", text):
        reason = "must not have leading 0s in IP or prefix length"
    elif not re.fullmatch(r"[^/%]+/\d+", text):
        reason = _RANGE_TEXT
    else:
        try:
            interface = ipaddress.ip_interface(text)
            if isinstance(interface.ip, IPv6Address) and interface.ip.ipv4_mapped:
                reason = "must not have an IPv4-mapped IPv6 address"
            elif interface.ip != interface.network.network_address:
                reason = "must not have bits set beyond the prefix length"
        except ValueError:
            reason = _RANGE_TEXT
    if reason:
        yield Problem(path, f"Invalid value: {json_text(text)}: {reason}")


def ip_warnings(text: str, path: str) -> Iterator[str]:
    """The warning of kube-apiserver about an address in a non-standard or non-canonical form."""
    without_leading_zeros = re.sub(r"(?<![\d:])0+(?=\d)", "", text) if ":" not in text else text
    parsed = parse_ip(without_leading_zeros)
    if parsed is None:
        return
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped:
        parsed = parsed.ipv4_mapped
    if without_leading_zeros != text or (":" in text and parsed.version == 4):
        yield f'{path}: non-standard IP address "{text}" is invalid: use "{parsed}"'
    elif str(parsed) != text:
        yield f'{path}: IPv6 address "{text}" should be in RFC 5952 canonical format ("{parsed}")'


def cidr_warnings(text: str, path: str) -> Iterator[str]:
    """The warning of kube-apiserver about an IPv6 CIDR range in a non-canonical form."""
    if ":" in text and not list(cidr_problems(text, path)) and (canonical := str(ipaddress.ip_interface(text))) != text:
        yield f'{path}: IPv6 CIDR value "{text}" should be in RFC 5952 canonical format ("{canonical}")'

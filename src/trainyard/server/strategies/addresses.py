"""What the real server refuses of addresses, and of ranges of them, that others are to reach."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address

from trainyard.objects import Problem
from trainyard.schema.checks import shown
from trainyard.server.strategies.refusing import address

_MULTICAST = ipaddress.ip_network("224.0.0.0/24")
_RANGE_TEXT = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"


def known(text: str) -> IPv4Address | IPv6Address | None:
    """The address that this is, None when it is none."""
    try:
        return ipaddress.ip_address(text) if "%" not in text else None
    except ValueError:
        return None


def settled(text: str, path: str, *, canonical: bool = False) -> Iterator[Problem]:
    """What is wrong with how an address is written. `canonical`: there is one way only."""
    wrong = list(address(text, path))
    if not wrong and (found := known(text)) is not None:
        if isinstance(found, IPv6Address) and found.ipv4_mapped:
            wrong = [Problem(path, f"Invalid value: {shown(text)}: must not be an IPv4-mapped IPv6 address")]
        elif canonical and str(found) != text:
            wrong = [Problem(path, f'Invalid value: {shown(text)}: must be in canonical form ("{found}")')]
    yield from wrong


def reachable(text: str, path: str) -> Iterator[Problem]:
    """A problem for an address that nobody else can reach."""
    found = known(text)
    if found is None:
        return
    if isinstance(found, IPv6Address) and found.ipv4_mapped:
        found = found.ipv4_mapped
    why = ""
    if found.is_unspecified:
        why = f"may not be unspecified ({found})"
    elif found.is_loopback:
        why = "may not be in the loopback range (127.0.0.0/8, ::1/128)"
    elif found.is_link_local:
        why = "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
    elif _of_the_link(found):
        why = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
    if why:
        yield Problem(path, f"Invalid value: {shown(text)}: {why}")


def _of_the_link(found: IPv4Address | IPv6Address) -> bool:
    if isinstance(found, IPv4Address):
        return found in _MULTICAST
    first, second = found.packed[:2]
    return first == 0xFF and second & 0x0F == 2


def range_problems(text: str, path: str) -> Iterator[Problem]:
    """What is wrong with a range such as 10.9.8.0/24."""
    why = ""
    if re.search(r"(^|[./])0\d", text):
        why = "must not have leading 0s in IP or prefix length"
    elif not re.fullmatch(r"[^/%]+/\d+", text):
        why = _RANGE_TEXT
    else:
        try:
            found = ipaddress.ip_interface(text)
            if isinstance(found.ip, IPv6Address) and found.ip.ipv4_mapped:
                why = "must not have an IPv4-mapped IPv6 address"
            elif found.ip != found.network.network_address:
                why = "must not have bits set beyond the prefix length"
        except ValueError:
            why = _RANGE_TEXT
    if why:
        yield Problem(path, f"Invalid value: {shown(text)}: {why}")


def writing_warnings(text: str, path: str) -> Iterator[str]:
    """What the real server warns of: an address that is written in another way than others write it."""
    plain = re.sub(r"(?<![\d:])0+(?=\d)", "", text) if ":" not in text else text
    found = known(plain)
    if found is None:
        return
    if isinstance(found, IPv6Address) and found.ipv4_mapped:
        found = found.ipv4_mapped
    if plain != text or (":" in text and found.version == 4):
        yield f'{path}: non-standard IP address "{text}" is invalid: use "{found}"'
    elif str(found) != text:
        yield f'{path}: IPv6 address "{text}" should be in RFC 5952 canonical format ("{found}")'


def range_warnings(text: str, path: str) -> Iterator[str]:
    """The same of a range."""
    if ":" in text and not list(range_problems(text, path)) and (plain := str(ipaddress.ip_interface(text))) != text:
        yield f'{path}: IPv6 CIDR value "{text}" should be in RFC 5952 canonical format ("{plain}")'

"""The NAT by text for an address in two parts: a host in one variable or flag and its port in another. Pure.

`MASTER_ADDR=master-0` with `MASTER_PORT=23456` means `master-0:23456`, so both parts are rewritten as that text is. The
pod that listens there has the same two variables, so it listens on the port that the others connect to.

Rules:
- Two variables belong together when their names are alike but for the last word: HOST, HOSTNAME, ADDR, ADDRESS, IP or
  URI for the host, PORT for the port (also HOST and PORT themselves). The same for flags: `--master_addr=H` or
  `--master-addr H`.
- Where two hosts share one port and stand for different places, nothing is rewritten."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

_HOST = re.compile(r"(|.+_)(?:HOST|HOSTNAME|ADDR|ADDRESS|IP|URI)$", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]{1,5}")


def environment(variables: Mapping[str, str], rewrite: Callable[[str], str]) -> dict[str, str]:
    """The variables that become others. `rewrite` is the NAT for `host:port`."""
    by_name = {name.upper(): name for name in variables}
    hosts: dict[str, dict[str, str]] = {}  # the name of the port -> the name of each host -> the address as rewritten
    for name, host in variables.items():
        port = by_name.get(f"{stem[1].upper()}PORT") if (stem := _HOST.match(name)) else None
        if port is not None and _NUMBER.fullmatch(variables[port]):
            address = f"{host}:{variables[port]}"
            if host and (new := rewrite(address)) != address:
                hosts.setdefault(port, {})[name] = new
    changed: dict[str, str] = {}
    for port, addresses in hosts.items():
        if len(set(addresses.values())) == 1:
            for name, address in addresses.items():
                changed[name], _, changed[port] = address.rpartition(":")
    return changed


def arguments(words: Sequence[str], rewrite: Callable[[str], str]) -> list[str]:
    """The words of a command line, with the flags that become others."""
    found: dict[str, tuple[int, str, str]] = {}  # flag as a variable's name -> its word, what precedes its value, value
    for at, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if not flag.startswith("-"):
            continue
        name = flag.lstrip("-").replace("-", "_").upper()
        if equals:
            found[name] = at, f"{flag}=", value
        elif at + 1 < len(words) and not words[at + 1].startswith("-"):
            found[name] = at + 1, "", words[at + 1]
    written = list(words)
    for name, value in environment({name: value for name, (_, _, value) in found.items()}, rewrite).items():
        at, before, _ = found[name]
        written[at] = before + value
    return written

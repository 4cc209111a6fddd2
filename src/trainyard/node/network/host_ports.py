"""The address rewrite for an address in two parts: a host in one variable or flag and its port in another. Pure.

`MASTER_ADDR=master-0` with `MASTER_PORT=23456` means `master-0:23456`, so both parts are rewritten as this text would
be. The pod that listens there has the same two variables, so it listens on the port to which the other pods connect.

Rules:
- Two variables belong together when their names are equal except for the last word: HOST, HOSTNAME, ADDR, ADDRESS, IP
  or URI for the host, PORT for the port (also HOST and PORT alone). The same holds for flags: `--master_addr=H` or
  `--master-addr H`.
- A variable in the plural (`WORKER_ADDRS=worker-0,worker-1`) may name several hosts, which listen on ports of their own
  here. So each becomes `HOST:PORT`, and the port variable stays; a single one is rewritten as above.
- Where two host variables with one port variable would be rewritten to different addresses, neither is rewritten."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from trainyard.objects.patterns import lazy_pattern

_HOST = lazy_pattern(r"(|.+_)(?:HOST|HOSTNAME|ADDR|ADDRESS|IP|URI)(?:E?S)?$", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]{1,5}")


def environment(variables: Mapping[str, str], rewrite: Callable[[str], str]) -> dict[str, str]:
    """The variables that change, with their new values. `rewrite` maps `host:port` to its new text."""
    by_name = {name.upper(): name for name in variables}
    hosts: dict[str, dict[str, str]] = {}  # port variable -> host variable -> rewritten host:port
    changed: dict[str, str] = {}
    for name, host in variables.items():
        port = by_name.get(f"{host_match[1].upper()}PORT") if (host_match := _HOST.match(name)) else None
        if port is None or not host or not _NUMBER.fullmatch(variables[port]):
            continue
        addresses = {member: f"{member}:{variables[port]}" for member in host.split(",")}
        rewritten = {member: rewrite(address) for member, address in addresses.items()}
        if rewritten == addresses:
            continue
        if len(rewritten) == 1:
            hosts.setdefault(port, {})[name] = rewritten[host]
        else:
            changed[name] = ",".join(rewritten[member] for member in host.split(","))
    for port, by_host in hosts.items():
        if len(set(by_host.values())) == 1:
            for name, address in by_host.items():
                changed[name], _, changed[port] = address.rpartition(":")
    return changed


def arguments(words: Sequence[str], rewrite: Callable[[str], str]) -> list[str]:
    """The arguments of a command line, with the values of host and port flags rewritten."""
    flags: dict[
        str, tuple[int, str, str]
    ] = {}  # flag as variable name -> index of its argument, text before the value, value
    for index, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if not flag.startswith("-"):
            continue
        name = flag.lstrip("-").replace("-", "_").upper()
        if equals:
            flags[name] = index, f"{flag}=", value
        elif index + 1 < len(words) and not words[index + 1].startswith("-"):
            flags[name] = index + 1, "", words[index + 1]
    rewritten = list(words)
    for name, value in environment({name: value for name, (_, _, value) in flags.items()}, rewrite).items():
        index, prefix, _ = flags[name]
        rewritten[index] = prefix + value
    return rewritten

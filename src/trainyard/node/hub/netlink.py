"""Links, addresses and routes over AF_NETLINK: the few messages a bridge with pods needs, in place of the `ip` program.

Rule: one `Netlink` speaks for the network namespace in which it was opened, wherever its process goes afterwards."""

from __future__ import annotations

import os
import socket
import struct

_NEWLINK, _DELLINK, _NEWADDR, _NEWROUTE, _ERROR = 16, 17, 20, 24, 2
_REQUEST, _ACK, _EXCL, _CREATE = 1, 4, 0x200, 0x400
_IFF_UP = 1
_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_MASTER, _IFLA_LINKINFO, _IFLA_NET_NS_FD = 1, 3, 10, 18, 28
_INFO_KIND, _INFO_DATA, _VETH_PEER = 1, 2, 1
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_RTA_DST, _RTA_OIF, _RTA_GATEWAY = 1, 4, 5
_TABLE_MAIN, _TABLE_LOCAL = 254, 255
_PROTO_STATIC, _SCOPE_UNIVERSE, _SCOPE_HOST = 4, 0, 254
_TYPE_UNICAST, _TYPE_LOCAL = 1, 2
_LINK = struct.Struct("=BxHiII")  # family, type, index, flags, mask of flags that change
_ROUTE = struct.Struct("=8BI")


def _field(kind: int, value: bytes) -> bytes:
    """One attribute, padded to four bytes."""
    size = 4 + len(value)
    return struct.pack("=HH", size, kind) + value + b"\0" * (-size % 4)


def _text(kind: int, value: str) -> bytes:
    return _field(kind, value.encode() + b"\0")


def _number(kind: int, value: int) -> bytes:
    return _field(kind, struct.pack("=I", value))


def _hardware(address: str) -> bytes:
    """A hardware address made of the IP address: who comes back under an address is the one its neighbours remember."""
    return _field(_IFLA_ADDRESS, b"\x0a\x58" + socket.inet_aton(address))


class Netlink:
    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        self._socket.bind((0, 0))
        self._serial = 0

    def close(self) -> None:
        self._socket.close()

    def _ask(self, kind: int, flags: int, body: bytes) -> None:
        self._serial += 1
        head = struct.pack("=IHHII", 16 + len(body), kind, _REQUEST | _ACK | flags, self._serial, 0)
        self._socket.send(head + body)
        while True:
            answer = self._socket.recv(65536)
            _, what, _, serial, _ = struct.unpack_from("=IHHII", answer)
            if what == _ERROR and serial == self._serial:
                (code,) = struct.unpack_from("=i", answer, 16)
                if code:
                    raise OSError(-code, f"netlink message {kind}: {os.strerror(-code)}")
                return

    def up(self, name: str) -> None:
        body = _LINK.pack(0, 0, 0, _IFF_UP, _IFF_UP) + _text(_IFLA_IFNAME, name)
        self._ask(_NEWLINK, 0, body)

    def bridge(self, name: str, address: str) -> None:
        """A bridge for that address. Without a hardware address of its own it would change it with its members."""
        body = _LINK.pack(0, 0, 0, 0, 0) + _text(_IFLA_IFNAME, name) + _hardware(address)
        self._ask(_NEWLINK, _CREATE | _EXCL, body + _field(_IFLA_LINKINFO, _text(_INFO_KIND, "bridge")))

    def veth(self, name: str, master: str, address: str, namespace: int) -> None:
        """A pair of links: one end here, in the bridge and up; the other, eth0 of that address, in the namespace."""
        other = _LINK.pack(0, 0, 0, 0, 0) + _text(_IFLA_IFNAME, "eth0") + _hardware(address)
        other += _number(_IFLA_NET_NS_FD, namespace)
        info = _text(_INFO_KIND, "veth") + _field(_INFO_DATA, _field(_VETH_PEER, other))
        body = _LINK.pack(0, 0, 0, _IFF_UP, _IFF_UP) + _text(_IFLA_IFNAME, name)
        body += _number(_IFLA_MASTER, socket.if_nametoindex(master)) + _field(_IFLA_LINKINFO, info)
        self._ask(_NEWLINK, _CREATE | _EXCL, body)

    def delete(self, name: str) -> None:
        self._ask(_DELLINK, 0, _LINK.pack(0, 0, 0, 0, 0) + _text(_IFLA_IFNAME, name))

    def address(self, index: int, address: str, bits: int) -> None:
        raw = socket.inet_aton(address)
        body = struct.pack("=BBBBI", socket.AF_INET, bits, 0, _SCOPE_UNIVERSE, index)
        self._ask(_NEWADDR, _CREATE | _EXCL, body + _field(_IFA_LOCAL, raw) + _field(_IFA_ADDRESS, raw))

    def default_route(self, gateway: str) -> None:
        body = _ROUTE.pack(socket.AF_INET, 0, 0, 0, _TABLE_MAIN, _PROTO_STATIC, _SCOPE_UNIVERSE, _TYPE_UNICAST, 0)
        self._ask(_NEWROUTE, _CREATE, body + _field(_RTA_GATEWAY, socket.inet_aton(gateway)))

    def local_route(self, network: str, bits: int, index: int) -> None:
        """Every address of `network` is this machine's own: one can listen on it and packets to it stay here."""
        body = _ROUTE.pack(socket.AF_INET, bits, 0, 0, _TABLE_LOCAL, _PROTO_STATIC, _SCOPE_HOST, _TYPE_LOCAL, 0)
        self._ask(_NEWROUTE, _CREATE, body + _field(_RTA_DST, socket.inet_aton(network)) + _number(_RTA_OIF, index))

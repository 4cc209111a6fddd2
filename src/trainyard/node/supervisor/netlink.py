"""Links, addresses and routes over AF_NETLINK: the few messages for a bridge with pods, instead of the `ip` program.

Rule: a `Netlink` works on the network namespace in which it was opened, whatever namespace its process enters later."""

from __future__ import annotations

import os
import socket
import struct

_NEWLINK, _DELLINK, _NEWADDR, _NEWROUTE, _ERROR = 16, 17, 20, 24, 2
_REQUEST, _ACK, _EXCL, _CREATE = 1, 4, 0x200, 0x400
_IFF_UP = 1
MTU = 65535  # bytes; the largest of a veth
_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_MTU, _IFLA_MASTER, _IFLA_LINKINFO, _IFLA_NET_NS_FD = 1, 3, 4, 10, 18, 28
_INFO_KIND, _INFO_DATA, _VETH_PEER = 1, 2, 1
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_RTA_DST, _RTA_OIF, _RTA_GATEWAY = 1, 4, 5
_TABLE_MAIN, _TABLE_LOCAL = 254, 255
_PROTO_STATIC, _SCOPE_UNIVERSE, _SCOPE_HOST = 4, 0, 254
_TYPE_UNICAST, _TYPE_LOCAL = 1, 2
_LINK = struct.Struct("=BxHiII")  # family, type, index, flags, mask of flags that change
_ROUTE = struct.Struct("=8BI")


def _attribute(kind: int, value: bytes) -> bytes:
    """One netlink attribute, padded to four bytes."""
    size = 4 + len(value)
    return struct.pack("=HH", size, kind) + value + b"\0" * (-size % 4)


def _text_attribute(kind: int, value: str) -> bytes:
    return _attribute(kind, value.encode() + b"\0")


def _number_attribute(kind: int, value: int) -> bytes:
    return _attribute(kind, struct.pack("=I", value))


def _hardware_address(address: str) -> bytes:
    """A MAC address derived from the IP address: a new pod with an old IP address matches the ARP caches of its
    peers."""
    return _attribute(_IFLA_ADDRESS, b"\x0a\x58" + socket.inet_aton(address))


class Netlink:
    """A netlink socket for requests to the kernel's routing tables."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        self._socket.bind((0, 0))
        self._serial = 0

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _request(self, kind: int, flags: int, body: bytes) -> None:
        self._serial += 1
        head = struct.pack("=IHHII", 16 + len(body), kind, _REQUEST | _ACK | flags, self._serial, 0)
        self._socket.send(head + body)
        while True:
            answer = self._socket.recv(65536)
            _, message_type, _, serial, _ = struct.unpack_from("=IHHII", answer)
            if message_type == _ERROR and serial == self._serial:
                (code,) = struct.unpack_from("=i", answer, 16)
                if code:
                    raise OSError(-code, f"netlink message {kind}: {os.strerror(-code)}")
                return

    def up(self, name: str) -> None:
        """`ip link set NAME up`."""
        body = _LINK.pack(0, 0, 0, _IFF_UP, _IFF_UP) + _text_attribute(_IFLA_IFNAME, name)
        self._request(_NEWLINK, 0, body)

    def bridge(self, name: str, address: str) -> None:
        """Create a bridge with a MAC address for `address`: without a fixed one, its MAC address would change with its
        ports."""
        body = _LINK.pack(0, 0, 0, 0, 0) + _text_attribute(_IFLA_IFNAME, name) + _hardware_address(address)
        body += _number_attribute(_IFLA_MTU, MTU)
        self._request(
            _NEWLINK, _CREATE | _EXCL, body + _attribute(_IFLA_LINKINFO, _text_attribute(_INFO_KIND, "bridge"))
        )

    def veth(self, name: str, master: str, address: str, namespace: int) -> None:
        """Create a veth pair: `name`, in the bridge `master` and up, and eth0 in the network namespace with the
        descriptor `namespace`, with a MAC address for `address`."""
        peer = _LINK.pack(0, 0, 0, 0, 0) + _text_attribute(_IFLA_IFNAME, "eth0") + _hardware_address(address)
        peer += _number_attribute(_IFLA_NET_NS_FD, namespace) + _number_attribute(_IFLA_MTU, MTU)
        info = _text_attribute(_INFO_KIND, "veth") + _attribute(_INFO_DATA, _attribute(_VETH_PEER, peer))
        body = _LINK.pack(0, 0, 0, _IFF_UP, _IFF_UP) + _text_attribute(_IFLA_IFNAME, name)
        body += _number_attribute(_IFLA_MASTER, socket.if_nametoindex(master)) + _number_attribute(_IFLA_MTU, MTU)
        body += _attribute(_IFLA_LINKINFO, info)
        self._request(_NEWLINK, _CREATE | _EXCL, body)

    def delete(self, name: str) -> None:
        """`ip link delete NAME`."""
        self._request(_DELLINK, 0, _LINK.pack(0, 0, 0, 0, 0) + _text_attribute(_IFLA_IFNAME, name))

    def address(self, index: int, address: str, bits: int) -> None:
        """`ip address add ADDRESS/BITS`, on the link with this index."""
        raw = socket.inet_aton(address)
        body = struct.pack("=BBBBI", socket.AF_INET, bits, 0, _SCOPE_UNIVERSE, index)
        self._request(_NEWADDR, _CREATE | _EXCL, body + _attribute(_IFA_LOCAL, raw) + _attribute(_IFA_ADDRESS, raw))

    def default_route(self, gateway: str) -> None:
        """`ip route add default via GATEWAY`."""
        body = _ROUTE.pack(socket.AF_INET, 0, 0, 0, _TABLE_MAIN, _PROTO_STATIC, _SCOPE_UNIVERSE, _TYPE_UNICAST, 0)
        self._request(_NEWROUTE, _CREATE, body + _attribute(_RTA_GATEWAY, socket.inet_aton(gateway)))

    def local_route(self, network: str, bits: int, index: int) -> None:
        """Add a local route: processes can listen on every address of `network`/`bits`, and packets to them stay
        here."""
        body = _ROUTE.pack(socket.AF_INET, bits, 0, 0, _TABLE_LOCAL, _PROTO_STATIC, _SCOPE_HOST, _TYPE_LOCAL, 0)
        self._request(
            _NEWROUTE,
            _CREATE,
            body + _attribute(_RTA_DST, socket.inet_aton(network)) + _number_attribute(_RTA_OIF, index),
        )

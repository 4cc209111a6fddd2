"""What another user of the machine sends to a port of loopback: random requests, half requests, silent connections.

Run by an interpreter that need not see this checkout: standard library only, and the parameters as JSON in argv. Prints
what came back as JSON: by status code, and what must not be in an answer.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import random
import socket
import ssl
import struct
import sys

ANSWER_SECONDS = 0.3  # the server waits for the rest of what is no whole request
METHODS = ("GET", "GET", "GET", "POST", "POST", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "PRI", "get", "")
HEADERS = (
    "Host: evil.example", "Host: [::1%25x]", "Host:", "Origin: http://evil.example",
    "Content-Type: application/json", "Content-Type: text/plain", "Content-Length: {length}", "Content-Length: -1",
    "Content-Length: 99999999999999", "Transfer-Encoding: chunked", "Transfer-Encoding: gzip, chunked",
    "Content-Encoding: gzip", "Expect: 100-continue", "Authorization: Bearer {token}", "Authorization: Basic e30=",
    "Connection: close", "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: MTIzNDU2Nzg5MDEyMzQ1Ng==", "Sec-WebSocket-Protocol: v1.trainyard.dev, {token}",
    "X-Forwarded-For: 127.0.0.1", "Impersonate-User: system:admin", "X-Long: {long}", "Sec-Fetch-Site: cross-site",
)  # fmt: skip
VALUES = ("[" * 3000, '{"token": "\\ud800"}', '{"token": 1e999}', '{"token":', "null", "[]", '{"token": "{token}"}')


def random_path(generator: random.Random, paths: list[str]) -> str:
    """One of the paths, mostly with something else in it."""
    path = generator.choice(paths)
    for _ in range(generator.choice((0, 0, 0, 1, 2))):
        at = generator.randrange(len(path) + 1)
        path = path[:at] + generator.choice(("..", "%2e%2e/", "%00", "//", "%ff", "?a=b", "\u00e9", "%")) + path[at:]
    query = ("", "", "?points=" + "9" * 5000, "?offset=-" + "9" * 400, "?jobs=" + "a," * 200, "?limit=x&names=%ff")
    return path + generator.choice(query)


def random_request(generator: random.Random, paths: list[str], host: str) -> bytes:
    """A request, or something like one."""
    shape = generator.random()
    if shape < 0.05:
        return generator.randbytes(generator.randrange(200))
    bodies = [value.encode() for value in VALUES]
    body = generator.choice((*bodies, generator.randbytes(generator.randrange(3000)), b""))
    lines = [f"{generator.choice(METHODS)} {random_path(generator, paths)} HTTP/1.1"]
    lines += ["Host: {host}"] * (generator.random() < 0.9) + ["Content-Length: {length}"] * (generator.random() < 0.9)
    lines += generator.sample(HEADERS, generator.choice((0, 0, 1, 1, 2, 4)))
    token = generator.choice(("", "x", "\u00ff", "0" * 43, "a" * 9000))
    values = {"host": host, "length": len(body), "token": token, "long": "y" * generator.choice((10, 70_000))}
    head = "\r\n".join(lines)
    for name, value in values.items():
        head = head.replace("{" + name + "}", str(value))
    request = head.encode("utf-8") + b"\r\n\r\n" + body
    return request[: generator.randrange(len(request))] if shape < 0.15 else request


def random_frame(generator: random.Random) -> bytes:
    """A frame of a WebSocket as a client sends it, with any opcode, and mostly the right mask and length."""
    topics = ("jobs", "progress", "logs:x:*", "job:" + "y" * 3000, "", "\u0000")
    subscription = json.dumps({"subscribe": generator.choices(topics, k=generator.randrange(300))}).encode()
    payload = generator.choice((subscription, b"[" * 60_000, b"\xff\xfe", b"{}", generator.randbytes(120)))
    payload = payload[: 1 << 16]
    first = generator.choice((0x81, 0x81, 0x81, 0x82, 0x01, 0x80, 0x88, 0x89, 0x8A, 0xF1, 0x8F))
    length = generator.choice((len(payload), len(payload), len(payload), 1 << 62))
    masked = generator.choice((0x80, 0x80, 0x80, 0))
    head = bytes([first, masked | 127]) + struct.pack(">Q", length)
    return head + (bytes(4) if masked else b"") + payload  # a mask of zeros leaves the payload as it is


def answer_of(connection: socket.socket) -> bytes:
    """What comes until the connection ends, or says nothing for a moment."""
    received = b""
    with contextlib.suppress(OSError):
        while len(received) < 1 << 20 and (piece := connection.recv(1 << 16)):
            received += piece
            connection.settimeout(0.05)
    return received


class Stranger:
    """Talks to a port. `parameters`: port, host, seed, rounds, paths, tls, words (which no answer may have), and head:
    that of an upgrade to a WebSocket, after which frames are sent."""

    def __init__(self, parameters: dict[str, object]) -> None:
        self.parameters = parameters
        self.generator = random.Random(str(parameters["seed"]))
        self.codes: collections.Counter[str] = collections.Counter()
        self.leaks: list[str] = []
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.check_hostname, self.context.verify_mode = False, ssl.CERT_NONE

    def connect(self) -> socket.socket:
        """A new connection."""
        connection = socket.create_connection(("127.0.0.1", int(str(self.parameters["port"]))), 30)
        if self.parameters.get("tls"):
            connection = self.context.wrap_socket(connection)
        connection.settimeout(30.0 if self.parameters.get("head") else ANSWER_SECONDS)
        return connection

    def send(self, text: bytes) -> None:
        """Send that by a connection of its own, and note what comes back."""
        with contextlib.suppress(OSError), self.connect() as connection:
            with contextlib.suppress(OSError):  # it may have been closed: there may be an answer all the same
                connection.sendall(text)
            self.note(text, answer_of(connection))

    def note(self, sent: bytes, received: bytes) -> None:
        """Count the answer, and keep the request if the answer has what it may not have."""
        code = received[9:12].decode("latin-1") if received.startswith(b"HTTP/1.") else "none"
        self.codes[code] += 1
        words = [str(word) for word in self.parameters.get("words", [])]  # type: ignore[attr-defined]
        is_wrong = code.startswith(("2", "1")) and b"application/json" in received
        if is_wrong or code == "500" or any(word.encode() in received for word in words):
            self.leaks.append(f"{sent[:300]!r} -> {received[:300]!r}")

    def run(self) -> None:
        """All rounds, with silent connections open meanwhile."""
        paths = [str(path) for path in self.parameters["paths"]]  # type: ignore[attr-defined]
        silent: list[socket.socket] = []
        for _ in range(int(str(self.parameters["rounds"]))):
            if head := self.parameters.get("head"):
                frames = b"".join(random_frame(self.generator) for _ in range(self.generator.randrange(1, 6)))
                self.send(str(head).encode() + frames)
                continue
            self.send(random_request(self.generator, paths, str(self.parameters["host"])))
            if len(silent) < 150:
                with contextlib.suppress(OSError):
                    silent.append(self.connect())
        print(json.dumps({"codes": self.codes, "leaks": self.leaks[:5], "uid": os.getuid()}))


if __name__ == "__main__":
    Stranger(json.loads(sys.argv[1])).run()

"""The connections of the client: a server that answers with the bytes of the test, and counts connections."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from trainyard.client import ApiClient, ApiError, Unavailable
from trainyard.client import http as transport
from trainyard.client.connection import MAX_BUFFERED
from trainyard.client.credentials import Identity
from trainyard.client.request import ApiRequest
from trainyard.client.transport import POOL_SIZE, WholeResponse
from trainyard.objects.resources import POD

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


class ByteServer:
    """Answers the requests of all connections with the elements of `answers`, one after the other, and the last of them
    for ever. b"" closes the connection. `requests` are the heads that it received, `bodies` their bodies."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.requests: list[str] = []
        self.bodies: list[bytes] = []
        self.connections: list[asyncio.StreamWriter] = []
        self.received = asyncio.Event()
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = int(head.lower().partition("content-length: ")[2].partition("\r\n")[0] or 0)
                self.requests.append(head)
                self.bodies.append(await reader.readexactly(length))
                self.received.set()
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                writer.write(answer)
                await writer.drain()
                if not answer:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(
    *answers: bytes, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[ByteServer]:
    served = ByteServer(*answers)
    server = await asyncio.start_server(served.serve, host, 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    served.url = f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
    try:
        async with asyncio.timeout(30):
            yield served
    finally:
        server.close()


async def get(api: ApiClient) -> object:
    return await api.get(POD, "n", "p")


async def test_requests_one_after_the_other_use_one_connection() -> None:
    async with serving(OK) as server, ApiClient(server.url) as api:
        for _ in range(3):
            await get(api)
        assert len(server.connections) == 1
        assert server.requests[0].splitlines()[:2] == [
            "GET /api/v1/namespaces/n/pods/p HTTP/1.1",
            f"Host: {server.url.removeprefix('http://')}",
        ]


async def test_requests_at_a_time_use_as_many_connections_as_the_pool_has() -> None:
    async with serving(OK) as server, ApiClient(server.url) as api:
        await asyncio.gather(*(get(api) for _ in range(3 * POOL_SIZE)))
        assert len(server.requests) == 3 * POOL_SIZE
        assert len(server.connections) <= POOL_SIZE


async def test_a_server_that_ends_its_connection_gets_the_next_request_on_another() -> None:
    closing = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    async with serving(closing) as server, ApiClient(server.url) as api:
        assert [await get(api), await get(api)] == [{}, {}]
        assert len(server.connections) == 2


async def test_a_get_on_a_connection_that_the_server_just_closed_is_sent_again() -> None:
    async with serving(OK, b"", OK) as server, ApiClient(server.url) as api:
        assert [await get(api), await get(api)] == [{}, {}]
        assert len(server.requests) == 3 and len(server.connections) == 2


async def test_a_write_on_a_connection_that_the_server_just_closed_is_not_sent_again() -> None:
    async with serving(OK, b"", OK) as server, ApiClient(server.url) as api:
        await get(api)
        with pytest.raises(Unavailable, match="POST /api/v1/namespaces/n/pods: the server closed the connection"):
            await api.create(POD, "n", {"metadata": {"name": "p"}})
        assert len(server.requests) == 2


async def test_a_get_that_fails_on_a_new_connection_is_not_sent_again() -> None:
    async with serving(b"", OK) as server, ApiClient(server.url) as api:
        with pytest.raises(Unavailable, match="the server closed the connection"):
            await get(api)
        assert len(server.requests) == 1


async def test_other_credentials_get_another_connection(certificates: Certificates) -> None:
    first, second = certificates.client_context(), certificates.client_context()
    async with serving(OK, tls=certificates.server_context()) as server:
        carrier = transport.HttpTransport(server.url, {})
        request = ApiRequest("GET", "/api")
        for context in (first, first, second):
            assert (await carrier.fetch(request, Identity("", context), 10, None)).body == b"{}"
        assert len(server.connections) == 2
        await carrier.close()


async def test_an_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "IDLE_TIMEOUT", 0.01)
    async with serving(OK) as server, ApiClient(server.url) as api:
        await get(api)
        await server.connections[0].wait_closed()
        await get(api)
        assert len(server.connections) == 2


async def test_a_body_is_read_by_length_by_chunks_and_until_the_end() -> None:
    chunked = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{"a"\r\n3\r\n:1}\r\n0\r\n\r\n'
    async with serving(OK, chunked, chunked) as server, ApiClient(server.url) as api:
        assert [await get(api), await get(api), await get(api)] == [{}, {"a": 1}, {"a": 1}]
        assert len(server.connections) == 1
    async with serving(b"HTTP/1.1 200 OK\r\n\r\n{}") as server, ApiClient(server.url) as api:
        request = asyncio.create_task(api.request("GET", "/version"))
        await server.received.wait()
        await server.connections[0].drain()
        server.connections[0].close()
        assert await request == b"{}"


async def test_an_interim_response_is_skipped() -> None:
    async with serving(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK) as server, ApiClient(server.url) as api:
        assert [await get(api), await get(api)] == [{}, {}]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "the response is not HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000 + b"\r\n\r\n", "the headers of the response are over 65536 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", "the response is not HTTP/1.1"),
        (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nx",
            "the response is not HTTP/1.1",
        ),
    ],
    ids=["not HTTP", "large headers", "two lengths", "another protocol"],
)
async def test_a_response_that_is_no_response_is_unavailable(answer: bytes, message: str) -> None:
    async with serving(answer) as server, ApiClient(server.url) as api:
        with pytest.raises(Unavailable, match=message):
            await get(api)


@pytest.mark.parametrize("extra", [b"HTTP/1.1 408 Request Timeout\r\n\r\n", b"x", OK], ids=["408", "junk", "response"])
async def test_bytes_after_a_response_do_not_answer_the_next_request(extra: bytes) -> None:
    async with serving(OK + extra, OK) as server, ApiClient(server.url) as api:
        assert [await get(api), await get(api)] == [{}, {}]
        assert len(server.connections) == 2


async def test_a_response_that_does_not_come_ends_at_its_deadline_and_closes_the_connection() -> None:
    """On a kept connection, so that the deadline is over in the response, and never while the client connects."""
    async with serving(OK, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{") as server:
        carrier = transport.HttpTransport(server.url, {})
        request = ApiRequest("GET", "/api")
        await carrier.fetch(request, Identity(), 30, None)
        with pytest.raises(Unavailable, match="GET /api: no response in time") as caught:
            await carrier.fetch(request, Identity(), 0.05, None)
        assert caught.value.reason == "Timeout"
        (connection,) = server.connections
        await connection.wait_closed()
        await carrier.close()


@pytest.mark.parametrize("steps", range(12))
async def test_a_connect_that_is_cancelled_at_any_step_of_the_loop_leaves_no_connection(steps: int) -> None:
    async with serving(OK) as server:
        carrier = transport.HttpTransport(server.url, {})
        fetch = asyncio.create_task(carrier.fetch(ApiRequest("GET", "/api"), Identity(), 30, None))
        for _ in range(steps):
            await asyncio.sleep(0)
        fetch.cancel()
        (error,) = await asyncio.gather(fetch, return_exceptions=True)  # it is kept, and with it what its frames hold
        await carrier.close()
        for connection in server.connections:
            with suppress(ConnectionResetError):
                await connection.wait_closed()
        assert isinstance(error, (asyncio.CancelledError, WholeResponse))


async def test_each_response_ends_at_its_own_deadline() -> None:
    """One timer serves all connections: the deadline of a later request may be an earlier one."""
    async with serving(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{") as server:
        carrier, ended = transport.HttpTransport(server.url, {}), list[float]()

        async def fetch(seconds: float) -> None:
            with pytest.raises(Unavailable, match="no response in time"):
                await carrier.fetch(ApiRequest("GET", "/api"), Identity(), seconds, None)
            ended.append(seconds)

        await asyncio.gather(*map(fetch, (0.3, 0.1, 0.2)))
        assert ended == [0.1, 0.2, 0.3]
        await carrier.close()


async def test_a_cancelled_request_closes_its_connection() -> None:
    async with serving(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{") as server, ApiClient(server.url) as api:
        request = asyncio.create_task(api.get(POD, "n", "p"))
        await server.received.wait()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        await server.connections[0].wait_closed()


async def test_a_stream_that_nobody_reads_is_not_received() -> None:
    line = b"x" * 100_000
    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.transport.set_write_buffer_limits(0)
        try:
            while True:
                writer.write(b"%x\r\n%b\r\n" % (len(line), line))
                await writer.drain()
                sent += len(line)
        except ConnectionError:
            pass

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with asyncio.timeout(30), ApiClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as api:
        stream = api.stream(ApiRequest("GET", "/log"), None)
        received = len(await anext(stream))
        before = -1
        while sent != before:  # until the buffers of both sockets are full
            before = sent
            await asyncio.sleep(0.05)
        assert sent < 20 * MAX_BUFFERED
        much_later = sent + 2 * MAX_BUFFERED
        while received < much_later:  # the reading goes on
            received += len(await anext(stream))
        await stream.aclose()
    server.close()


@pytest.mark.parametrize("target", ["/api/v1\r\nX: y", "/a b", "/caf\u00e9"])
async def test_a_path_that_would_be_more_than_a_path_is_refused(target: str) -> None:
    async with serving(OK) as server, ApiClient(server.url) as api:
        with pytest.raises(ValueError, match="must be percent-encoded"):
            await api.request("GET", target)
        assert server.connections == []


async def test_a_token_with_a_line_break_is_refused_and_not_shown() -> None:
    async with serving(OK) as server, ApiClient(server.url, token="s3cret\nX: y") as api:
        with pytest.raises(ValueError, match="HTTP header Authorization") as caught:
            await get(api)
        assert "s3cret" not in str(caught.value) and server.connections == []


async def test_a_path_in_the_url_of_the_server_comes_before_the_path_of_each_request() -> None:
    async with serving(OK) as server, ApiClient(f"{server.url}/k8s/clusters/c-1/") as api:
        await get(api)
        assert server.requests[0].startswith("GET /k8s/clusters/c-1/api/v1/namespaces/n/pods/p HTTP/1.1")


async def test_ipv6() -> None:
    async with serving(OK, host="::1") as server, ApiClient(server.url) as api:
        await get(api)
        assert "Host: [::1]:" in server.requests[0]


# TLS and proxies


class Certificates:
    """A CA and a certificate of `localhost` and 127.0.0.1, as files in `folder`."""

    def __init__(self, folder: Path) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(1)
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        self.certificate = folder / "certificate.pem"
        self.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        self.key = folder / "key.pem"
        self.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )

    def server_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.certificate, self.key)
        return context

    def client_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.certificate)
        context.check_hostname = False
        return context


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


async def test_the_name_in_the_certificate_is_checked_and_can_be_given(certificates: Certificates) -> None:
    async with serving(OK, tls=certificates.server_context()) as server:
        with pytest.raises(Unavailable, match="the server's certificate is not valid: IP address mismatch"):
            async with ApiClient(server.url, ca=certificates.certificate) as api:
                await get(api)
        with pytest.raises(Unavailable, match="the server's certificate is not valid: self-signed certificate"):
            async with ApiClient(server.url) as api:
                await get(api)
        async with ApiClient(server.url, ca=certificates.certificate, server_name="localhost") as api:
            assert await get(api) == {}


async def test_a_server_without_tls_is_named_as_such(certificates: Certificates) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    api = ApiClient(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}", ca=certificates.certificate)
    with pytest.raises(Unavailable, match="the server answers without TLS"):
        await get(api)
    server.close()


class Proxy:
    """An HTTP proxy: CONNECT, and forwarding of one request per connection. `requests` are the heads that it got."""

    def __init__(self, respond: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n") -> None:
        self.requests: list[str] = []
        self._respond = respond

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.requests.append(head.decode())
        method, target, _ = head.split(b"\r\n")[0].decode().split()
        host, port = target.removeprefix("http://").partition("/")[0].rsplit(":", 1)
        server_reader, server_writer = await asyncio.open_connection(host, int(port))
        if method == "CONNECT":
            writer.write(self._respond)
        else:
            server_writer.write(head)
        await asyncio.gather(copy(reader, server_writer), copy(server_reader, writer))


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
    except ConnectionError:
        pass
    writer.close()


@asynccontextmanager
async def proxying(proxy: Proxy, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


CREDENTIALS = f"Proxy-Authorization: Basic {base64.b64encode(b'me:p@ss').decode()}"


async def test_a_proxy_opens_a_tunnel_for_tls_and_gets_no_token(certificates: Certificates) -> None:
    proxy = Proxy()
    async with serving(OK, tls=certificates.server_context()) as server, proxying(proxy) as port:
        url = f"http://me:p%40ss@127.0.0.1:{port}"
        api = ApiClient(server.url, token="s3cret", ca=certificates.certificate, server_name="localhost", proxy=url)
        async with api:
            assert [await get(api), await get(api)] == [{}, {}]
    (head,) = proxy.requests
    address = server.url.removeprefix("https://")
    assert head.splitlines()[:3] == [f"CONNECT {address} HTTP/1.1", f"Host: {address}", CREDENTIALS]
    assert "s3cret" not in head
    assert "Proxy-Authorization" not in server.requests[0] and "Bearer s3cret" in server.requests[0]


async def test_a_proxy_forwards_plain_http() -> None:
    proxy = Proxy()
    async with serving(OK) as server, proxying(proxy) as port:
        api = ApiClient(server.url, proxy=f"http://me:p%40ss@127.0.0.1:{port}")
        assert await get(api) == {}
        await api.close()
    assert proxy.requests[0].startswith(f"GET {server.url}/api/v1/namespaces/n/pods/p HTTP/1.1\r\n")
    assert CREDENTIALS in proxy.requests[0]


async def test_a_proxy_that_speaks_tls(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainyard.client.connector.system_context", certificates.client_context)
    proxy, tls = Proxy(), certificates.server_context()
    async with serving(OK, tls=tls) as server, proxying(proxy, tls) as port:
        url = f"https://localhost:{port}"
        api = ApiClient(server.url, ca=certificates.certificate, server_name="localhost", proxy=url)
        assert await get(api) == {}
        await api.close()


async def test_a_proxy_that_refuses_is_named(certificates: Certificates) -> None:
    proxy = Proxy(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
    async with serving(OK, tls=certificates.server_context()) as server, proxying(proxy) as port:
        api = ApiClient(server.url, ca=certificates.certificate, proxy=f"http://127.0.0.1:{port}")
        with pytest.raises(Unavailable, match=r"the proxy 127\.0\.0\.1 answered 407 to CONNECT"):
            await get(api)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://127.0.0.1:1", "GET /api/v1/namespaces/n/pods/p: connection refused"),
        ("http://localhost:1", "GET /api/v1/namespaces/n/pods/p: connection refused"),
        ("http://name.invalid", "GET /api/v1/namespaces/n/pods/p: "),
    ],
)
async def test_a_server_that_cannot_be_reached_is_named_by_the_reason(url: str, message: str) -> None:
    async with ApiClient(url) as api:
        with pytest.raises(ApiError) as caught:
            await get(api)
    assert caught.value.message.startswith(message) and "Errno" not in caught.value.message


@pytest.mark.parametrize("cuts", [lambda text: range(len(text)), lambda text: range(0, len(text), 7)], ids=["1", "7"])
async def test_a_response_may_arrive_in_pieces(cuts: Callable[[bytes], Iterable[int]]) -> None:
    text = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{"a"\r\n3\r\n:1}\r\n0\r\n\r\n'

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        starts = [*cuts(text), len(text)]
        for start, end in pairwise(starts):
            writer.write(text[start:end])
            await asyncio.sleep(0)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with ApiClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as api:
        assert await get(api) == {"a": 1}
    server.close()


async def test_a_client_with_a_small_pool_opens_no_further_connection() -> None:
    async with serving(OK) as server, ApiClient(server.url) as api:
        api.pool_size = 2
        await asyncio.gather(*(get(api) for _ in range(12)))
        assert len(server.requests) == 12 and len(server.connections) == 2

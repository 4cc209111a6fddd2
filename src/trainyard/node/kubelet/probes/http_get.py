"""The action `httpGet` of probes and hooks: one GET by HTTP/1.1, with the kubelet's headers.

Rules of the kubelet: of a probe a status from 200 to 399 passes, of a hook any. A redirect to the same host is
followed, ten times at most, one to another host passes a probe with a warning. A certificate is not verified, and no
proxy is used. The body is read, too: a server whose connection breaks while it writes its answer would log an error for
each probe."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from functools import cache
from typing import NamedTuple
from urllib.parse import quote, urljoin, urlsplit

from trainyard.node.kubelet.probes.outcome import (
    HOOK_USER_AGENT,
    PROBE_USER_AGENT,
    ConnectError,
    Dial,
    Outcome,
    Verdict,
    address_of,
    connect,
    reason_of,
)
from trainyard.objects import Json

_MAX_BODY = 10 << 10  # bytes, as in the kubelet
_MAX_REDIRECTS = 10
_HTTP_PORTS = {"http": 80, "https": 443}


class _Answer(NamedTuple):
    status: int
    location: str
    body: str


async def get(action: Json, host: str, port: int, timeout: float, dial: Dial) -> Outcome:
    """Run an `httpGet` against that host and port."""
    urls = [_url(action, host, port)]
    try:
        async with asyncio.timeout(timeout):
            return _outcome(await _answer(urls, _headers(action, PROBE_USER_AGENT), dial))
    except TimeoutError:
        reason = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
    except EOFError:
        reason = "EOF"
    except (ConnectError, OSError, ValueError, asyncio.LimitOverrunError) as error:
        reason = reason_of(error)
    return Outcome(Verdict.FAILED, f'Get "{urls[-1]}": {reason}')


async def is_answered(action: Json, host: str, port: int, dial: Dial) -> bool:
    """Whether the server at that host and port answers the `httpGet` of a hook, with whatever status and however late.
    Where it has no TLS, https is tried by http, too."""
    url, headers = _url(action, host, port), _headers(action, HOOK_USER_AGENT)
    plain = url.replace("https:", "http:", 1)
    for attempt in dict.fromkeys((url, plain)):
        try:
            await _answer([attempt], headers, dial)
        except ssl.SSLError:
            continue
        except (ConnectError, OSError, EOFError, ValueError, asyncio.LimitOverrunError):
            return False
        return True
    return False


async def _answer(urls: list[str], headers: list[tuple[str, str]], dial: Dial) -> _Answer:
    """The last answer, after redirects to the same host, whose URLs are appended to the first one in `urls`. Raises
    ValueError after too many of them, and what `_request` raises."""
    for _ in range(_MAX_REDIRECTS):
        answer = await _request(urls[-1], headers, dial)
        target = urljoin(urls[-1], answer.location) if 300 <= answer.status < 400 and answer.location else ""
        if not target or urlsplit(target).hostname != urlsplit(urls[-1]).hostname:
            return answer
        urls.append(target)
    raise ValueError(f"stopped after {_MAX_REDIRECTS} redirects")


def _url(action: Json, host: str, port: int) -> str:
    scheme = str(action.get("scheme") or "HTTP").lower()
    path = quote(str(action.get("path") or ""), safe="%/:=&?~#+!$,;'@()*[]")
    return f"{scheme}://{address_of(host, port)}{path if path.startswith('/') or not path else f'/{path}'}"


def _headers(action: Json, user_agent: str) -> list[tuple[str, str]]:
    headers = [(str(entry.get("name")), str(entry.get("value") or "")) for entry in action.get("httpHeaders") or ()]
    names = {name.lower() for name, _ in headers}
    headers += [] if "user-agent" in names else [("User-Agent", user_agent)]
    headers += [] if "accept" in names else [("Accept", "*/*")]
    return [(name, value) for name, value in headers if value or name.lower() != "accept"]


@cache
def _unverified_context() -> ssl.SSLContext:
    """A TLS context that does not verify the certificate: the kubelet does not verify those of pods either."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def _request(url: str, headers: list[tuple[str, str]], dial: Dial) -> _Answer:
    parts = urlsplit(url)
    reader, writer = await connect(dial, parts.hostname or "", parts.port or _HTTP_PORTS.get(parts.scheme, 80))
    try:
        if parts.scheme == "https":
            await writer.start_tls(_unverified_context(), server_hostname=parts.hostname)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        host = next((value for name, value in headers if name.lower() == "host"), "") or parts.netloc
        lines = [f"GET {target} HTTP/1.1", f"Host: {host}"]
        lines += [f"{name}: {value}" for name, value in headers if name.lower() != "host"]
        request = "\r\n".join([*lines, "Connection: close", "", ""])
        writer.write(request.encode("utf-8"))
        await writer.drain()
        return await _read_answer(reader)
    finally:
        writer.close()


async def _read_answer(reader: asyncio.StreamReader) -> _Answer:
    status = 100
    while status < 200:  # informational answers come before the final one
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        version, _, rest = head[0].partition(" ")
        if not version.startswith("HTTP/1.") or not rest[:3].isdecimal():
            raise ValueError(f'malformed HTTP response "{head[0][:80]}"')
        status = int(rest[:3])
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
    body = b""
    with contextlib.suppress(OSError, TimeoutError):  # the status has decided
        length = headers.get("content-length", "")
        body = await _read_body(reader, min(int(length), _MAX_BODY) if length.isdecimal() else _MAX_BODY)
    return _Answer(status, headers.get("location", ""), body.decode("utf-8", "replace"))


async def _read_body(reader: asyncio.StreamReader, size: int) -> bytes:
    body = b""
    while len(body) < size and (piece := await reader.read(size - len(body))):
        body += piece
    return body


def _outcome(answer: _Answer) -> Outcome:
    if 300 <= answer.status < 400:
        return Outcome(Verdict.WARNED, f"Probe terminated redirects, Response body: {answer.body}")
    if 200 <= answer.status < 300:
        return Outcome(Verdict.PASSED)
    return Outcome(Verdict.FAILED, f"HTTP probe failed with statuscode: {answer.status}")

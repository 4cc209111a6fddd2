#!/usr/bin/env python3
"""The remote shell of MPI jobs: replaces ssh for mpiexec by the API server's exec, without kubectl.

    kubexec.py [--container NAME] POD COMMAND...          run the command in the container, by default `chainer`, of the pod
    kubexec.py --hostfile TARGET MASTER SLOTS SETS_FILE   wait until every worker runs, then write mpiexec's hostfile

It runs inside the user's image: one file, only the standard library, Python 3.5 or newer.

Rules:
- The arguments of a command are joined with spaces and parsed by /bin/sh in the pod, as by ssh.
- The exit code is that of the command. An error of the connection is reported in one line, with exit code 255, as by
  ssh.
- A command is sent once. A request that was refused before the command started (no such pod yet, a busy API server)
  is retried for TRAINYARD_EXEC_TIMEOUT seconds (300); after a lost response it is never sent again.
- One thread, because a TLS connection cannot be read and written by two. Stdin is read only when its data can be
  sent.
- SIGTERM and SIGINT close the connection; the exit code is 128 plus the number of the signal.
"""

import base64
import hashlib
import http.client
import json
import os
import select
import signal
import socket
import ssl
import struct
import sys
import time
import urllib.parse

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
CONTAINER = "chainer"
HYDRA_HOSTFILE = "hydra-hostfile"
V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"  # only v5 can close stdin
STDIN, STDOUT, STDERR, OUTCOME, END = 0, 1, 2, 3, 255
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
CHUNK = 32 * 1024  # the length of a frame fits into 16 bits
PILE = 256 * 1024  # unsent bytes at which stdin is no longer read
LONGEST = 64 * 1024 * 1024  # the limit of a message
PATIENCE, FORBIDDEN_PATIENCE = 300.0, 10.0  # the API server's authorizer sees a new Role with a delay
ANSWER_SECONDS, LINGER_SECONDS = 30.0, 10.0
PING_SECONDS, SILENCE_SECONDS = 30.0, 120.0


class Fault(Exception):
    """A permanent error. The text is one line for users."""


class Later(Exception):
    """A temporary error: the request can be retried."""

    def __init__(self, why, forbidden=False):
        super().__init__(why)
        self.forbidden = forbidden


class Stopped(BaseException):
    """Raised by SIGTERM and SIGINT."""


def say(text):
    write_all(2, ("kubexec: %s\n" % " ".join(text.split())).encode("utf-8", "backslashreplace"))


def write_all(fd, data):
    """Write all data. If the reader has closed the descriptor, the rest is dropped."""
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:
            select.select([], [fd], [])
        except OSError:
            return


# --- the API server


class Cluster(object):
    """The API server, with the credentials of the pod's ServiceAccount. Token and CA are read for each request: they
    are rotated."""

    def __init__(self, environ, container=CONTAINER):
        self.container = container
        self.host = environ.get("KUBERNETES_SERVICE_HOST", "")
        port = environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not self.host or not port.isdigit():
            raise Fault("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT do not name the API server; run in a pod")
        self.port = int(port)
        self.account = environ.get("TRAINYARD_SERVICEACCOUNT_DIR", ACCOUNT)
        self.namespace = self._read("namespace")

    def _read(self, name):
        try:
            with open(os.path.join(self.account, name), encoding="utf-8") as file:
                return file.read().strip()
        except OSError as error:
            raise Fault("%s; the pod needs its service account: leave automountServiceAccountToken on" % error)

    def context(self):
        try:
            context = ssl.create_default_context(cafile=os.path.join(self.account, "ca.crt"))
        except OSError as error:
            raise Fault("%s/ca.crt: %s; the pod needs the cluster's CA there" % (self.account, error))
        # Python 3.13 refuses some CAs that all other clients accept: use their checks.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context

    def headers(self):
        host = "[%s]" % self.host if ":" in self.host else self.host
        return [("Host", "%s:%d" % (host, self.port)), ("Authorization", "Bearer " + self._read("token"))]

    def path(self, pod):
        quoted = (urllib.parse.quote(self.namespace, safe=""), urllib.parse.quote(os.fsencode(pod), safe=""))
        return "/api/v1/namespaces/%s/pods/%s" % quoted

    def pod(self, name):
        """The pod object. Raises Later."""
        connection = http.client.HTTPSConnection(self.host, self.port, timeout=ANSWER_SECONDS, context=self.context())
        try:
            connection.request("GET", self.path(name), headers=dict(self.headers()))
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise self.unreachable(error)
        finally:
            connection.close()
        if answer.status != 200:
            raise refusal(answer.status, body)
        try:
            return dict(json.loads(body.decode("utf-8")))
        except ValueError:
            raise Later("the API server's answer is no JSON")

    def unreachable(self, error):
        where = "the API server %s:%d" % (self.host, self.port)
        if isinstance(error, ssl.CertificateError) or "CERTIFICATE_VERIFY_FAILED" in str(error):
            return Fault("%s: its certificate is not of the CA in %s/ca.crt: %s" % (where, self.account, error))
        return Later("%s: %s" % (where, error))


def refusal(code, body):
    """The exception for an unexpected response."""
    message = body[:300].decode("utf-8", "replace")
    try:
        message = str(json.loads(body.decode("utf-8"))["message"])
    except (ValueError, KeyError, TypeError):
        pass
    if code in (401, 403):
        allow = "the pod's Role must allow get on this pod, and get and create on its pods/exec"
        return Later("forbidden (%d): %s; %s" % (code, message, allow), forbidden=True)
    if code == 404:
        return Later("there is no such pod (404): %s" % message)
    if code in (408, 409, 425, 429) or code >= 500:
        return Later("the API server cannot now (%d): %s" % (code, message))
    return Fault("the API server refuses (%d): %s" % (code, message))


def why_not_running(pod, container):
    """"" if the container runs, else the reason. Raises Fault if it will never run."""
    status = pod.get("status") or {}
    names = [one.get("name") for one in (pod.get("spec") or {}).get("containers") or []]
    if container not in names:
        raise Fault("it has no container named %s, only %s; rename one" % (container, ", ".join(map(str, names))))
    if (pod.get("metadata") or {}).get("deletionTimestamp"):
        return "it is being deleted"
    for one in status.get("containerStatuses") or []:
        if one.get("name") == container and "running" in (one.get("state") or {}):
            return ""
    return "its container %s does not run yet (phase %s)" % (container, status.get("phase") or "unknown")


def patiently(attempt, what, seconds):
    """The result of `attempt`, retried while it raises Later. Prints the reason of the wait whenever it changes."""
    begin, pause, said = time.monotonic(), 0.1, ""
    while True:
        try:
            return attempt()
        except Fault as error:
            raise Fault("%s: %s" % (what, error))
        except Later as error:
            why, forbidden = str(error), error.forbidden
        left = begin + (min(seconds, FORBIDDEN_PATIENCE) if forbidden else seconds) - time.monotonic()
        if left <= 0 and forbidden:
            raise Fault("%s: %s" % (what, why))
        if left <= 0:
            more = "kubectl describe pod tells more; TRAINYARD_EXEC_TIMEOUT sets another time"
            raise Fault("%s: %s; gave up after %g s; %s" % (what, why, seconds, more))
        if why != said:
            say("waiting for %s: %s" % (what, why))
            said = why
        time.sleep(min(pause, left))
        pause = min(pause * 1.5, 2.0)


# --- WebSocket over TLS (RFC 6455)


class Wire(object):
    """One TLS connection. Only `exchange` blocks."""

    def __init__(self, cluster):
        self.open = True
        self._arrived, self._leaving, self._unsent = ssl.MemoryBIO(), ssl.MemoryBIO(), b""
        self._tls = cluster.context().wrap_bio(self._arrived, self._leaving, server_hostname=cluster.host)
        self._socket = socket.create_connection((cluster.host, cluster.port), ANSWER_SECONDS)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            try:
                self._tls.do_handshake()
                return
            except ssl.SSLWantReadError:
                self._wait(None, deadline - time.monotonic())
            if time.monotonic() > deadline:
                raise OSError("no TLS answer within %g s" % ANSWER_SECONDS)

    def send(self, data):
        try:
            while data:
                data = data[self._tls.write(data) :]
        except ssl.SSLError:  # the peer has closed the connection
            self.open = False

    def exchange(self, stdin=None, seconds=ANSWER_SECONDS):
        """(received bytes, whether stdin is readable). Returns when there is either, or after so many seconds."""
        typed = self._wait(stdin, seconds)
        parts = []
        try:
            while True:
                part = self._tls.read(CHUNK)
                if not part:
                    break
                parts.append(part)
            self.open = False
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            self.open = False
        return b"".join(parts), typed

    def _wait(self, stdin, seconds):
        self._unsent += self._leaving.read()
        readers = [self._socket] if stdin is None or len(self._unsent) > PILE else [self._socket, stdin]
        ready, free, _ = select.select(readers, [self._socket] if self._unsent else [], [], max(0.0, seconds))
        try:
            if free:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent = b""  # the peer reads no more; its last data and the end are handled below
        try:
            if self._socket in ready:
                raw = self._socket.recv(4 * CHUNK)
                if raw:
                    self._arrived.write(raw)
                else:
                    self._arrived.write_eof()
        except BlockingIOError:
            pass
        except OSError:
            self._arrived.write_eof()
        return stdin in ready

    def close(self):
        """Send a close frame if that does not block."""
        try:
            self.send(frame(CLOSE, struct.pack("!H", 1000)))
            self._socket.send(self._unsent + self._leaving.read())
        except OSError:
            pass
        self._socket.close()


def frame(opcode, payload):
    """A whole masked message from the client to the server, at most CHUNK bytes."""
    size, mask = len(payload), os.urandom(4)
    length = struct.pack("!B", 0x80 | size) if size < 126 else struct.pack("!BH", 0x80 | 126, size)
    pad = (mask * (size // 4 + 1))[:size]
    masked = int.from_bytes(payload, "big") ^ int.from_bytes(pad, "big")
    return struct.pack("!B", 0x80 | opcode) + length + mask + masked.to_bytes(size, "big")


class Frames(object):
    """Parses bytes into whole messages: (opcode, payload)."""

    def __init__(self):
        self._raw, self._parts, self._kind = bytearray(), bytearray(), 0

    def feed(self, data):
        self._raw += data
        while True:
            found = self._frame()
            if found is None:
                return
            final, opcode, payload = found
            if opcode >= CLOSE:
                yield opcode, payload
                continue
            if bool(opcode) == bool(self._kind):
                raise Fault("the server breaks the WebSocket protocol: a part without its message")
            self._kind = opcode or self._kind
            self._parts += payload
            if len(self._parts) > LONGEST:
                raise Fault("the server breaks the WebSocket protocol: a message without an end")
            if final:
                opcode, self._kind, message, self._parts = self._kind, 0, bytes(self._parts), bytearray()
                yield opcode, message

    def _frame(self):
        raw = self._raw
        if len(raw) < 2:
            return None
        if raw[0] & 0x70 or raw[1] & 0x80:
            raise Fault("the server breaks the WebSocket protocol: bits that nobody asked for")
        size, start = raw[1], 2
        if size > 125:
            start = 4 if size == 126 else 10
            if len(raw) < start:
                return None
            size = int.from_bytes(raw[2:start], "big")
        if size > LONGEST:
            raise Fault("the server breaks the WebSocket protocol: a frame of %d bytes" % size)
        if len(raw) < start + size:
            return None
        found = raw[0] & 0x80, raw[0] & 0x0F, bytes(raw[start : start + size])
        del raw[: start + size]
        return found


def start(cluster, pod, command):
    """Start the command: (wire, subprotocol, first bytes). Raises Later while the command cannot have started."""
    why = why_not_running(cluster.pod(pod), cluster.container)
    if why:
        raise Later(why)
    words = [("container", cluster.container), ("stdin", "true"), ("stdout", "true"), ("stderr", "true")]
    words += [("command", word) for word in ("/bin/sh", "-c", os.fsencode(command))]
    key = base64.b64encode(os.urandom(16)).decode("ascii")
    wanted = [("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Version", "13")]
    wanted += [("Sec-WebSocket-Key", key), ("Sec-WebSocket-Protocol", "%s, %s" % (V5, V4))]
    lines = ["GET %s/exec?%s HTTP/1.1" % (cluster.path(pod), urllib.parse.urlencode(words))]
    lines += ["%s: %s" % pair for pair in cluster.headers() + wanted]
    try:
        wire = Wire(cluster)
    except (OSError, ValueError) as error:
        raise cluster.unreachable(error)
    wire.send("\r\n".join(lines + ["", ""]).encode("latin-1"))
    code, headers, rest = upgraded(wire)
    if code != 101:
        wire.close()
        raise refusal(code, rest)
    proof = hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode("ascii")).digest()
    protocol = headers.get("sec-websocket-protocol")
    if headers.get("sec-websocket-accept") != base64.b64encode(proof).decode("ascii") or protocol not in (V5, V4):
        raise Fault("the API server answers exec with something else than %s or %s" % (V5, V4))
    return wire, protocol, rest


def upgraded(wire):
    """The status code of the response, its headers, and the bytes after them: the first frames, or the body of an
    error."""
    data, deadline = b"", time.monotonic() + ANSWER_SECONDS
    while True:
        head, end, rest = data.partition(b"\r\n\r\n")
        if end:
            lines = head.decode("latin-1").split("\r\n")
            code = int((lines[0].split() + ["", "0"])[1])
            pairs = [line.partition(":") for line in lines[1:]]
            headers = dict((name.strip().lower(), value.strip()) for name, _, value in pairs)
            if code == 101 or not wire.open or len(rest) >= int(headers.get("content-length") or 0):
                return code, headers, rest
        if not wire.open or time.monotonic() > deadline:
            raise Fault("the connection was lost before the API server answered; the command may have begun")
        data += wire.exchange(None, deadline - time.monotonic())[0]


# --- one command


def converse(wire, protocol, data):
    """Forward data in both directions until the command has ended. Returns its exit code."""
    frames, stdin, outcome = Frames(), 0, None
    heard = pinged = time.monotonic()
    while True:
        for opcode, payload in frames.feed(data):
            if opcode == CLOSE:
                wire.open = False
            elif opcode == PING:
                wire.send(frame(PONG, payload))
            elif opcode in (TEXT, BINARY) and payload:
                if payload[0] in (STDOUT, STDERR):
                    write_all(payload[0], payload[1:])
                elif payload[0] == OUTCOME:
                    outcome, stdin = payload[1:], None
        now = time.monotonic()
        if not wire.open or (outcome is not None and now - heard > LINGER_SECONDS):
            break
        if now - heard > SILENCE_SECONDS:
            raise Fault("the connection is dead: nothing came for %g s; the command may still run" % SILENCE_SECONDS)
        if now - pinged > PING_SECONDS:
            wire.send(frame(PING, b""))
            pinged = now
        data, typed = wire.exchange(stdin, LINGER_SECONDS)
        if data:
            heard = time.monotonic()
        if typed:
            stdin = forward(wire, protocol)
    if outcome is None:
        raise Fault("the connection was lost before the command ended; it may still run")
    return exit_code(outcome)


def forward(wire, protocol):
    """Send the available data of stdin. Returns the descriptor to read from, None at the end of stdin."""
    try:
        chunk = os.read(0, CHUNK)
    except BlockingIOError:
        return 0
    except OSError:
        chunk = b""
    if chunk:
        wire.send(frame(BINARY, bytes([STDIN]) + chunk))
        return 0
    if protocol == V5:
        wire.send(frame(BINARY, bytes([END, STDIN])))
    return None


def exit_code(outcome):
    """The exit code in the Status that ends a session."""
    try:
        status = json.loads(outcome.decode("utf-8"))
        if status.get("status") == "Success":
            return 0
        for cause in (status.get("details") or {}).get("causes") or []:
            if cause.get("reason") == "ExitCode":
                return int(cause["message"]) & 0xFF or 255
        message = str(status.get("message"))
    except (ValueError, KeyError, AttributeError):
        message = outcome[:300].decode("utf-8", "replace")
    raise Fault("the command could not be run: %s" % message)


def run(pod, command, environ, container=CONTAINER):
    if pod == (environ.get("TRAINYARD_POD_NAME") or environ.get("POD_NAME") or socket.gethostname()):
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them; the command would inherit that
            signal.signal(number, signal.SIG_DFL)
        os.execv("/bin/sh", ["/bin/sh", "-c", command])
    on_signals()
    try:
        seconds = float(environ.get("TRAINYARD_EXEC_TIMEOUT") or PATIENCE)
    except ValueError:
        raise Fault("TRAINYARD_EXEC_TIMEOUT=%s; write a number of seconds" % environ["TRAINYARD_EXEC_TIMEOUT"])
    cluster = Cluster(environ, container)
    wire, protocol, data = patiently(lambda: start(cluster, pod, command), "pod " + pod, seconds)
    try:
        return converse(wire, protocol, data)
    except Fault as error:
        raise Fault("pod %s: %s" % (pod, error))
    finally:
        wire.close()


# --- the hostfile


def workers_in(path):
    """[(pod, slots)] of a file with lines `<stateful set> slots=<n> replicas=<n>`, in the order of the lines."""
    workers = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            words = line.split()
            pairs = dict(word.split("=", 1) for word in words[1:] if "=" in word)
            if not words:
                continue
            if not pairs.get("slots", "").isdigit() or not pairs.get("replicas", "").isdigit():
                raise Fault("%s line %d: write <stateful set> slots=<n> replicas=<n>, not %r" % (path, number, line))
            for at in range(int(pairs["replicas"])):
                workers.append(("%s-%d" % (words[0], at), int(pairs["slots"])))
    return workers


def write_hostfile(target, master, slots, sets):
    """Wait for the workers without a timeout (the Job has a deadline), then write the hostfiles of Open MPI and, beside
    it, of hydra (MPICH, Intel MPI). The master is their last line."""
    slots = slots.replace("slots=", "", 1)
    if not slots.isdigit():
        raise Fault("the master's slots are %r; write slots=<n>" % slots)
    on_signals()
    workers = workers_in(sets)
    cluster = Cluster(os.environ) if workers else None
    waits, pause, said = [pod for pod, _ in workers], 0.1, ""
    while waits:
        why = dict((pod, why_missing(cluster, pod)) for pod in waits)
        waits = [pod for pod in waits if why[pod]]
        if not waits:
            break
        now = "; ".join("%s: %s" % (pod, why[pod]) for pod in waits[:3]) + (" ..." if len(waits) > 3 else "")
        if now != said:
            say("%d of %d workers run; waiting for %s" % (len(workers) - len(waits), len(workers), now))
        said = now
        time.sleep(pause)
        pause = min(pause * 1.5, 2.0)
    hosts = workers + [(master, int(slots))]
    hydra = os.path.join(os.path.dirname(target), HYDRA_HOSTFILE)
    for path, line in ((hydra, "%s:%d\n"), (target, "%s slots=%d\n")):
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.writelines(line % pair for pair in hosts)
        os.rename(path + ".new", path)
    say("%s: %d workers and the master" % (target, len(workers)))
    return 0


def why_missing(cluster, name):
    """"" if the pod is Running, else the reason."""
    try:
        pod = cluster.pod(name)
    except Later as error:
        return str(error)
    phase = (pod.get("status") or {}).get("phase") or "unknown"
    if (pod.get("metadata") or {}).get("deletionTimestamp"):
        return "it is being deleted"
    return "" if phase == "Running" else "phase %s" % phase


def on_signals():
    def stop(number, frame):
        raise Stopped(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)


def main(words):
    for fd in (0, 1, 2):  # a closed one would get the descriptor number of the connection
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    try:
        if words[:1] == ["--hostfile"] and len(words) == 5:
            return write_hostfile(*words[1:])
        container = CONTAINER
        if words[:1] == ["--container"] and len(words) > 1:
            container, words = words[1], words[2:]
        if len(words) < 2 or words[0].startswith("-"):
            raise Fault("write kubexec.py POD COMMAND..., or kubexec.py --hostfile TARGET MASTER SLOTS SETS_FILE")
        return run(words[0], " ".join(words[1:]), os.environ, container)
    except (Fault, OSError) as error:
        say(str(error))
        return 255
    except Stopped as stopped:
        return 128 + stopped.args[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

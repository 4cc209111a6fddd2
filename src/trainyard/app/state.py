"""What a local cluster keeps when it is down: all that lies in one folder, for this user alone.

    log/    the API server's log (server/disk.py): jobs, pods, everything
    keys/   the administrator's token, the key that signs those of ServiceAccounts, the port, the certificate of the TLS
            door and whom to trust for it
    node/   the node's: what containers printed, volumes, claims

Rules:
- A kubeconfig that was written once holds for the next life, too: token, port and certificate stay, and so does a
  token that a ServiceAccount was given. Where one of them cannot stay it is said.
- The key of the authority is not kept: nobody signs anything with it later.
- What cannot be read is kept beside, and made anew.
"""

from __future__ import annotations

import json
import secrets
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainyard import kinds
from trainyard.app.folder import private
from trainyard.server import Authority, DiskLog
from trainyard.server.certificates import LIFE, listening, write

RENEWED = LIFE.total_seconds() * 0.9
CHAIN, KEY, TRUSTED, FACTS = "apiserver.crt", "apiserver.key", "ca.crt", "keys.json"


class State:
    """The folder, opened: nobody else has it until `close`. Raises DiskError, OSError."""

    def __init__(self, folder: Path, say: Callable[[str], object]) -> None:
        self._say = say
        for part in (folder, folder / "keys", folder / "node"):
            private(part)
        self.path = folder / "node"
        self._keys = folder / "keys"
        self.log = DiskLog(folder / "log")
        self._facts = self._read()
        self.token = str(self._facts["token"])

    @property
    def key(self) -> bytes:
        """What signs the tokens of ServiceAccounts."""
        return str(self._facts["key"]).encode()

    @property
    def port(self) -> int:
        """Where the TLS door was; 0 when it never was."""
        return int(self._facts.get("port") or 0)

    def close(self, keep: bool = False) -> None:
        """Let it go. All of it stays."""
        self.log.close()

    def certified(self) -> tuple[ssl.SSLContext, str]:
        """What the TLS door listens with, and the authority to trust. By the real clock: others judge it by theirs."""
        now = time.time()
        chain, key, trusted = (self._keys / name for name in (CHAIN, KEY, TRUSTED))
        if 0 <= now - float(self._facts.get("certified") or 0.0) < RENEWED:
            try:
                return listening(chain, key), trusted.read_text("ascii")
            except (OSError, ValueError):  # ssl's errors are OSErrors
                text = f"{self._keys}: the certificate cannot be read, so there is a new one"
                self._say(f"{text}; a kubeconfig written before is no longer good")
        elif self._facts.get("certified"):
            self._say("the certificate is renewed: a kubeconfig written before is no longer good")
        authority = Authority.new(now)
        context = authority.context(self._keys)
        write(trusted, authority.pem.encode())
        self._keep(certified=now)
        return context, authority.pem

    def keep_port(self, port: int) -> None:
        if port != self.port:
            self._keep(port=port)

    def _read(self) -> dict[str, Any]:
        path = self._keys / FACTS
        try:
            found = json.loads(path.read_bytes())
            if not isinstance(found, dict) or not _is_secret(found.get("token")):
                raise ValueError
            int(found.get("port") or 0), float(found.get("certified") or 0.0)
            if "key" not in found:  # written by an older program
                found["key"] = secrets.token_urlsafe(32)
                write(path, json.dumps(found).encode())
            if not _is_secret(found["key"]):
                raise ValueError
            return found
        except FileNotFoundError:
            pass
        except (ValueError, TypeError):
            beside = path.with_name(f"{FACTS}.broken")
            path.replace(beside)
            self._say(f"{path}: is broken; a new token is made, and the old file kept as {beside.name}")
        fresh = {name: secrets.token_urlsafe(32) for name in ("token", "key")}
        write(path, json.dumps(fresh).encode())
        return fresh

    def _keep(self, **facts: Any) -> None:
        self._facts |= facts
        write(self._keys / FACTS, json.dumps(self._facts).encode())


def _is_secret(found: Any) -> bool:
    return isinstance(found, str) and len(found) >= 32


def jobs_in(folder: Path) -> list[str]:
    """The jobs in a state that nobody uses: "TfJob default/mnist". Raises DiskError."""
    log = DiskLog(folder / "log")
    try:
        return [
            f"{kind.gvk.kind} {key.namespace}/{key.name}"
            for kind in kinds.ALL
            for key, _ in log.list(f"{kind.gvk.plural}.{kind.gvk.group}")
        ]
    finally:
        log.close()

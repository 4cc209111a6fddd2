"""What a local cluster keeps when it is down: all that lies in one folder, for this user alone.

    log/    the API server's log (server/disk.py): jobs, pods, everything
    keys/   the administrator's token, the key that signs those of ServiceAccounts, the port, the certificate of the TLS
            door and whom to trust for it
    node/   the node's: what containers printed, volumes, claims

Rules:
- A kubeconfig that was written once holds for the next life, too: token, port and certificate stay, and so does a
  token that a ServiceAccount was given. Where one of them cannot stay it is said.
- The key of the authority is not kept: nobody signs anything with it later.
- What is missing or broken is refused (state_check.py), and stays as it is.
"""

from __future__ import annotations

import secrets
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainyard import kinds
from trainyard.app.folder import private
from trainyard.app.state_check import FACTS, check_state, digest, encoded
from trainyard.server import Authority, DiskLog
from trainyard.server.certificates import LIFE, listening, write

RENEWED = LIFE.total_seconds() * 0.9
CHAIN, KEY, TRUSTED = "apiserver.crt", "apiserver.key", "ca.crt"


class State:
    """The folder, opened: nobody else has it until `close`. Raises DiskError, OSError."""

    def __init__(self, folder: Path, say: Callable[[str], object]) -> None:
        self._say = say
        facts = check_state(folder)
        for part in (folder, folder / "keys", folder / "node"):
            private(part)
        self.path = folder / "node"
        self._keys = folder / "keys"
        # The keys before the log: a log without keys is refused, and a start may be killed between the two.
        self._facts: dict[str, Any] = facts or {}
        if not {"token", "key"} <= self._facts.keys():
            self._keep(**{name: secrets.token_urlsafe(32) for name in ("token", "key") if name not in self._facts})
        self.log = DiskLog(folder / "log")
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
        if self._facts.get("certified"):
            self._keep(certified=0.0, files={})  # a kill before the end leaves no file without its checksum
        authority = Authority.new(now)
        context = authority.context(self._keys)
        write(trusted, authority.pem.encode())
        self._keep(certified=now, files={name: digest(self._keys / name) for name in (CHAIN, KEY, TRUSTED)})
        return context, authority.pem

    def keep_port(self, port: int) -> None:
        if port != self.port:
            self._keep(port=port)

    def _keep(self, **facts: Any) -> None:
        self._facts |= facts
        write(self._keys / FACTS, encoded(self._facts))


def jobs_in(folder: Path) -> list[str]:
    """The jobs in a state that nobody uses: "TfJob default/mnist". Raises DiskError."""
    if not (folder / "log").exists():
        return []
    log = DiskLog(folder / "log")
    try:
        return [
            f"{kind.gvk.kind} {key.namespace}/{key.name}"
            for kind in kinds.ALL
            for key, _ in log.list(f"{kind.gvk.plural}.{kind.gvk.group}")
        ]
    finally:
        log.close()

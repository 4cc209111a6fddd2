"""The persistent state of a local cluster: all files in one folder, mode 0700.

    log/    the API server's log (server/storage/disk.py): jobs, pods, all objects
    keys/   the administrator's token, the key that signs the tokens of ServiceAccounts, the port, the certificate and
            the key of the API server, and the certificate of the authority
    node/   the node's files: container logs, volumes, claims

Rules:
- A kubeconfig stays valid when the cluster is stopped and started: token, port and certificate are kept, and so are the
  tokens of ServiceAccounts. When one of them cannot be kept, that is reported.
- The authority's private key is not kept: it signs nothing later.
- A state with missing or broken files is refused (state_check.py), and left unchanged.
"""

from __future__ import annotations

import secrets
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from trainyard import kinds
from trainyard.app.background.certificate_process import CertificateProcess, read_certificates
from trainyard.app.background.folder import make_private
from trainyard.app.background.state_check import FACTS, check_state, encode_facts, sha256_of
from trainyard.server import DiskLog
from trainyard.server.auth.certificates import VALIDITY, server_context, write_private_file

RENEW_AFTER = VALIDITY.total_seconds() * 0.9  # the age of a certificate, in seconds, at which it is renewed
CHAIN, KEY, CA = "apiserver.crt", "apiserver.key", "ca.crt"


class ClusterState:
    """The opened folder: no other process can open it until `close`. Raises DiskError, OSError."""

    def __init__(self, folder: Path, say: Callable[[str], object], certificates: IO[bytes] | None = None) -> None:
        """`certificates`: the output of a CertificateProcess that runs already."""
        self._say = say
        self._certificates = certificates
        self._saving = threading.Lock()
        facts = check_state(folder)
        for part in (folder, folder / "keys", folder / "node"):
            make_private(part)
        self.path = folder / "node"
        self._keys = folder / "keys"
        # keys.json is written before the log: a log without keys is refused, and a start can be killed in between.
        self._facts: dict[str, Any] = facts or {}
        if not {"token", "key"} <= self._facts.keys():
            self._save(**{name: secrets.token_urlsafe(32) for name in ("token", "key") if name not in self._facts})
        self.log = DiskLog(folder / "log")
        self.token = str(self._facts["token"])

    @property
    def token_signing_key(self) -> bytes:
        """The key that signs the tokens of ServiceAccounts."""
        return str(self._facts["key"]).encode()

    @property
    def port(self) -> int:
        """The last port of the TLS listener; 0 when there was none."""
        return int(self._facts.get("port") or 0)

    def close(self, keep: bool = False) -> None:
        """Close the log, so that another process can open the folder. All files stay, whatever `keep` is."""
        self.log.close()

    def certified(self) -> tuple[ssl.SSLContext, str]:
        """The TLS context of the API server, and the PEM of the authority to trust. Uses the real clock, since clients
        check the validity by theirs. Raises OSError."""
        now = time.time()
        chain, key, ca = (self._keys / name for name in (CHAIN, KEY, CA))
        if 0 <= now - float(self._facts.get("certified") or 0.0) < RENEW_AFTER:
            try:
                return server_context(chain, key), ca.read_text("ascii")
            except (OSError, ValueError):  # ssl.SSLError is an OSError
                text = f"{self._keys}: the certificate cannot be read and was replaced"
                self._say(f"{text}; older copies of the kubeconfig are no longer valid")
        elif self._facts.get("certified"):
            self._say("the certificate is renewed: older copies of the kubeconfig are no longer valid")
        if self._facts.get("certified"):
            # Stored first, so that a kill before the last line leaves no file that differs from its checksum.
            self._save(certified=0.0, files={})
        # In a process of its own: `cryptography` would take 12 MB of this process for as long as the cluster runs.
        if self._certificates is not None:
            context, authority = read_certificates(self._certificates, self._keys)
        else:
            with CertificateProcess() as certificates:
                context, authority = certificates.make_certificates(self._keys)
        write_private_file(ca, authority.encode())
        self._save(certified=now, files={name: sha256_of(self._keys / name) for name in (CHAIN, KEY, CA)})
        return context, authority

    def save_port(self, port: int) -> None:
        """Store the port for the next start."""
        if port != self.port:
            self._save(port=port)

    def _save(self, **facts: Any) -> None:
        """Set these fields, and write keys.json. A thread makes the certificate while the event loop saves the port."""
        with self._saving:
            self._facts |= facts
            write_private_file(self._keys / FACTS, encode_facts(self._facts))


def jobs_in(folder: Path) -> list[str]:
    """The jobs in a state that no process has open, as "TfJob default/mnist". Raises DiskError."""
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

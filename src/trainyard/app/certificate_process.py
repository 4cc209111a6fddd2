"""The certificates of a cluster without a state folder, made by a child process.

Importing `cryptography` takes a fifth of the start of `trainyard run`; the rest of the cluster starts meanwhile on
another core. The authority's key exists only in the child process.
"""

from __future__ import annotations

import ssl
import subprocess
import sys
from pathlib import Path
from types import TracebackType

import msgspec

PROGRAM = Path(__file__).parents[1] / "server" / "auth" / "certificates.py"


class CertificateProcess:
    """Starts at once. Use `with`: a process whose certificates were not taken is killed."""

    def __init__(self) -> None:
        # -P: the folder of the program has a module `http`, which would hide that of the standard library.
        argv = [sys.executable, "-P", str(PROGRAM)]
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # SIGINT of Ctrl-C must reach only `trainyard run`
        )

    def __enter__(self) -> CertificateProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()  # the pipes stay open: a thread in `certified` may still read them, and closes them

    def make_certificates(self, folder: Path) -> tuple[ssl.SSLContext, str]:
        """The TLS context of the API server, its files in `folder`, and the PEM of the authority to trust. Raises
        OSError."""
        from trainyard.server.auth.certificates import Certificate, ClusterCredentials, server_context

        output, errors = self._process.communicate()
        if self._process.returncode:
            last_line = errors.decode(errors="replace").strip().rpartition("\n")[2]
            raise OSError(f"no certificate can be made: {last_line or f'exit code {self._process.returncode}'}")
        certificates = msgspec.json.decode(output, type=ClusterCredentials)
        return server_context(
            *Certificate(certificates.chain, certificates.key).write(folder / "apiserver")
        ), certificates.authority

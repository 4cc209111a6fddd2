"""The certificates of a new cluster, made by a child process.

Importing `cryptography` takes a fifth of the start of `trainyard run`, and 12 MB; the rest of the cluster starts
meanwhile on another core. The authority's key exists only in the child process.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, cast

if TYPE_CHECKING:
    import ssl  # `trainyard up` starts this process, and imports neither `ssl` nor `msgspec`

PROGRAM = Path(__file__).parents[2] / "server" / "auth" / "certificates.py"


class CertificateProcess:
    """Starts at once. Use `with`: a process whose certificates were not taken is killed."""

    def __init__(self) -> None:
        # -P: the folder of the program has a module `http`, which would hide that of the standard library.
        argv = [sys.executable, "-P", str(PROGRAM)]
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # SIGINT of Ctrl-C must reach only `trainyard run`
        )
        self.output = cast("IO[bytes]", self._process.stdout)
        """The pipe for `read_certificates`."""

    def __enter__(self) -> CertificateProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()  # the pipe stays open: a thread in `read_certificates` may still read it, and closes it

    def make_certificates(self, folder: Path) -> tuple[ssl.SSLContext, str]:
        """As `read_certificates`."""
        return read_certificates(self.output, folder)


def read_certificates(output: IO[bytes], folder: Path) -> tuple[ssl.SSLContext, str]:
    """Read and close the output of a CertificateProcess, of this process or of `trainyard up`. Returns the TLS context
    of the API server, its files in `folder`, and the PEM of the authority to trust. Raises OSError."""
    import msgspec

    from trainyard.server.auth.certificates import Certificate, ClusterCredentials, server_context

    with output:
        last_line = output.read().strip().rpartition(b"\n")[2]  # warnings of a library may be before it
    try:
        certificates = msgspec.json.decode(last_line, type=ClusterCredentials)
    except msgspec.DecodeError:
        reason = last_line.decode(errors="replace") or "its process was ended"
        raise OSError(f"no certificate can be made: {reason}") from None
    paths = Certificate(certificates.chain, certificates.key).write(folder / "apiserver")
    return server_context(*paths), certificates.authority

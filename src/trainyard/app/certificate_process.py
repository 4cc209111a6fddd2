"""The certificates of a cluster that lasts as long as its process, made by a process of their own.

To load `cryptography` takes a fifth of the time in which `trainyard run` starts; meanwhile the rest of the cluster
starts on another core. The authority's key ends with that process.
"""

from __future__ import annotations

import ssl
import subprocess
import sys
from pathlib import Path
from types import TracebackType

import msgspec

PROGRAM = Path(__file__).parents[1] / "server" / "certificates.py"


class CertificateProcess:
    """Begins to work at once. Use `with`: a process whose certificates nobody asked for is killed."""

    def __init__(self) -> None:
        # -P: beside the program stands a module `http`, which is not Python's.
        argv = [sys.executable, "-P", str(PROGRAM)]
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in a terminal is for the runner alone
        )

    def __enter__(self) -> CertificateProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()  # a thread in `certified` may still read the pipes: it closes them

    def certified(self, folder: Path) -> tuple[ssl.SSLContext, str]:
        """What the TLS door listens with, its files in `folder`, and the authority to trust (PEM). Raises OSError."""
        from trainyard.server.certificates import Certificate, Made, listening

        answer, errors = self._process.communicate()
        if self._process.returncode:
            last = errors.decode(errors="replace").strip().rpartition("\n")[2]
            raise OSError(f"no certificate can be made: {last or f'exit code {self._process.returncode}'}")
        made = msgspec.json.decode(answer, type=Made)
        return listening(*Certificate(made.chain, made.key).write(folder / "apiserver")), made.authority

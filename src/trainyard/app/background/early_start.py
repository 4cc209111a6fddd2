"""The parts of a cluster that `trainyard run` starts before it imports the rest of the program: the private folder, the
process that makes the certificates, and the supervisor of the node. They start on another core meanwhile."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType

from trainyard.app.background.certificate_process import CertificateProcess
from trainyard.app.background.folder import PrivateFolder
from trainyard.node.sandbox.supervisor_process import start_supervisor


class EarlyStart:
    """Use `with`: the processes are ended, and the folder is removed if no cluster has taken it. `network` is auto,
    namespace or shared."""

    def __init__(self, network: str) -> None:
        """Raises OSError when the folder cannot be made, or a process cannot be started."""
        with ExitStack() as stack:
            self._folder: PrivateFolder | None = PrivateFolder()
            stack.callback(self._close_folder)
            # The supervisor goes first: the first pod waits for it, and only the TLS listener for the certificates.
            self.supervisor = start_supervisor(network, self._folder.path)
            stack.callback(self.supervisor.close)
            self.certified = stack.enter_context(CertificateProcess()).make_certificates
            self._stack = stack.pop_all()

    def __enter__(self) -> EarlyStart:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def take_folder(self) -> PrivateFolder:
        """The folder; the caller closes it."""
        folder, self._folder = self._folder, None
        return folder or PrivateFolder()

    def _close_folder(self) -> None:
        if self._folder is not None:
            self._folder.close()

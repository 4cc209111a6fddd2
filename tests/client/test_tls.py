"""What clients check of a server's certificate, under every Python: no less than kubectl, and no more."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

import trainyard
from tests.kinds.exec_server import AGENT
from tests.support.interpreters import every_python
from tests.support.repository import ROOT
from trainyard.client import tls
from trainyard.server.auth.certificates import private_key_pem, server_context

SOURCES = Path(trainyard.__file__).parent
CHART = ROOT / "charts" / "trainyard"
HELM_TEST = CHART / "files" / "train.py"
DAY = timedelta(days=1)

# Prints for each (host name, port) how the handshake ends: "" or the text of the error.
HANDSHAKES = """
import importlib.util, json, socket, ssl, sys
spec = importlib.util.spec_from_file_location("module", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
folder, servers = sys.argv[2], json.loads(sys.argv[3])
if hasattr(module, "tls_context"):
    context = module.tls_context(open(folder + "/ca.crt", "rb").read())
else:
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "TRAINYARD_SERVICEACCOUNT_DIR": folder}
    context = module.Cluster(environment).context()
for name, port in servers:
    try:
        context.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname=name).close()
        print("")
    except ssl.SSLError as error:
        print(error)
"""


class OldAuthority:
    """A CA as tools of 2018 made it: no keyUsage, and its certificates have no authorityKeyIdentifier."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kubernetes")])
        builder = self._builder(self.name, self.key, datetime.now(UTC) + DAY)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.pem = builder.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM)

    def write_certificate(self, path: Path, until: datetime) -> tuple[Path, Path]:
        """A certificate of the host `localhost`: the paths of its PEM file and of that of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "apiserver")])
        names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
        builder = self._builder(subject, key, until).add_extension(names, critical=False)
        chain, key_path = path.with_suffix(".crt"), path.with_suffix(".key")
        chain.write_bytes(builder.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM))
        key_path.write_bytes(private_key_pem(key))
        return chain, key_path

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, until: datetime) -> x509.CertificateBuilder:
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self.name).public_key(key.public_key())
        builder = builder.serial_number(x509.random_serial_number())
        return builder.not_valid_before(datetime.now(UTC) - 2 * DAY).not_valid_after(until)


@contextmanager
def shaking_hands(context: ssl.SSLContext) -> Iterator[int]:
    """The port of a server that does TLS handshakes and nothing else."""

    def serve() -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                client, _ = listener.accept()
                with client, suppress(OSError):  # the client refuses the certificate
                    context.wrap_socket(client, server_side=True).close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("client", [Path(tls.__file__), AGENT, HELM_TEST], ids=lambda path: path.name)
@pytest.mark.parametrize("python", every_python("3.11"))
def test_an_old_ca_is_trusted_and_chain_name_and_validity_are_checked(
    python: str, client: Path, tmp_path: Path
) -> None:
    authority = OldAuthority()
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    (tmp_path / "namespace").write_text("default")
    tomorrow, yesterday = datetime.now(UTC) + DAY, datetime.now(UTC) - DAY
    good = server_context(*authority.write_certificate(tmp_path / "good", tomorrow))
    expired = server_context(*authority.write_certificate(tmp_path / "expired", yesterday))
    foreign = server_context(*OldAuthority().write_certificate(tmp_path / "foreign", tomorrow))
    with shaking_hands(good) as port, shaking_hands(expired) as expired_port, shaking_hands(foreign) as foreign_port:
        servers = [("localhost", port), ("other", port), ("localhost", expired_port), ("localhost", foreign_port)]
        arguments = [python, "-c", HANDSHAKES, str(client), str(tmp_path), json.dumps(servers)]
        variables = {**os.environ, "JOB": "job", "MY_POD_NAMESPACE": "default"}  # train.py reads them at once
        done = subprocess.run(arguments, env=variables, capture_output=True, text=True, check=True)
    trusted, other_name, expiry, foreign_ca = done.stdout.splitlines()
    assert not trusted
    assert "Hostname mismatch" in other_name and "has expired" in expiry and "CERTIFICATE_VERIFY_FAILED" in foreign_ca


def test_no_client_makes_a_tls_context_of_its_own() -> None:
    """`ssl.create_default_context` has other checks under each version of Python. The others are alone in a pod."""
    programs = [*SOURCES.rglob("*.py"), *CHART.rglob("*.py")]
    callers = {path.name for path in programs if "create_default_context(" in path.read_text(encoding="utf-8")}
    assert callers == {"tls.py", "kubexec.py", "train.py"}

"""The certificate authority (CA) of a cluster: it signs the serving certificates and the client certificates.

Rules for this file:
- The CA key never leaves this process. A serving key is written to a file of mode 0600, because `ssl` reads files only.
- `cryptography` is slow to import, so it is imported when the first certificate is made.
- This file is also a program that writes a `ClusterCredentials` as JSON; so it imports no other module of this project.
- Other processes check the validity times of certificates against their own clocks: pass the real time, not a test's.
"""

from __future__ import annotations

import ipaddress
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import ssl

    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
ADDRESSES = ("127.0.0.1", "::1", "10.96.0.1")
"""Names and addresses of the API server: on its host, and in pods those of the Service `kubernetes`."""

CLOCK_SKEW = timedelta(hours=1)  # so that clients whose clocks are slow accept it
VALIDITY = timedelta(days=365)


class ClusterCredentials(msgspec.Struct, frozen=True):
    """Credentials of a new cluster, PEM: the CA certificate, and the serving certificate and key of its API server."""

    authority: str
    chain: bytes
    key: bytes


class CertificateAuthority(msgspec.Struct, frozen=True):
    """A CA with an EC P-256 key. `pem` is its certificate, for the trust store of clients."""

    pem: str
    _certificate: x509.Certificate
    _key: EllipticCurvePrivateKey

    @staticmethod
    def new(now: float) -> CertificateAuthority:
        """A new key and self-signed certificate, valid from `now` (Unix seconds)."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("trainyard-ca")
        certificate = (
            _builder(name, name, key.public_key(), datetime.fromtimestamp(now, UTC) - CLOCK_SKEW)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(is_ca=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        return CertificateAuthority(certificate.public_bytes(serialization.Encoding.PEM).decode(), certificate, key)

    def server_context(
        self, folder: Path, names: Sequence[str] = NAMES, addresses: Sequence[str] = ADDRESSES
    ) -> ssl.SSLContext:
        """The TLS context of an API server with these names and addresses. Certificate and key are written to
        `folder`."""
        return server_context(*self.apiserver_certificate(names, addresses).write(folder / "apiserver"))

    def apiserver_certificate(self, names: Sequence[str] = NAMES, addresses: Sequence[str] = ADDRESSES) -> Certificate:
        """A serving certificate for the host names and IP addresses of the API server."""
        return self.server_certificate("trainyard-apiserver", names, addresses)

    def server_certificate(
        self, common: str, names: Sequence[str] = NAMES, addresses: Sequence[str] = ADDRESSES
    ) -> Certificate:
        """A serving certificate for these DNS names and IP addresses. `common` is its common name."""
        from cryptography import x509

        alternative_names: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
        alternative_names += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        return self._issue(
            _name(common), x509.oid.ExtendedKeyUsageOID.SERVER_AUTH, x509.SubjectAlternativeName(alternative_names)
        )

    def client_certificate(self, user: str, *groups: str) -> Certificate:
        """A client certificate for a user of the API: the common name is the user, the organisations are the groups."""
        from cryptography import x509

        return self._issue(_name(user, *groups), x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH)

    def _issue(
        self, subject: x509.Name, purpose: x509.ObjectIdentifier, *extensions: x509.ExtensionType
    ) -> Certificate:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self._certificate
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key())  # type: ignore[arg-type]  # EC
        builder = _builder(subject, issuer.subject, key.public_key(), issuer.not_valid_before_utc)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(is_ca=False), critical=True)
        for extension in (x509.ExtendedKeyUsage([purpose]), *extensions, identifier):
            builder = builder.add_extension(extension, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return Certificate(certificate.public_bytes(serialization.Encoding.PEM), private_key_pem(key))


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its key, both PEM."""

    chain: bytes
    key: bytes = field(repr=False)

    def write(self, path: Path) -> tuple[Path, Path]:
        """Write PATH.crt and PATH.key; return the two paths. Raises OSError."""
        chain, key = path.with_suffix(".crt"), path.with_suffix(".key")
        write_private_file(chain, self.chain)
        write_private_file(key, self.key)
        return chain, key


def server_context(chain: Path, key: Path) -> ssl.SSLContext:
    """The TLS context of a server with this certificate and key. Raises OSError."""
    import ssl  # the process that makes the certificates does not need it

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(chain, key)
    return context


def private_key_pem(key: EllipticCurvePrivateKey) -> bytes:
    """The key as PEM (PKCS#8, not encrypted)."""
    from cryptography.hazmat.primitives import serialization

    pkcs8 = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, pkcs8, serialization.NoEncryption())


def _name(common: str, *organisations: str) -> x509.Name:
    from cryptography import x509

    parts = [x509.NameAttribute(x509.oid.NameOID.ORGANIZATION_NAME, organisation) for organisation in organisations]
    return x509.Name([*parts, x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, common)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePublicKey, start: datetime
) -> x509.CertificateBuilder:
    from cryptography import x509

    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(start).not_valid_after(start + VALIDITY)
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


def _usage(is_ca: bool) -> x509.KeyUsage:
    """The key usage extension: a CA may only sign certificates and CRLs, other keys only handshakes."""
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not is_ca,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def write_private_file(path: Path, content: bytes) -> None:
    """Write a file of mode 0600, replacing an existing one atomically. Raises OSError."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)  # the mode only applies when the file is created
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(content)
    temporary.replace(path)


if __name__ == "__main__":
    authority = CertificateAuthority.new(time.time())
    server = authority.apiserver_certificate()
    sys.stdout.buffer.write(msgspec.json.encode(ClusterCredentials(authority.pem, server.chain, server.key)))

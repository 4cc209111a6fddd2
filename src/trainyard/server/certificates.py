"""A certificate authority for one cluster: it signs certificates of servers and of clients, and all of them trust it.

Rules for this file:
- The authority's key never leaves this process. A server's key is a file of mode 0600: `ssl` reads files only.
- `cryptography` takes a while to load, so nobody does before a certificate is needed.
- This file is a program, too: it writes a `Made` as JSON. So it imports nothing of ours.
- The times in certificates are judged by the clocks of others: give the real time, not a test's.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
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
"""What an API server is called: on its machine, and in pods by the Service `kubernetes`."""

EARLIER = timedelta(hours=1)  # clocks that are a little behind take it, too
LIFE = timedelta(days=365)


class Made(msgspec.Struct, frozen=True):
    """What a new cluster needs: the authority that its clients trust, and the certificate and key of its API server."""

    authority: str
    chain: bytes
    key: bytes


class Authority(msgspec.Struct, frozen=True):
    """An EC P-256 authority. `pem` is its certificate, for whoever is to trust it."""

    pem: str
    _certificate: x509.Certificate
    _key: EllipticCurvePrivateKey

    @staticmethod
    def new(now: float) -> Authority:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("trainyard-ca")
        made = (
            _begun(name, name, key.public_key(), datetime.fromtimestamp(now, UTC) - EARLIER)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        return Authority(made.public_bytes(serialization.Encoding.PEM).decode(), made, key)

    def context(
        self, folder: Path, names: Sequence[str] = NAMES, addresses: Sequence[str] = ADDRESSES
    ) -> ssl.SSLContext:
        """What a server with these names and addresses listens with. Its certificate and key are files in `folder`."""
        return listening(*self.apiserver(names, addresses).write(folder / "apiserver"))

    def apiserver(self, names: Sequence[str] = NAMES, addresses: Sequence[str] = ADDRESSES) -> Certificate:
        return self.server("trainyard-apiserver", names, addresses)

    def server(self, common: str, names: Sequence[str] = NAMES, addresses: Sequence[str] = ADDRESSES) -> Certificate:
        """For what listens under these names and addresses."""
        from cryptography import x509

        called: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
        called += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        return self._issue(_name(common), x509.oid.ExtendedKeyUsageOID.SERVER_AUTH, x509.SubjectAlternativeName(called))

    def client(self, user: str, *groups: str) -> Certificate:
        """For a user of the API: the common name is the user, organisations are the groups."""
        from cryptography import x509

        return self._issue(_name(user, *groups), x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH)

    def _issue(self, subject: x509.Name, purpose: x509.ObjectIdentifier, *more: x509.ExtensionType) -> Certificate:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self._certificate
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key())  # type: ignore[arg-type]  # EC
        builder = _begun(subject, issuer.subject, key.public_key(), issuer.not_valid_before_utc)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs=False), critical=True)
        for extension in (x509.ExtendedKeyUsage([purpose]), *more, identifier):
            builder = builder.add_extension(extension, critical=False)
        made = builder.sign(self._key, hashes.SHA256())
        return Certificate(made.public_bytes(serialization.Encoding.PEM), private(key))


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its key, both PEM."""

    chain: bytes
    key: bytes = field(repr=False)

    def write(self, path: Path) -> tuple[Path, Path]:
        """Make the files PATH.crt and PATH.key."""
        chain, key = path.with_suffix(".crt"), path.with_suffix(".key")
        write(chain, self.chain)
        write(key, self.key)
        return chain, key


def listening(chain: Path, key: Path) -> ssl.SSLContext:
    """What a server listens with that has this certificate and key. Raises OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(chain, key)
    return context


def private(key: EllipticCurvePrivateKey) -> bytes:
    """The key as PEM."""
    from cryptography.hazmat.primitives import serialization

    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _name(common: str, *organisations: str) -> x509.Name:
    from cryptography import x509

    parts = [x509.NameAttribute(x509.oid.NameOID.ORGANIZATION_NAME, one) for one in organisations]
    return x509.Name([*parts, x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, common)])


def _begun(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePublicKey, start: datetime
) -> x509.CertificateBuilder:
    from cryptography import x509

    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(start).not_valid_after(start + LIFE)
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


def _usage(signs: bool) -> x509.KeyUsage:
    """An authority signs certificates and nothing else; a server signs handshakes and nothing else."""
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def write(path: Path, content: bytes) -> None:
    """A new file for this user alone, which takes the place of an old one at once."""
    early = path.with_name(f".{path.name}.new")
    early.unlink(missing_ok=True)  # a mode is only obeyed when the file is made
    with os.fdopen(os.open(early, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(content)
    early.replace(path)


if __name__ == "__main__":
    authority = Authority.new(time.time())
    server = authority.apiserver()
    sys.stdout.buffer.write(msgspec.json.encode(Made(authority.pem, server.chain, server.key)))

"""Who is who on a control plane for tests: an authority, certificates, tokens, and a kubeconfig with all of them.

Rules:
- Every file is 0600 in a folder of 0700, and gone with the cluster.
- `admin` may everything. The others may nothing until a test gives them a role: `alice` and `bob` have tokens, `carol`
  a client certificate.
- The controllers ask under names of their own, so that the audit log tells them from an operator.
"""

from __future__ import annotations

import base64
import ipaddress
import os
import secrets
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from trainyard.objects import Json

ALL_RIGHTS = "system:masters"
ADMIN, CERTIFIED = "admin", "carol"
TOKENS: Mapping[str, tuple[str, ...]] = {
    ADMIN: (ALL_RIGHTS,),
    "alice": (),
    "bob": (),
    "system:kube-controller-manager": (ALL_RIGHTS,),
    "system:kube-scheduler": (ALL_RIGHTS,),
    "kwok": (ALL_RIGHTS,),
}
"""Users with a token, and their groups."""

ADDRESSES = ("127.0.0.1", "::1", "10.0.0.1")
NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
EARLIER, LIFE = timedelta(hours=1), timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its key, both PEM."""

    chain: bytes
    key: bytes

    def write(self, path: Path) -> None:
        """PATH.crt and PATH.key."""
        write(path.with_suffix(".crt"), self.chain)
        write(path.with_suffix(".key"), self.key)


class Authority:
    """A certificate authority (EC P-256) that nobody knows but this cluster."""

    def __init__(self, name: str = "trainyard-control-plane") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        self._certificate = (
            _begun(self._name, self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.pem = self._certificate.public_bytes(serialization.Encoding.PEM)

    def server(self, name: str) -> Certificate:
        """For what listens on loopback."""
        called: list[x509.GeneralName] = [x509.DNSName(each) for each in NAMES]
        called += [x509.IPAddress(ipaddress.ip_address(each)) for each in ADDRESSES]
        return self._issue(_name(name), ExtendedKeyUsageOID.SERVER_AUTH, x509.SubjectAlternativeName(called))

    def client(self, user: str, *groups: str) -> Certificate:
        """For a user of the API: the common name is the user, organisations are the groups."""
        return self._issue(_name(user, *groups), ExtendedKeyUsageOID.CLIENT_AUTH)

    def _issue(
        self, subject: x509.Name, purpose: x509.ObjectIdentifier, *more: x509.SubjectAlternativeName
    ) -> Certificate:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _begun(subject, self._name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        for extension in more:
            builder = builder.add_extension(extension, critical=False)
        made = builder.sign(self._key, hashes.SHA256())
        return Certificate(made.public_bytes(serialization.Encoding.PEM), _private(key))


@dataclass(frozen=True, slots=True)
class Identities:
    """Everybody's credentials, and the files the control plane reads them from."""

    folder: Path
    ca: bytes
    tokens: Mapping[str, str]
    certificate: Certificate

    @staticmethod
    def new(folder: Path) -> Identities:
        """Make all of them, and write ca.crt, apiserver.*, accounts.* (of ServiceAccounts) and tokens.csv."""
        folder.mkdir(mode=0o700)
        authority = Authority()
        accounts = ec.generate_private_key(ec.SECP256R1())
        tokens = {user: secrets.token_urlsafe(32) for user in TOKENS}
        write(folder / "ca.crt", authority.pem)
        authority.server("kube-apiserver").write(folder / "apiserver")
        authority.client("kube-apiserver-kubelet-client").write(folder / "kubelet-client")
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        write(folder / "accounts.pub", accounts.public_key().public_bytes(serialization.Encoding.PEM, form))
        write(folder / "accounts.key", _private(accounts))
        rows = (f'{tokens[user]},{user},{user},"{",".join(groups)}"\n' for user, groups in TOKENS.items())
        write(folder / "tokens.csv", "".join(rows).encode())
        carol = authority.client(CERTIFIED, "researchers")
        carol.write(folder / CERTIFIED)
        return Identities(folder, authority.pem, tokens, carol)

    def kubeconfig(self, url: str, user: str = ADMIN) -> bytes:
        """One cluster, every user, and a context for each; `user`'s is the current one."""
        users: dict[str, Json] = {name: {"token": token} for name, token in self.tokens.items()}
        chain, key = _text(self.certificate.chain), _text(self.certificate.key)
        users[CERTIFIED] = {"client-certificate-data": chain, "client-key-data": key}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {"server": url, "certificate-authority-data": _text(self.ca)}}],
            "users": [{"name": name, "user": one} for name, one in users.items()],
            "contexts": [{"name": name, "context": {"cluster": "test", "user": name}} for name in users],
            "current-context": user,
        }
        return yaml.safe_dump(config, sort_keys=False).encode()

    def secure(self, user: str = "") -> ssl.SSLContext:
        """What a client trusts, and shows when it is the one with a certificate."""
        context = ssl.create_default_context(cadata=self.ca.decode())
        if user == CERTIFIED:
            context.load_cert_chain(self.folder / f"{CERTIFIED}.crt", self.folder / f"{CERTIFIED}.key")
        return context


def write(path: Path, content: bytes) -> None:
    """A new file for this user alone, which takes the place of an old one at once."""
    early = path.with_name(f".{path.name}.new")
    early.unlink(missing_ok=True)  # a mode is only obeyed when the file is made
    with os.fdopen(os.open(early, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(content)
    early.replace(path)


def _text(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _name(common: str, *organisations: str) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, one) for one in organisations]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _begun(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    start = datetime.now(UTC) - EARLIER
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(start).not_valid_after(start + LIFE)
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


def _usage(signs: bool) -> x509.KeyUsage:
    """An authority signs certificates and nothing else; the others sign handshakes and nothing else."""
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

"""Who is who on a control plane for tests: an authority, certificates, tokens, and a kubeconfig with all of them.

Rules:
- Every file is 0600 in a folder of 0700, and gone with the cluster.
- `admin` may everything. The others may nothing until a test gives them a role: `alice` and `bob` have tokens, `carol`
  a client certificate.
- The controllers ask under names of their own, so that the audit log tells them from an operator.
"""

from __future__ import annotations

import base64
import secrets
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from trainyard.objects import Json
from trainyard.server.auth.certificates import Certificate, CertificateAuthority, private_key_pem, write_private_file

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


@dataclass(frozen=True, slots=True)
class Identities:
    """Everybody's credentials, and the files the control plane reads them from."""

    folder: Path
    ca: bytes
    tokens: Mapping[str, str]
    certificate: Certificate

    @staticmethod
    def new(folder: Path, users: Mapping[str, tuple[str, ...]] = TOKENS) -> Identities:
        """Make all of them, and write ca.crt, apiserver.*, accounts.* (of ServiceAccounts) and tokens.csv."""
        folder.mkdir(mode=0o700)
        authority = CertificateAuthority.new(time.time())
        accounts = ec.generate_private_key(ec.SECP256R1())
        tokens = {user: secrets.token_urlsafe(32) for user in users}
        write_private_file(folder / "ca.crt", authority.pem.encode())
        authority.server_certificate("kube-apiserver", addresses=ADDRESSES).write(folder / "apiserver")
        authority.client_certificate("kube-apiserver-kubelet-client").write(folder / "kubelet-client")
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        write_private_file(
            folder / "accounts.pub", accounts.public_key().public_bytes(serialization.Encoding.PEM, form)
        )
        write_private_file(folder / "accounts.key", private_key_pem(accounts))
        rows = (f'{tokens[user]},{user},{user},"{",".join(groups)}"\n' for user, groups in users.items())
        write_private_file(folder / "tokens.csv", "".join(rows).encode())
        carol = authority.client_certificate(CERTIFIED, "researchers")
        carol.write(folder / CERTIFIED)
        return Identities(folder, authority.pem.encode(), tokens, carol)

    def kubeconfig(self, url: str, user: str = ADMIN) -> bytes:
        """One cluster, every user, and a context for each; `user`'s is the current one."""
        users: dict[str, Json] = {name: {"token": token} for name, token in self.tokens.items()}
        chain, key = _text(self.certificate.chain), _text(self.certificate.key)
        users[CERTIFIED] = {"client-certificate-data": chain, "client-key-data": key}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {"server": url, "certificate-authority-data": _text(self.ca)}}],
            "users": [{"name": name, "user": credentials} for name, credentials in users.items()],
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


def _text(pem: bytes) -> str:
    return base64.b64encode(pem).decode()

"""The key pair with which the launcher of an MPIJob v2beta1 reaches its workers: ECDSA on P-521, as in mpi-operator."""

from __future__ import annotations

from trainyard.core.model import SSHKey


def new_ssh_key() -> SSHKey:
    """A new key pair. The import is here: it costs 30 ms, and only operators with such jobs need it."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP521R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return SSHKey(private.decode(), f"{public.decode()}\n")

"""Operators of others, with their definitions and examples: built once per machine. Kubeflow's training-operator and
mpi-operator are built together.

    $XDG_CACHE_HOME/trainyard/operators/KEY/
        bin/training-operator  bin/mpi-operator
        training-operator/...  mpi-operator/...      manifests and examples, as their modules have them
        webhook/...                                  certificates of their webhook servers

Rules:
- The modules are pinned by version and content hash; each operator is built with the go.sum of its own module.
- One process builds, others wait for it, as for the control plane. A folder KEY is complete.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.support.control_plane_build import (
    BuildError,
    Go,
    build_lock,
    cache_folder,
    exit_code,
    find_go,
    go_environment,
)
from tests.support.control_plane_process import LAUNCH

Say = Callable[[str], object]
ARGUMENTS = ("-mod=readonly", "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false", "-ldflags=-s -w", "-p=2")
LAYOUT = "2"  # counted up when the folder is to have other files


@dataclass(frozen=True, slots=True)
class Module:
    """A Go module: its path and version, the hash of its content, and its program."""

    path: str
    version: str
    content: str
    package: str

    @property
    def name(self) -> str:
        """That of the program, without the major version at the end of the path."""
        return self.path.removesuffix("/" + self.version.partition(".")[0]).rpartition("/")[2]


MODULES = (
    Module(
        "github.com/kubeflow/training-operator",
        "v1.9.4",
        "h1:MjYXzeaHGBmF47BlhCo6+Mb7ypHrVfO6vsys1ZHF56A=",
        "./cmd/training-operator.v1",
    ),
    Module(
        "github.com/kubeflow/mpi-operator",
        "v0.8.0",
        "h1:22EccUiO4VDooG4TooesdE8o8euGVj89PIRhiP24SRE=",
        "./cmd/mpi-operator",
    ),
)

JOB_SET_MODULE = Module("sigs.k8s.io/jobset", "v0.12.0", "h1:YYPuV0px8Ongq/RXmJg6V0w2UC67aiR+rCMD06vhQQQ=", ".")
TRAINER_MODULE = Module(
    "github.com/kubeflow/trainer/v2",
    "v2.3.0",
    "h1:Je+e7zvTLzB4qW09J1fB7pZrqvPtWuGng2NqdN5p5QU=",
    "./cmd/trainer-controller-manager",
)
KUEUE_MODULE = Module("sigs.k8s.io/kueue", "v0.17.1", "h1:r4cwg3ZFF75l7RjVbdCJgM+0RpU0MJGp7t3rLH8Zyh4=", "./cmd/kueue")
SCHEDULER_PLUGINS_MODULE = Module(
    "sigs.k8s.io/scheduler-plugins", "v0.33.5", "h1:9u4QAYbuoxa59aStrJKP4Bii2EQrZmGPN2tzvfs2gL0=", "./cmd/scheduler"
)


def operators(say: Say, modules: Sequence[Module] = MODULES) -> Path:
    """The folder of the build of these modules, which is made if there is none. Raises BuildError."""
    go = find_go()
    place = cache_folder("operators") / _key(go, modules)
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        with build_lock(place.parent, "operators", say):
            if not place.is_dir():
                _build(go, place, modules, say)
    return place


def _key(go: Go, modules: Sequence[Module]) -> str:
    content = "\0".join((go.version, *ARGUMENTS, *(f"{module}" for module in modules), LAYOUT))
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _build(go: Go, place: Path, modules: Sequence[Module], say: Say) -> None:
    part = place.with_name(f"{place.name}.part")
    shutil.rmtree(part, ignore_errors=True)  # of a build that was killed
    (part / "bin").mkdir(parents=True)
    names = " and ".join(module.name for module in modules)
    say(f"building {names}: two to eight minutes each on two cores, once")
    for module in modules:
        source = _download(go, module)
        for folder in ("manifests", "examples", "config"):
            _copy(source / folder, part / module.name / folder)
        _go(go, ["build", *ARGUMENTS, "-o", str(part / "bin" / module.name), module.package], source)
    (part / "webhook").mkdir()
    write_certificates(part / "webhook")
    part.rename(place)


def _copy(source: Path, target: Path) -> None:
    """The YAML files. A module's files are read-only; a copy is not, so that it can be removed."""
    for file in source.rglob("*.yaml"):
        copy = target / file.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)


def _download(go: Go, module: Module) -> Path:
    """The module's folder in Go's cache. Raises BuildError when the content is not the pinned one."""
    answer = json.loads(_go(go, ["mod", "download", "-json", f"{module.path}@{module.version}"], Path("/")))
    if answer.get("Error") or answer["Sum"] != module.content:
        text = answer.get("Error") or f"its content is {answer['Sum']}, not {module.content}"
        raise BuildError(f"{module.path}@{module.version}: {text}")
    return Path(answer["Dir"])


def _go(go: Go, arguments: list[str], folder: Path) -> str:
    """Run Go, which ends when this process does. Raises BuildError with what it printed."""
    command = [*LAUNCH, str(os.getpid()), go.path, *arguments]
    completed = subprocess.run(command, cwd=folder, env=go_environment(), capture_output=True, text=True)
    if completed.returncode:
        tail = "\n".join((completed.stderr or completed.stdout).splitlines()[-20:])
        raise BuildError(f"`go {' '.join(arguments)}` failed; a module proxy must be reachable:\n{tail}")
    return completed.stdout


def write_certificates(folder: Path) -> None:
    """ca.crt, ca.key, tls.crt and tls.key of a webhook server.

    The training-operator keeps certificates that are valid for its own names; these are valid for 127.0.0.1, too, so
    that the API server reaches the webhooks by URL.
    """
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    pkcs1 = PrivateFormat.TraditionalOpenSSL  # the operator reads no other
    begin = datetime.fromtimestamp(time.time(), UTC) - timedelta(hours=1)
    issuer, issuer_key = x509.Name([]), rsa.generate_private_key(65537, 2048)
    for name, names, is_ca in (
        ("ca", ["training-operator-ca"], True),
        ("tls", ["training-operator.kubeflow.svc"], False),
    ):
        key = issuer_key if is_ca else rsa.generate_private_key(65537, 2048)
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, names[0])])
        issuer = subject if is_ca else issuer
        alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
        alternatives += [] if is_ca else [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        certificate = (
            x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(begin + timedelta(days=3650))
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .sign(issuer_key, hashes.SHA256())
        )
        (folder / f"{name}.crt").write_bytes(certificate.public_bytes(Encoding.PEM))
        (folder / f"{name}.key").write_bytes(key.private_bytes(Encoding.PEM, pkcs1, NoEncryption()))


if __name__ == "__main__":
    sys.exit(exit_code(operators))

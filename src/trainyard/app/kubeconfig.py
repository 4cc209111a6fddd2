"""Which cluster a person means: a kubeconfig, read. It opens no connection and loads no HTTP library.

Rules:
- `--kubeconfig`, else $KUBECONFIG (several files, the first that says something wins), else the background cluster.
  ~/.kube/config is never taken unasked: `trainyard delete` must not reach a cluster that nobody thought of.
- Read are: server, certificate-authority(-data), insecure-skip-tls-verify, token, tokenFile,
  client certificates, namespace. What we cannot do (exec, auth-provider, a password) is refused with the fix.
- Relative paths are relative to the file that holds them.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from trainyard.app.background import Background
from trainyard.objects import Json

SECTIONS = {"clusters": "cluster", "users": "user", "contexts": "context"}
CANNOT = ("exec", "auth-provider", "username", "password")


class KubeconfigError(Exception):
    """No cluster can be made out. The text names the fix."""


@dataclass(frozen=True, slots=True)
class Access:
    """One cluster, and who we are there."""

    server: str
    namespace: str = "default"
    token: str = field(default="", repr=False)
    ca: bytes = b""  # PEM
    certificate: bytes = field(default=b"", repr=False)  # PEM, with its key
    insecure: bool = False
    source: str = ""

    def secure(self) -> ssl.SSLContext | None:
        """The TLS context, None where the system's own will do."""
        if not (self.ca or self.certificate or self.insecure):
            return None
        context = ssl.create_default_context(cadata=self.ca.decode("ascii", "replace") if self.ca else None)
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate:
            with (
                tempfile.NamedTemporaryFile() as file
            ):  # 0600; Python's ssl takes a client certificate from a file only
                file.write(self.certificate)
                file.flush()
                context.load_cert_chain(file.name)
        return context


def find(named: str = "", context: str = "", env: Mapping[str, str] = os.environ) -> Access:
    """The cluster that is meant. Raises KubeconfigError."""
    if named:
        return read([Path(named)], context)
    if given := [Path(part) for part in env.get("KUBECONFIG", "").split(os.pathsep) if part]:
        return read(given, context)
    cluster = Background()
    if cluster.facts() is None:
        text = "no cluster: start one with `trainyard up`, or name one with --kubeconfig FILE or $KUBECONFIG"
        kubectls = Path(env.get("HOME") or "/nonexistent") / ".kube" / "config"
        raise KubeconfigError(f"{text} (kubectl's own is {kubectls})" if kubectls.is_file() else text)
    return read([cluster.kubeconfig], context)


def read(paths: Sequence[Path], context: str = "") -> Access:
    """What the files say together. Files that are not there are left out, unless none is."""
    loaded = [(path, _load(path)) for path in paths if path.exists()]
    if not loaded:
        missing = os.pathsep.join(map(str, paths))
        raise KubeconfigError(f"{missing}: no such file; is the cluster down? Start one with `trainyard up`")
    source = ", ".join(str(path) for path, _ in loaded)
    name = context or next((str(one["current-context"]) for _, one in loaded if one.get("current-context")), "")
    if not name:
        raise KubeconfigError(f"{source}: no current-context; choose one with --context NAME")
    _, chosen = _entry(loaded, "contexts", name, "--context", source)
    place, cluster = _entry(loaded, "clusters", str(chosen.get("cluster") or ""), f"contexts[{name}].cluster", source)
    who = str(chosen.get("user") or "")
    home, user = _entry(loaded, "users", who, f"contexts[{name}].user", source) if who else (place, {})
    if not cluster.get("server"):
        raise KubeconfigError(f"{source}: clusters[{chosen.get('cluster')}].cluster.server is missing; write its URL")
    token = str(user.get("token") or "") or _text(home, user.get("tokenFile"))
    certificate = _bytes(home, user, "client-certificate") + b"\n" + _bytes(home, user, "client-key")
    if not token and not certificate.strip() and (hard := [word for word in CANNOT if user.get(word)]):
        fix = "write a token or a client certificate, for example with `kubectl create token`"
        raise KubeconfigError(f"{source}: users[{who}].user.{hard[0]} cannot be used here; {fix}")
    return Access(
        server=str(cluster["server"]).rstrip("/"),
        namespace=str(chosen.get("namespace") or "default"),
        token=token,
        ca=_bytes(place, cluster, "certificate-authority"),
        certificate=certificate if certificate.strip() else b"",
        insecure=cluster.get("insecure-skip-tls-verify") is True,
        source=source,
    )


def _load(path: Path) -> Json:
    try:
        found = yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  (both are safe)
    except OSError as error:
        raise KubeconfigError(
            f"{path}: {(error.strerror or str(error)).lower()}; name a file that can be read"
        ) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise KubeconfigError(
            f"{path}:{mark.line + 1 if mark else 1}: not YAML; mend it or name another file"
        ) from None
    if not isinstance(found, dict):
        raise KubeconfigError(f"{path}: is not a kubeconfig; name a file that is one")
    return found


def _entry(loaded: Sequence[tuple[Path, Json]], section: str, name: str, where: str, source: str) -> tuple[Path, Json]:
    """The named entry, with the file that holds it."""
    known = []
    for path, one in loaded:
        for entry in one.get(section) or ():
            if isinstance(entry, dict):
                known.append(str(entry.get("name")))
                found: Any = entry.get(SECTIONS[section])
                if entry.get("name") == name and isinstance(found, dict):
                    return path, found
    text = f"{source}: {where}: there is no {name!r} under {section}"
    raise KubeconfigError(f"{text}; known are: {', '.join(known) or 'none'}")


def _bytes(file: Path, holder: Json, name: str) -> bytes:
    """`NAME-data`, or the content of the file that `NAME` names."""
    if data := holder.get(f"{name}-data"):
        try:
            return base64.b64decode(str(data), validate=True)
        except (binascii.Error, ValueError):
            raise KubeconfigError(f"{file}: {name}-data is not base64; write it anew") from None
    return _read(file, holder.get(name))


def _text(file: Path, named: Any) -> str:
    return _read(file, named).decode("utf-8", "replace").strip()


def _read(file: Path, named: Any) -> bytes:
    if not named:
        return b""
    path = file.parent / str(named)
    try:
        return path.read_bytes()
    except OSError as error:
        text = f"{file}: names {path}, which cannot be read ({(error.strerror or str(error)).lower()})"
        raise KubeconfigError(f"{text}; name a file that can") from None

"""Which cluster a person means: a kubeconfig, read. It opens no connection and loads no HTTP library.

Rules:
- `--kubeconfig`, else $KUBECONFIG (several files, the first that says something wins), else the background cluster.
  ~/.kube/config is never taken unasked: `trainyard delete` must not reach a cluster that nobody thought of.
- Read are: server, certificate-authority(-data), insecure-skip-tls-verify, tls-server-name, proxy-url, token,
  tokenFile, client certificates, exec, namespace. What we cannot do (auth-provider, a password, another proxy than
  one for HTTP) is refused with the fix.
- Relative paths are relative to the file that holds them.
- In a pod the folder of the service account says it all. `credentials` reads again whatever came from files.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from trainyard.app.background import Background
from trainyard.objects import Json

if TYPE_CHECKING:
    from trainyard.client import Api, Credentials, Identity

SECTIONS = {"clusters": "cluster", "users": "user", "contexts": "context"}
CANNOT = ("auth-provider", "username", "password")
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


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
    server_name: str = ""  # in the server's certificate, where that is not the one in the URL
    proxy: str = field(default="", repr=False)  # its URL may hold a password
    source: str = ""
    plugin: Json | None = field(default=None, repr=False, compare=False)  # `exec`, its command as a path
    files: tuple[Path, ...] = field(default=(), repr=False, compare=False)  # all that this was read from
    again: Callable[[], Access] | None = field(default=None, repr=False, compare=False)

    def api(self, agent: str = "trainyard", credentials: Credentials | None = None) -> Api:
        """A client of that cluster. Raises OSError or ValueError for certificates of no use."""
        from trainyard.client import Api

        who = credentials or self.credentials()
        return Api(self.server, who, agent=agent, proxy=self.proxy, server_name=self.server_name)

    def secure(self) -> ssl.SSLContext | None:
        """The TLS context, None where the system's own will do."""
        return self._secure(self.certificate)

    def _secure(self, certificate: bytes) -> ssl.SSLContext | None:
        from trainyard.client.credentials import tls

        return tls(self.ca, certificate, self.insecure)

    def identity(self) -> Identity:
        from trainyard.client import Identity

        return Identity(self.token, self.secure())

    def credentials(self) -> Credentials:
        """Who we are there, for as long as it takes. Raises OSError or ValueError for certificates of no use."""
        from trainyard.client.credentials import Files, Fixed, Plugin, Program

        if self.plugin is not None:
            self.secure()  # what is wrong with the authority's certificate is said now
            spec = self.plugin
            program = Program(
                version=str(spec["apiVersion"]),
                command=str(spec["command"]),
                args=tuple(map(str, spec.get("args") or ())),
                env={str(one["name"]): str(one.get("value", "")) for one in spec.get("env") or ()},
                cluster=self._told() if spec.get("provideClusterInfo") else None,
                hint=str(spec.get("installHint") or ""),
            )
            return Plugin(program, self._secure)
        again = self.again
        if again is None:
            return Fixed(self.token, self.secure())
        return Files(self.files, lambda: again().identity())

    def _told(self) -> Json:
        """What a plugin hears of the cluster."""
        told: Json = {"server": self.server, "insecure-skip-tls-verify": self.insecure}
        told |= {"tls-server-name": self.server_name} if self.server_name else {}
        told |= {"proxy-url": self.proxy} if self.proxy else {}
        if self.ca:
            told["certificate-authority-data"] = base64.b64encode(self.ca).decode()
        return told


def find(named: str = "", context: str = "", env: Mapping[str, str] = os.environ) -> Access:
    """The cluster that is meant. Raises KubeconfigError."""
    if named:
        return read([Path(named)], context)
    if given := [Path(part) for part in env.get("KUBECONFIG", "").split(os.pathsep) if part]:
        return read(given, context)
    cluster = Background()
    if cluster.facts() is None:
        text = f"{cluster.why_not_up()}, or name another with --kubeconfig FILE or $KUBECONFIG"
        kubectls = Path(env.get("HOME") or "/nonexistent") / ".kube" / "config"
        raise KubeconfigError(f"{text} (kubectl's own is {kubectls})" if kubectls.is_file() else text)
    return read([cluster.kubeconfig], context)


def in_cluster(env: Mapping[str, str] = os.environ, folder: Path = SERVICE_ACCOUNT) -> Access | None:
    """Whom a pod is: its service account. None where this is no pod."""
    host, port = env.get("KUBERNETES_SERVICE_HOST", ""), env.get("KUBERNETES_SERVICE_PORT", "443")
    token, ca, place = folder / "token", folder / "ca.crt", folder / "namespace"
    if not host or not token.is_file():
        return None
    return Access(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=_text(place, place.name if place.is_file() else "") or "default",
        token=_read(token, token).decode("utf-8", "replace").strip(),
        ca=_read(ca, ca),
        source=str(folder),
        files=(token, ca),
        again=partial(_must, env, folder),
    )


def _must(env: Mapping[str, str], folder: Path) -> Access:
    access = in_cluster(env, folder)
    if access is None or not access.token:
        raise KubeconfigError(f"{folder}/token is not there now")
    return access


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
    plugin = None if token or certificate.strip() else _plugin(home, user, f"{source}: users[{who}].user.exec")
    if (
        not token
        and not certificate.strip()
        and plugin is None
        and (hard := [word for word in CANNOT if user.get(word)])
    ):
        fix = "write a token or a client certificate, for example with `kubectl create token`"
        raise KubeconfigError(f"{source}: users[{who}].user.{hard[0]} cannot be used here; {fix}")
    return Access(
        server=str(cluster["server"]).rstrip("/"),
        namespace=str(chosen.get("namespace") or "default"),
        token=token,
        ca=_bytes(place, cluster, "certificate-authority"),
        certificate=certificate if certificate.strip() else b"",
        insecure=cluster.get("insecure-skip-tls-verify") is True,
        server_name=str(cluster.get("tls-server-name") or ""),
        proxy=_proxy(cluster, f"{source}: clusters[{chosen.get('cluster')}].cluster.proxy-url"),
        source=source,
        plugin=plugin,
        files=tuple(path for path, _ in loaded) + _named(place, cluster) + _named(home, user),
        again=partial(read, paths, context),
    )


def _proxy(cluster: Json, where: str) -> str:
    url = str(cluster.get("proxy-url") or "")
    if url and not url.startswith(("http://", "https://")):
        raise KubeconfigError(f"{where} is no HTTP proxy, and no other can be used here; write http://HOST:PORT")
    return url


def _named(file: Path, holder: Json) -> tuple[Path, ...]:
    """The files that an entry names."""
    names = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
    return tuple(file.parent / str(holder[name]) for name in names if holder.get(name))


def _plugin(file: Path, user: Json, where: str) -> Json | None:
    """A user's `exec`, checked. A command with a slash is a path beside the kubeconfig."""
    spec = user.get("exec")
    if not spec:
        return None
    known = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
    if not isinstance(spec, dict) or not isinstance(spec.get("command"), str) or not spec["command"]:
        raise KubeconfigError(f"{where}.command is missing; write the program's name")
    if spec.get("apiVersion") not in known:
        raise KubeconfigError(f"{where}.apiVersion is {spec.get('apiVersion')!r}; write {known[0]}")
    if spec.get("interactiveMode") == "Always":
        fix = "nobody is asked here; write IfAvailable or Never"
        raise KubeconfigError(f"{where}.interactiveMode is Always: {fix}")
    if not all(isinstance(one, dict) and one.get("name") for one in spec.get("env") or ()):
        raise KubeconfigError(f"{where}.env has an entry without a name; write name: and value:")
    command = spec["command"]
    return {**spec, "command": str((file.parent / command).absolute()) if "/" in command else command}


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
        listed = one.get(section)
        for entry in listed if isinstance(listed, list) else ():
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

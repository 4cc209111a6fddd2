"""Kubeconfig files: which cluster a command uses. Opens no connection and imports no HTTP library.

Rules:
- `--kubeconfig`, else $KUBECONFIG (of several files the first that has a value wins), else the background cluster.
  ~/.kube/config is never a default: `trainyard delete` must not reach a cluster that the user did not name.
- Supported: server, certificate-authority(-data), insecure-skip-tls-verify, tls-server-name, proxy-url, token,
  tokenFile, client certificates, exec, namespace. What is not supported (auth-provider, a password, a proxy that is no
  HTTP proxy) is refused with the fix.
- Relative paths are relative to the file that holds them.
- In a pod the folder of the service account has all values. `credentials` reads values from files again.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from trainyard.app.background.clusters import Background
from trainyard.objects import Json

if TYPE_CHECKING:
    import ssl

    from trainyard.client import ApiClient, Credentials, Identity

SECTIONS = {"clusters": "cluster", "users": "user", "contexts": "context"}
UNSUPPORTED = ("auth-provider", "username", "password")
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


LOOPBACK_CONNECTIONS = 2


class KubeconfigError(Exception):
    """The cluster cannot be determined. The message names the fix."""


class ClusterAccess(msgspec.Struct, frozen=True):
    """One cluster, and the credentials for it."""

    server: str
    namespace: str = "default"
    token: str = ""
    ca: bytes = b""  # PEM
    certificate: bytes = b""  # PEM, with its key
    insecure: bool = False
    server_name: str = ""  # the name in the server's certificate, if it is not the host of the URL
    proxy: str = ""  # its URL may hold a password
    source: str = ""
    exec_plugin: Json | None = None  # `exec`, with `command` as a path
    files: tuple[Path, ...] = ()  # the files that this was read from
    reread: Callable[[], ClusterAccess] | None = None

    def __repr__(self) -> str:
        """Without the secrets."""
        return f"ClusterAccess(server={self.server!r}, source={self.source!r})"

    def api(self, agent: str = "trainyard", credentials: Credentials | None = None) -> ApiClient:
        """A client of that cluster. Raises OSError or ValueError for certificates that cannot be used."""
        from trainyard.client import ApiClient

        client_credentials = credentials or self.credentials()
        return ApiClient(
            self.server, client_credentials, user_agent=agent, proxy=self.proxy, server_name=self.server_name
        )

    def command_api(self) -> ApiClient:
        """A client for one command. To a server on this machine it has two connections: there a request waits shorter
        than a further TLS handshake takes. Raises as `api`."""
        api = self.api()
        if on_loopback(self.server):
            api.pool_size = LOOPBACK_CONNECTIONS
        return api

    def secure(self) -> ssl.SSLContext | None:
        """The TLS context; None when the system's default will do. Raises OSError or ValueError."""
        return self._tls_context(self.certificate)

    def _tls_context(self, certificate: bytes) -> ssl.SSLContext | None:
        from trainyard.client.tls import tls_context

        return tls_context(self.ca, certificate, self.insecure)

    def identity(self) -> Identity:
        """The token and the TLS context as they are now."""
        from trainyard.client import Identity

        return Identity(self.token, self.secure())

    def credentials(self) -> Credentials:
        """Credentials that are renewed when the plugin or the files give new ones. Raises OSError or ValueError for
        certificates that cannot be used."""
        from trainyard.client.credentials import ExecConfig, ExecPlugin, FileCredentials, StaticCredentials

        if self.exec_plugin is not None:
            self.secure()  # raises now when the CA certificate cannot be used
            spec = self.exec_plugin
            program = ExecConfig(
                api_version=str(spec["apiVersion"]),
                command=str(spec["command"]),
                args=tuple(map(str, spec.get("args") or ())),
                env={str(variable["name"]): str(variable.get("value", "")) for variable in spec.get("env") or ()},
                cluster=self._cluster_info() if spec.get("provideClusterInfo") else None,
                install_hint=str(spec.get("installHint") or ""),
            )
            return ExecPlugin(program, self._tls_context)
        read_again = self.reread
        if read_again is None:
            return StaticCredentials(self.token, self.secure())
        return FileCredentials(self.files, lambda: read_again().identity())

    def _cluster_info(self) -> Json:
        """The cluster of an ExecCredential, for plugins with provideClusterInfo."""
        cluster: Json = {"server": self.server, "insecure-skip-tls-verify": self.insecure}
        cluster |= {"tls-server-name": self.server_name} if self.server_name else {}
        cluster |= {"proxy-url": self.proxy} if self.proxy else {}
        if self.ca:
            cluster["certificate-authority-data"] = base64.b64encode(self.ca).decode()
        return cluster


def find_cluster(named: str = "", context: str = "", env: Mapping[str, str] = os.environ) -> ClusterAccess:
    """The cluster that a command uses: by the file `named`, $KUBECONFIG or the background cluster. Raises
    KubeconfigError."""
    if named:
        return read_kubeconfig([Path(named)], context)
    if paths := [Path(part) for part in env.get("KUBECONFIG", "").split(os.pathsep) if part]:
        return read_kubeconfig(paths, context)
    cluster = Background()
    if cluster.facts() is None:
        text = f"{cluster.down_reason()}, or name another with --kubeconfig FILE or $KUBECONFIG"
        kubectl_config = Path(env.get("HOME") or "/nonexistent") / ".kube" / "config"
        raise KubeconfigError(f"{text} (kubectl's own is {kubectl_config})" if kubectl_config.is_file() else text)
    return read_kubeconfig([cluster.kubeconfig], context)


def in_cluster(env: Mapping[str, str] = os.environ, folder: Path = SERVICE_ACCOUNT) -> ClusterAccess | None:
    """The cluster of this pod, by its service account; None outside of a pod. Raises KubeconfigError."""
    host, port = env.get("KUBERNETES_SERVICE_HOST", ""), env.get("KUBERNETES_SERVICE_PORT", "443")
    token, ca, namespace_file = folder / "token", folder / "ca.crt", folder / "namespace"
    if not host or not token.is_file():
        return None
    return ClusterAccess(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=_text(namespace_file, namespace_file.name if namespace_file.is_file() else "") or "default",
        token=_read(token, token).decode("utf-8", "replace").strip(),
        ca=_read(ca, ca),
        source=str(folder),
        files=(token, ca),
        reread=partial(_in_cluster_again, env, folder),
    )


def _in_cluster_again(env: Mapping[str, str], folder: Path) -> ClusterAccess:
    """As `in_cluster`, but raises KubeconfigError when the token is missing."""
    access = in_cluster(env, folder)
    if access is None or not access.token:
        raise KubeconfigError(f"{folder}/token does not exist")
    return access


def read_kubeconfig(paths: Sequence[Path], context: str = "") -> ClusterAccess:
    """The cluster of a context in these files, merged. Missing files are skipped. Raises KubeconfigError, also when no
    file exists."""
    loaded = [(path, _load(path)) for path in paths if path.exists()]
    if not loaded:
        missing = os.pathsep.join(map(str, paths))
        raise KubeconfigError(f"{missing}: no such file; is the cluster down? Start one with `trainyard up`")
    source = ", ".join(str(path) for path, _ in loaded)
    name = context or next(
        (str(config["current-context"]) for _, config in loaded if config.get("current-context")), ""
    )
    if not name:
        raise KubeconfigError(f"{source}: no current-context; choose one with --context NAME")
    _, chosen_context = _entry(loaded, "contexts", name, "--context", source)
    cluster_file, cluster = _entry(
        loaded, "clusters", str(chosen_context.get("cluster") or ""), f"contexts[{name}].cluster", source
    )
    user_name = str(chosen_context.get("user") or "")
    user_file, user = (
        _entry(loaded, "users", user_name, f"contexts[{name}].user", source) if user_name else (cluster_file, {})
    )
    if not cluster.get("server"):
        raise KubeconfigError(
            f"{source}: clusters[{chosen_context.get('cluster')}].cluster.server is missing; write its URL"
        )
    token, certificate, plugin = _credentials(user_file, user, f"{source}: users[{user_name}].user")
    return ClusterAccess(
        server=str(cluster["server"]).rstrip("/"),
        namespace=str(chosen_context.get("namespace") or "default"),
        token=token,
        ca=_bytes(cluster_file, cluster, "certificate-authority"),
        certificate=certificate,
        insecure=cluster.get("insecure-skip-tls-verify") is True,
        server_name=str(cluster.get("tls-server-name") or ""),
        proxy=_proxy(cluster, f"{source}: clusters[{chosen_context.get('cluster')}].cluster.proxy-url"),
        source=source,
        exec_plugin=plugin,
        files=tuple(path for path, _ in loaded) + _files_of(cluster_file, cluster) + _files_of(user_file, user),
        reread=partial(read_kubeconfig, paths, context),
    )


def _credentials(file: Path, user: Json, path: str) -> tuple[str, bytes, Json | None]:
    """The token, the certificate with its key (PEM), and the exec plugin of a user, whom `path` names in errors. A
    plugin is used only without the other two. Raises KubeconfigError."""
    token = str(user.get("token") or "") or _text(file, user.get("tokenFile"))
    certificate = _bytes(file, user, "client-certificate") + b"\n" + _bytes(file, user, "client-key")
    if token or certificate.strip():
        return token, certificate if certificate.strip() else b"", None
    plugin = _plugin(file, user, f"{path}.exec")
    if plugin is None and (unsupported := [key for key in UNSUPPORTED if user.get(key)]):
        fix = "write a token or a client certificate, for example with `kubectl create token`"
        raise KubeconfigError(f"{path}.{unsupported[0]} is not supported; {fix}")
    return "", b"", plugin


def _proxy(cluster: Json, path: str) -> str:
    """The proxy-url of a cluster entry, which `path` names in errors; "" without one. Raises KubeconfigError."""
    url = str(cluster.get("proxy-url") or "")
    if url and not url.startswith(("http://", "https://")):
        raise KubeconfigError(
            f"{path} is not an HTTP proxy, and other proxies are not supported; write http://HOST:PORT"
        )
    return url


def _files_of(file: Path, entry: Json) -> tuple[Path, ...]:
    """The files that a cluster or user entry refers to."""
    keys = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
    return tuple(file.parent / str(entry[key]) for key in keys if entry.get(key))


def _plugin(file: Path, user: Json, path: str) -> Json | None:
    """A user's `exec`, checked; None without one. A command with a slash is relative to the kubeconfig. Raises
    KubeconfigError."""
    spec = user.get("exec")
    if not spec:
        return None
    versions = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
    if not isinstance(spec, dict) or not isinstance(spec.get("command"), str) or not spec["command"]:
        raise KubeconfigError(f"{path}.command is missing; write the program's name")
    if spec.get("apiVersion") not in versions:
        raise KubeconfigError(f"{path}.apiVersion is {spec.get('apiVersion')!r}; write {versions[0]}")
    if spec.get("interactiveMode") == "Always":
        fix = "there is no terminal input; write IfAvailable or Never"
        raise KubeconfigError(f"{path}.interactiveMode is Always: {fix}")
    if not all(isinstance(variable, dict) and variable.get("name") for variable in spec.get("env") or ()):
        raise KubeconfigError(f"{path}.env has an entry without a name; write name: and value:")
    command = spec["command"]
    return {**spec, "command": str((file.parent / command).absolute()) if "/" in command else command}


def _load(path: Path) -> Json:
    import yaml  # `up` and `status` need no kubeconfig

    try:
        config = yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  (both loaders are safe)
    except OSError as error:
        raise KubeconfigError(
            f"{path}: {(error.strerror or str(error)).lower()}; name a file that can be read"
        ) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise KubeconfigError(
            f"{path}:{mark.line + 1 if mark else 1}: not YAML; correct it, or name another file"
        ) from None
    if not isinstance(config, dict):
        raise KubeconfigError(f"{path}: is not a kubeconfig; name a kubeconfig")
    return config


def _entry(
    loaded: Sequence[tuple[Path, Json]], section: str, name: str, reference: str, source: str
) -> tuple[Path, Json]:
    """The file that holds the entry of that name, and the entry. `reference`: the field or option that names it. Raises
    KubeconfigError."""
    names = []
    for path, config in loaded:
        entries = config.get(section)
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict):
                names.append(str(entry.get("name")))
                value: Any = entry.get(SECTIONS[section])
                if entry.get("name") == name and isinstance(value, dict):
                    return path, value
    text = f"{source}: {reference}: there is no {name!r} under {section}"
    raise KubeconfigError(f"{text}; known are: {', '.join(names) or 'none'}")


def _bytes(file: Path, entry: Json, key: str) -> bytes:
    """The decoded value of `KEY-data`, else the content of the file that `KEY` names; b"" without both."""
    if data := entry.get(f"{key}-data"):
        try:
            return base64.b64decode(str(data), validate=True)
        except (binascii.Error, ValueError):
            raise KubeconfigError(f"{file}: {key}-data is not base64; write it again") from None
    return _read(file, entry.get(key))


def _text(file: Path, path: Any) -> str:
    return _read(file, path).decode("utf-8", "replace").strip()


def _read(file: Path, named: Any) -> bytes:
    if not named:
        return b""
    path = file.parent / str(named)
    try:
        return path.read_bytes()
    except OSError as error:
        text = f"{file}: names {path}, which cannot be read ({(error.strerror or str(error)).lower()})"
        raise KubeconfigError(f"{text}; name a file that can be read") from None


def on_loopback(server: str) -> bool:
    """True for the URL of an API server on a loopback address."""
    import ipaddress
    from urllib.parse import urlsplit

    host = urlsplit(server).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

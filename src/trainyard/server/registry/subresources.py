"""Subresources other than /status and /scale: those that the kubelet serves (log, exec, attach), proxy (pods and
Services), binding and eviction of pods, token of a ServiceAccount, finalize of a namespace.

Subresources that kubectl uses and this server does not serve are answered with an alternative.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import parse_qs, quote, urlencode

import msgspec

from trainyard.objects import Json, NamespacedName, decode, encode, set_condition
from trainyard.objects.container_statuses import container_statuses
from trainyard.objects.structs import replace
from trainyard.schema.checks import json_text
from trainyard.server.auth.tokens import TokenAuthority
from trainyard.server.model import errors
from trainyard.server.model.context import RequestContext
from trainyard.server.model.paths import Target
from trainyard.server.model.requests import (
    Answer,
    KubeletProxy,
    PodProxy,
    Request,
    Response,
    Tunnel,
    decode_body,
    is_dry_run,
    reply,
)
from trainyard.server.model.resources import Resource
from trainyard.server.proxy import targets
from trainyard.server.registry import admission, deletion, service_accounts
from trainyard.server.registry.writes import Writes

LOG_PARAMETERS = (
    "follow",
    "previous",
    "sinceSeconds",
    "sinceTime",
    "timestamps",
    "tailLines",
    "limitBytes",
    "insecureSkipTLSVerifyBackend",
    "stream",
    "newestBytes",  # of Trainyard's nodes; a real server drops it
)
NODES = "nodes"
PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
"""WebSocket subprotocols of exec and attach, preferred first. v5 can signal the end of stdin."""
NO_INPUT = (
    "containers have no standard input to attach to here; leave out -i to see what the container prints, "
    "or start a program in it: kubectl exec -it POD -- COMMAND"
)
_STREAMS = {
    "stdin": "input",
    "stdout": "output",
    "stderr": "error",
    "tty": "tty",
}  # query parameter -> the kubelet's parameter


class ServerParts(msgspec.Struct, frozen=True):
    """The parts of the server that subresources use, and the context of the request."""

    writes: Writes
    tokens: TokenAuthority
    context: RequestContext


def serve(parts: ServerParts, resource: Resource, target: Target, request: Request) -> Answer:
    """Serve a request to a subresource. Raises StatusError; 404 when the resource has no such subresource."""
    if text := resource.alternatives.get(target.subresource):
        raise errors.StatusError(405, "MethodNotAllowed", text)
    if target.subresource not in resource.subresources or not target.name:
        raise errors.path_not_found()
    if target.subresource == "proxy":
        return _proxy(parts, resource, target, request)
    record = parts.writes.log.get(resource.storage_key, NamespacedName(target.namespace, target.name))
    if record is None:
        raise errors.not_found(resource.plural, resource.group, target.name)
    methods, handler = _HANDLERS[target.subresource]
    if request.method not in methods:
        raise errors.method_not_allowed()
    return handler(parts, resource, decode(record.body), request)


def _log(parts: ServerParts, resource: Resource, pod: Json, request: Request) -> KubeletProxy:
    options = {name: request.query[name] for name in LOG_PARAMETERS if name in request.query}
    return KubeletProxy(f"{_kubelet_container_url(parts, pod, 'containerLogs', request)}?{urlencode(options)}")


def _exec(parts: ServerParts, resource: Resource, pod: Json, request: Request) -> Tunnel:
    """The tunnel of an exec. All checks happen before the WebSocket upgrade."""
    commands = parse_qs(request.query_string, keep_blank_values=True).get("command", [])
    if not commands or not commands[0]:
        _kubelet_container_url(parts, pod, "exec", request)
        raise errors.bad_request("command: Required value: name the program to run, one `command` for each word")
    return _stream(parts, pod, request, "exec", commands)


def _attach(parts: ServerParts, resource: Resource, pod: Json, request: Request) -> Tunnel:
    return _stream(parts, pod, request, "attach", [])


def _token(parts: ServerParts, resource: Resource, account: Json, request: Request) -> Response:
    sent = decode_body(request)
    return reply(service_accounts.create_token_response(parts.tokens, account, sent, parts.context), 201)


def _stream(parts: ServerParts, pod: Json, request: Request, operation: str, commands: list[str]) -> Tunnel:
    url = _kubelet_container_url(parts, pod, operation, request)
    if operation == "attach" and request.flag("stdin"):
        raise errors.bad_request(NO_INPUT)
    streams = [(kubelet_name, "1") for parameter, kubelet_name in _STREAMS.items() if request.flag(parameter)]
    if not {"input", "output", "error"} & {name for name, _ in streams}:
        raise errors.bad_request("you must specify at least 1 of stdin, stdout, stderr")
    if request.protocols is None:
        if (container := _container_name(pod, request)) not in _running_containers(pod):
            raise errors.bad_request(f'container not found ("{container}"): it does not run')
        text = f"Upgrade request required: {operation} is served as a WebSocket (a GET with `Upgrade: websocket`)"
        raise errors.bad_request(f"{text}, subprotocol {' or '.join(PROTOCOLS)}")
    supported = tuple(protocol for protocol in PROTOCOLS if protocol in request.protocols)
    if not supported:
        offered = errors.printable(", ".join(request.protocols)[:200]) or "none"
        raise errors.bad_request(f"subprotocol: offer {' or '.join(PROTOCOLS)}, got {offered}")
    query = urlencode([*(("command", command) for command in commands), *streams])
    return Tunnel(f"{url}?{query}", supported)


def _running_containers(pod: Json) -> set[str]:
    """The names of the running containers, from the pod's status."""
    return {
        container.name for container in container_statuses(pod.get("status")) if container.state("running") is not None
    }


def _proxy(parts: ServerParts, resource: Resource, target: Target, request: Request) -> PodProxy:
    """The proxy target of a request: the port of a pod, and the node's URL that returns its socket."""
    log, requested = parts.writes.log, targets.split(target.name, resource.kind.lower())
    record = log.get(resource.storage_key, NamespacedName(target.namespace, requested.name))
    if record is None:
        raise errors.not_found(resource.plural, resource.group, requested.name)
    obj: Json = decode(record.body)
    if resource.proxy_port is None:
        raise errors.path_not_found()
    pod_port = resource.proxy_port(log, obj, requested)
    name = pod_port.pod["metadata"]["name"]
    socket_url = f"{_kubelet_url(parts, pod_port.pod)}/sockets/{quote(target.namespace)}/{quote(name)}/{pod_port.port}"
    prefix = request.path.removesuffix(target.proxy_path)
    query = f"?{request.query_string}" if request.query_string else ""
    host = f"{(pod_port.pod.get('status') or {}).get('podIP') or name}:{pod_port.port}"
    return PodProxy(
        socket_url, f"{target.proxy_path}{query}", prefix, host, pod_port.secure, f"port {pod_port.port} of pod {name}"
    )


def _kubelet_container_url(parts: ServerParts, pod: Json, operation: str, request: Request) -> str:
    """The URL of an operation on the requested container at the kubelet of the pod's node."""
    container = _container_name(pod, request)
    meta, url = pod["metadata"], _kubelet_url(parts, pod)
    container_path = "/".join(quote(part, safe="") for part in (meta["namespace"], meta["name"], container))
    return f"{url}/{operation}/{container_path}"


def _kubelet_url(parts: ServerParts, pod: Json) -> str:
    """The URL of the kubelet of the pod's node."""
    meta, spec = pod["metadata"], pod.get("spec") or {}
    node = spec.get("nodeName")
    if not node:
        raise errors.bad_request(f"pod {meta['name']} does not have a host assigned")
    record = parts.writes.log.get(NODES, NamespacedName("", node))
    if record is None:
        raise errors.StatusError(500, "InternalError", f'Internal error occurred: nodes "{node}" not found')
    address, port = kubelet_address(decode(record.body))
    if not address or not port:
        raise errors.StatusError(
            500, "InternalError", f"Internal error occurred: node {node} says no address and kubelet port"
        )
    host = f"[{address}]" if ":" in address else address
    return f"http://{host}:{port}"


def _container_name(pod: Json, request: Request) -> str:
    spec = pod.get("spec") or {}
    names = [
        str(container.get("name"))
        for field in ("initContainers", "containers")
        for container in spec.get(field) or ()
        if container
    ]
    main_names = [str(container.get("name")) for container in spec.get("containers") or ()]
    requested = request.query.get("container", "")
    name = pod["metadata"]["name"]
    if not requested:
        if len(main_names) == 1:
            return main_names[0]
        text = f"a container name must be specified for pod {name}, choose one of: [{' '.join(main_names)}]"
        raise errors.bad_request(text)
    if requested not in names:
        raise errors.bad_request(f"container {errors.printable(requested)} is not valid for pod {name}")
    return requested


def kubelet_address(node: Json) -> tuple[str, int]:
    """Address and port of a node's kubelet, from its status; ("", 0) when absent."""
    status = node.get("status") or {}
    addresses = [address_entry for address_entry in status.get("addresses") or () if isinstance(address_entry, dict)]
    address = next(
        (address_entry.get("address") for address_entry in addresses if address_entry.get("type") == "InternalIP"), ""
    )
    endpoint = (status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}
    port = endpoint.get("Port")
    return str(address or ""), port if isinstance(port, int) else 0


def _bind(parts: ServerParts, resource: Resource, pod: Json, request: Request) -> Response:
    """Bind a pod to a node: sets spec.nodeName and the condition PodScheduled. Raises StatusError 400, 409."""
    sent = decode_body(request)
    target = sent.get("target") if isinstance(sent, dict) else None
    node = target.get("name") if isinstance(target, dict) else None
    if not isinstance(node, str) or not node:
        raise errors.bad_request(f"target.name: Required value: the name of a node, got {json_text(node)}")
    meta, spec = pod["metadata"], dict(pod.get("spec") or {})
    uid = (sent.get("metadata") or {}).get("uid") if isinstance(sent.get("metadata"), dict | None) else None
    if uid and uid != meta["uid"]:
        reason = f"Precondition failed: UID in precondition: {json_text(uid)}, UID in object meta: {meta['uid']}"
        raise errors.conflict("pods/binding", "", meta["name"], reason)
    if "deletionTimestamp" in meta:
        reason = f"pod {meta['name']} is being deleted, cannot be assigned to a host"
        raise errors.conflict("pods/binding", "", meta["name"], reason)
    if spec.get("nodeName"):
        reason = f'pod {meta["name"]} is already assigned to node "{spec["nodeName"]}"'
        raise errors.conflict("pods/binding", "", meta["name"], reason)
    status = dict(pod.get("status") or {})
    stamp = parts.context.timestamp
    bound = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": stamp}
    other_conditions = [
        existing for existing in status.get("conditions") or () if existing.get("type") != "PodScheduled"
    ]
    status["conditions"] = [*other_conditions, bound]
    new = {**pod, "metadata": dict(meta), "spec": {**spec, "nodeName": node}, "status": status}
    parts.writes.put(resource, new, pod, is_dry_run(request))
    return reply({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201)


DISRUPTION_TARGET = ("DisruptionTarget", True, "EvictionByEvictionAPI", "Eviction API: evicting")
"""The condition of an evicted Pod: its type, status, reason and message."""


def _evict(parts: ServerParts, resource: Resource, pod: Json, request: Request) -> Response:
    """Eviction: a delete, and the condition that tells it from others. There are no PodDisruptionBudgets here."""
    sent = decode_body(request)
    if not isinstance(sent, dict) or not isinstance(delete_options := sent.get("deleteOptions") or {}, dict):
        raise errors.bad_request(f"the body must be an Eviction of policy/v1, got {json_text(sent)}")
    delete_request = request._replace(body=encode(delete_options), content_type="application/json")
    options = deletion.read_options(delete_request)
    deletion.check_preconditions(resource, pod, options)
    options = replace(options, dry_run=options.dry_run or is_dry_run(request))
    status = dict(pod.get("status") or {})
    status["conditions"] = set_condition(status.get("conditions") or (), *DISRUPTION_TARGET, parts.context.now)
    deletion.begin_deletion(parts.writes, resource, {**pod, "status": status}, options, parts.context)
    return reply({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201)


def _finalize(parts: ServerParts, resource: Resource, obj: Json, request: Request) -> Response:
    """Update spec.finalizers of a namespace, which only this subresource may change."""
    sent = admission.read_object(resource, decode_body(request), "", obj["metadata"]["name"])
    finalizers = (sent.get("spec") or {}).get("finalizers") if isinstance(sent.get("spec"), dict | None) else None
    if not isinstance(finalizers, list | None) or not all(isinstance(finalizer, str) for finalizer in finalizers or ()):
        raise errors.bad_request(f"spec.finalizers: must be a list of strings, got {json_text(finalizers)}")
    meta = sent["metadata"]
    for field in ("uid", "resourceVersion"):
        if meta.get(field) not in (None, "", "0", obj["metadata"][field]):
            raise errors.conflict(resource.plural, resource.group, obj["metadata"]["name"], errors.MODIFIED)
    new = {**obj, "metadata": dict(obj["metadata"]), "spec": {"finalizers": finalizers} if finalizers else {}}
    return Response(parts.writes.put(resource, new, obj, is_dry_run(request)))


_Handler = Callable[[ServerParts, Resource, Json, Request], Answer]
_HANDLERS: Mapping[str, tuple[tuple[str, ...], _Handler]] = {
    "log": (("GET",), _log),
    "exec": (("GET", "POST"), _exec),
    "attach": (("GET", "POST"), _attach),
    "token": (("POST",), _token),
    "binding": (("POST",), _bind),
    "eviction": (("POST",), _evict),
    "finalize": (("PUT",), _finalize),
}
"""Subresource -> (methods, handler). The handler gets the stored object."""

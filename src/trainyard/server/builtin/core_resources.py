"""Resources with short strategies: Namespaces, Nodes, ConfigMaps, Secrets, ServiceAccounts, PersistentVolumeClaims,
Endpoints, Leases."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

from trainyard.api_types.defaults import set_defaults, set_defaults_for_zero, string_or_empty
from trainyard.api_types.validators import validate_config_key
from trainyard.objects import Json, Problem
from trainyard.schema.checks import json_text
from trainyard.server.builtin import columns
from trainyard.server.builtin.claim_rules import check_claim, prepare_claim
from trainyard.server.builtin.secret_rules import secret_problems
from trainyard.server.model import errors
from trainyard.server.model.context import RequestContext
from trainyard.server.model.resources import Column, Resource
from trainyard.server.registry.tables import AGE, NAME

PROTECTED_NAMESPACES = ("default", "kube-system", "kube-public")
MAX_BYTES = 1024 * 1024  # of all values of a ConfigMap or a Secret together
_PLAIN_TEXT_FIELD = {"data": "stringData", "binaryData": "data"}


def _prepare_namespace(new: Json, old: Json | None, context: RequestContext) -> None:
    if old is None:
        finalizers = (new.get("spec") or {}).get("finalizers") or []
        new["spec"] = {"finalizers": finalizers if "kubernetes" in finalizers else [*finalizers, "kubernetes"]}
        new["status"] = {"phase": "Active"}
    else:
        new["spec"] = old.get("spec") or {}
    labels = new["metadata"].setdefault("labels", {})
    labels["kubernetes.io/metadata.name"] = new["metadata"].get("name", "")


def _phase_field(obj: Json) -> Mapping[str, str]:
    return {"status.phase": string_or_empty((obj.get("status") or {}).get("phase"))}


def _node_fields(node: Json) -> Mapping[str, str]:
    return {"spec.unschedulable": "true" if (node.get("spec") or {}).get("unschedulable") else "false"}


def _prepare_node(new: Json, old: Json | None, context: RequestContext) -> None:
    set_defaults(new, spec={}, status={})


def _frozen(new: Json, old: Json | None) -> list[Problem]:
    """Problems of the keys of a ConfigMap or Secret, and of changes to an immutable one."""
    problems: list[Problem] = []
    if old is not None and old.get("immutable") is True:
        for name in ("immutable", "data", "binaryData", "stringData"):
            if new.get(name) != old.get(name):
                problems.append(Problem(name, "Forbidden: field is immutable when `immutable` is set"))
    for key in (new.get("data") or {}).keys() & (new.get("binaryData") or {}).keys():
        text = f"Invalid value: {json_text(key)}: duplicate of key present in binaryData"
        problems.append(Problem(f"data[{key[:80]}]", text))
    for name in ("data", "binaryData"):
        for key in new.get(name) or ():
            problems += validate_config_key(key, f"{name}[{key[:300]}]")
    return problems


def _check_config_map(new: Json, old: Json | None) -> list[Problem]:
    size = sum(len(value.encode("utf-8", "replace")) for value in (new.get("data") or {}).values())
    return [*_frozen(new, old), *_too_large(size + _decoded_size(new, "binaryData"), "[]")]


def _check_secret(new: Json, old: Json | None) -> list[Problem]:
    size = _decoded_size(new, "data")
    return [*_frozen(new, old), *_too_large(size, "data"), *secret_problems(new)]


def _too_large(size: int, path: str) -> list[Problem]:
    return [Problem(path, f"Too long: may not be more than {MAX_BYTES} bytes")] if size > MAX_BYTES else []


def _decoded_size(new: Json, field: str) -> int:
    """The number of bytes of all decoded values of a field. Raises StatusError 400 if a value is not base64."""
    size = 0
    for key, value in (new.get(field) or {}).items():
        try:
            size += len(base64.b64decode(value, validate=True))
        except (binascii.Error, ValueError):
            # The value may be a secret, so the message does not show it.
            message = f"{field}[{key[:80]}]: illegal base64 data; use {_PLAIN_TEXT_FIELD[field]} for plain text"
            kind = new["kind"]
            message = f'{kind} in version "v1" cannot be handled as a {kind}: {message}'
            raise errors.bad_request(errors.printable(message)) from None
    return size


def _prepare_secret(new: Json, old: Json | None, context: RequestContext) -> None:
    string_data = new.pop("stringData", None)
    if string_data:
        encoded = {
            key: base64.b64encode(value.encode("utf-8", "replace")).decode() for key, value in string_data.items()
        }
        new["data"] = {**(new.get("data") or {}), **encoded}
    set_defaults_for_zero(new, type="Opaque")


def _data_column(*names: str) -> Column:
    return Column("Data", lambda obj, now: sum(len(obj.get(name) or {}) for name in names))


def _prepare_account(new: Json, old: Json | None, context: RequestContext) -> None:
    """Reduce the references of a ServiceAccount to their names."""
    for field in ("secrets", "imagePullSecrets"):
        if new.get(field):
            new[field] = [{"name": reference["name"]} if reference.get("name") else {} for reference in new[field]]


def _prepare_lease(new: Json, old: Json | None, context: RequestContext) -> None:
    set_defaults(new, spec={})


def _check_lease(new: Json, old: Json | None) -> list[Problem]:
    if (seconds := new["spec"].get("leaseDurationSeconds")) is None or seconds > 0:
        return []
    return [Problem("spec.leaseDurationSeconds", f"Invalid value: {seconds}: must be greater than 0")]


CORE = (
    Resource(
        kind="Namespace",
        plural="namespaces",
        short=("ns",),
        namespaced=False,
        contents="namespace",
        protected_names=PROTECTED_NAMESPACES,
        deletes_collection=False,
        status=True,
        name_rule="label",
        subresources=("finalize",),
        prepare=_prepare_namespace,
        fields=_phase_field,
        field_names=("status.phase",),
        columns=(NAME, Column("Status", columns.phase), AGE),
    ),
    Resource(
        kind="Node",
        plural="nodes",
        short=("no",),
        namespaced=False,
        status=True,
        status_on_create=True,
        prepare=_prepare_node,
        fields=_node_fields,
        field_names=("spec.unschedulable",),
        columns=columns.NODE,
    ),
    Resource(
        kind="ConfigMap",
        plural="configmaps",
        short=("cm",),
        check=_check_config_map,
        columns=(NAME, _data_column("data", "binaryData"), AGE),
    ),
    Resource(
        kind="Secret",
        plural="secrets",
        immutable=("type",),
        prepare=_prepare_secret,
        check=_check_secret,
        fields=lambda secret: {"type": string_or_empty(secret.get("type"))},
        field_names=("type",),
        columns=(NAME, Column("Type", lambda obj, now: obj.get("type")), _data_column("data"), AGE),
    ),
    Resource(
        kind="ServiceAccount",
        returns_deleted=True,
        plural="serviceaccounts",
        short=("sa",),
        subresources=("token",),
        prepare=_prepare_account,
        columns=(NAME, AGE),
    ),
    Resource(
        kind="PersistentVolumeClaim",
        returns_deleted=True,
        plural="persistentvolumeclaims",
        short=("pvc",),
        status=True,
        prepare=prepare_claim,
        check=check_claim,
        columns=columns.CLAIM,
    ),
    Resource(
        kind="Endpoints",
        plural="endpoints",
        singular="endpoints",
        short=("ep",),
        columns=columns.ENDPOINTS,
    ),
)

OTHERS = (
    Resource(
        group="coordination.k8s.io",
        kind="Lease",
        plural="leases",
        prepare=_prepare_lease,
        check=_check_lease,
        requires_version=True,
        columns=(
            NAME,
            Column("Holder", lambda obj, now: string_or_empty((obj.get("spec") or {}).get("holderIdentity"))),
            AGE,
        ),
    ),
)

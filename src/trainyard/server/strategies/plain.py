"""Resources that need few words: namespaces, nodes, ConfigMaps, Secrets, accounts, claims, endpoints, leases."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

from trainyard.objects import Json, Problem
from trainyard.schema import Schema
from trainyard.schema.checks import shown
from trainyard.server import errors, metadata
from trainyard.server.resources import Column, Resource
from trainyard.server.site import Site
from trainyard.server.strategies import cells
from trainyard.server.strategies.claim_rules import (
    check_claim,
    prepare_claim,
    prepare_status,
    status_problems,
)
from trainyard.server.strategies.lease_rules import lease_problems
from trainyard.server.strategies.refusing import config_key
from trainyard.server.strategies.secret_rules import secret_problems, secret_warnings
from trainyard.server.strategies.shapes import (
    BOOLEAN,
    FREE,
    INTEGER,
    PAIRS,
    STRING,
    fill,
    fill_empty,
    many,
    obj,
    text,
    whole,
)
from trainyard.server.tables import AGE, NAME

MOST_BYTES = 1024 * 1024  # of all values of a ConfigMap or a Secret together
_OLD_MOUNTS = "kubernetes.io/enforce-mountable-secrets"
_COORDINATED = ("strategy", "preferredHolder")
_PLAIN = {"data": "stringData", "binaryData": "data"}


def prepare_namespace(new: Json, old: Json | None, site: Site) -> None:
    if old is None:
        asked = (new.get("spec") or {}).get("finalizers") or []
        new["spec"] = {"finalizers": asked if "kubernetes" in asked else [*asked, "kubernetes"]}
        new["status"] = {"phase": "Active"}
    else:
        new["spec"] = old.get("spec") or {}
    labels = new["metadata"].setdefault("labels", {})
    labels["kubernetes.io/metadata.name"] = new["metadata"].get("name", "")


def _check_namespace(new: Json, old: Json | None) -> list[Problem]:
    """On its way in; afterwards only /finalize changes them."""
    return [] if old is not None else metadata.finalizer_problems(new["spec"]["finalizers"])


def phase_field(obj: Json) -> Mapping[str, str]:
    return {"status.phase": text((obj.get("status") or {}).get("phase"))}


def _node_fields(node: Json) -> Mapping[str, str]:
    return {"spec.unschedulable": "true" if (node.get("spec") or {}).get("unschedulable") else "false"}


def _prepare_node(new: Json, old: Json | None, site: Site) -> None:
    fill(new, spec={}, status={})


def _frozen(new: Json, old: Json | None) -> list[Problem]:
    """An immutable ConfigMap or Secret keeps what it holds."""
    found: list[Problem] = []
    if old is not None and old.get("immutable") is True:
        for name in ("immutable", "data", "binaryData", "stringData"):
            if new.get(name) != old.get(name):
                found.append(Problem(name, "Forbidden: field is immutable when `immutable` is set"))
    for key in (new.get("data") or {}).keys() & (new.get("binaryData") or {}).keys():
        text = f"Invalid value: {shown(key)}: duplicate of key present in binaryData"
        found.append(Problem(f"data[{key[:80]}]", text))
    for name in ("data", "binaryData"):
        for key in new.get(name) or ():
            found += config_key(key, f"{name}[{key[:300]}]")
    return found


def _check_map(new: Json, old: Json | None) -> list[Problem]:
    size = sum(len(value.encode("utf-8", "replace")) for value in (new.get("data") or {}).values())
    return [*_frozen(new, old), *_too_large(size + _decoded_size(new, "binaryData"), "[]")]


def _check_secret(new: Json, old: Json | None) -> list[Problem]:
    size = _decoded_size(new, "data")
    return [*_frozen(new, old), *_too_large(size, "data"), *secret_problems(new, old)]


def _too_large(size: int, path: str) -> list[Problem]:
    return [Problem(path, f"Too long: may not be more than {MOST_BYTES} bytes")] if size > MOST_BYTES else []


def _decoded_size(new: Json, field: str) -> int:
    """How many bytes the values of that map are. Raises Refused 400 when one of them is no base64."""
    size = 0
    for key, value in (new.get(field) or {}).items():
        try:
            size += len(base64.b64decode(value, validate=True))
        except (binascii.Error, ValueError):
            # The value may be a secret, so the message does not show it.
            text = f"{field}[{key[:80]}]: illegal base64 data; use {_PLAIN[field]} for plain text"
            kind = new["kind"]
            text = f'{kind} in version "v1" cannot be handled as a {kind}: {text}'
            raise errors.bad_request(errors.printable(text)) from None
    return size


def _prepare_secret(new: Json, old: Json | None, site: Site) -> None:
    plain = new.pop("stringData", None)
    if plain:
        coded = {key: base64.b64encode(value.encode("utf-8", "replace")).decode() for key, value in plain.items()}
        new["data"] = {**(new.get("data") or {}), **coded}
    fill_empty(new, type="Opaque")
    site.warnings.extend(secret_warnings(new))


def _size(*names: str) -> Column:
    return Column("Data", lambda obj, now: sum(len(obj.get(name) or {}) for name in names))


def _annotation(one: Json | None, name: str) -> str | None:
    found: str | None = ((one or {}).get("metadata", {}).get("annotations") or {}).get(name)
    return found


def _prepare_account(new: Json, old: Json | None, site: Site) -> None:
    """Of what an account refers to, only names are kept."""
    for field in ("secrets", "imagePullSecrets"):
        if new.get(field):
            new[field] = [{"name": one["name"]} if one.get("name") else {} for one in new[field]]
    said, before = (_annotation(one, _OLD_MOUNTS) for one in (new, old))
    if said is not None and before is None:
        why = "deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
        site.warnings.append(f"metadata.annotations[{_OLD_MOUNTS}]: {why}")


def _prepare_lease(new: Json, old: Json | None, site: Site) -> None:
    """Coordinated elections are not enabled."""
    spec = {name: part for name, part in (new.get("spec") or {}).items() if name not in _COORDINATED}
    new["spec"] = spec


_LEASE = obj(
    holderIdentity=STRING,
    acquireTime=STRING,
    renewTime=STRING,
    leaseDurationSeconds=INTEGER,
    leaseTransitions=INTEGER,
)

CORE = (
    Resource(
        kind="Namespace",
        plural="namespaces",
        short=("ns",),
        namespaced=False,
        status=True,
        name_rule="label",
        subresources=("finalize",),
        schema=whole(FREE, required=False),
        prepare=prepare_namespace,
        check=_check_namespace,
        fields=phase_field,
        field_names=("status.phase",),
        columns=(NAME, Column("Status", cells.phase), AGE),
    ),
    Resource(
        kind="Node",
        plural="nodes",
        short=("no",),
        namespaced=False,
        status=True,
        born_with_status=True,
        schema=whole(FREE, required=False),
        prepare=_prepare_node,
        fields=_node_fields,
        field_names=("spec.unschedulable",),
        columns=cells.NODE,
    ),
    Resource(
        kind="ConfigMap",
        plural="configmaps",
        short=("cm",),
        schema=Schema.ours(obj(data=PAIRS, binaryData=PAIRS, immutable=BOOLEAN)),
        check=_check_map,
        columns=(NAME, _size("data", "binaryData"), AGE),
    ),
    Resource(
        kind="Secret",
        plural="secrets",
        schema=Schema.ours(obj(data=PAIRS, stringData=PAIRS, type=STRING, immutable=BOOLEAN)),
        prepare=_prepare_secret,
        check=_check_secret,
        fields=lambda secret: {"type": text(secret.get("type"))},
        field_names=("type",),
        columns=(NAME, Column("Type", lambda obj, now: obj.get("type")), _size("data"), AGE),
    ),
    Resource(
        kind="ServiceAccount",
        returned=True,
        plural="serviceaccounts",
        short=("sa",),
        subresources=("token",),
        schema=Schema.ours(obj(secrets=many(FREE), imagePullSecrets=many(FREE), automountServiceAccountToken=BOOLEAN)),
        prepare=_prepare_account,
        columns=(NAME, AGE),
    ),
    Resource(
        kind="PersistentVolumeClaim",
        returned=True,
        plural="persistentvolumeclaims",
        short=("pvc",),
        status=True,
        schema=whole(FREE, required=False),
        prepare=prepare_claim,
        prepare_status=prepare_status,
        check_status=status_problems,
        check=check_claim,
        columns=cells.CLAIM,
    ),
    Resource(
        kind="Endpoints",
        plural="endpoints",
        short=("ep",),
        schema=Schema.ours(obj(subsets=many(FREE))),
        columns=cells.ENDPOINTS,
    ),
)

OTHERS = (
    Resource(
        group="coordination.k8s.io",
        kind="Lease",
        plural="leases",
        schema=Schema.ours(obj(spec=_LEASE)),
        prepare=_prepare_lease,
        check=lease_problems,
        names_version=True,
        columns=(NAME, Column("Holder", lambda obj, now: text((obj.get("spec") or {}).get("holderIdentity"))), AGE),
    ),
)

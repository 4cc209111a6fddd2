"""For pytest: a real control plane for the whole run, and a namespace for each test.

Rules:
- Each process of pytest has one of its own: tests in one process never overlap, so any of them may stop the API server,
  count its requests, or write cluster-wide objects, and nobody else sees it.
- It must be up when a test ends. What a test changes for good (flags, lost nodes) it changes on one of its own.
- When it cannot be had, tests fail. They are never skipped.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.support.control_plane import ControlPlane
from tests.support.control_plane_flags import Options
from tests.support.control_plane_process import ControlPlaneError
from tests.support.gang_gates import GATES
from trainyard import kinds
from trainyard.objects import encode

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """A real control plane, with nothing of ours in it."""
    with ControlPlane() as plane:
        yield plane


@pytest.fixture(scope="module")
def gang_plane() -> Iterator[ControlPlane]:
    """One of its own that serves PodGroups and schedules by them."""
    with ControlPlane(Options(more=GATES)) as plane:
        yield plane


@pytest.fixture(scope="session")
def installed(control_plane: ControlPlane) -> ControlPlane:
    """The same with the definitions of all our kinds."""
    install(control_plane)
    return control_plane


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A namespace in which pods can be made."""
    name = f"test-{next(_numbers)}"
    create_namespace(control_plane, name)
    yield name
    control_plane.ask("DELETE", f"/api/v1/namespaces/{name}")


def create_namespace(plane: ControlPlane, name: str, **labels: str) -> None:
    """Create it, and wait for its `default` ServiceAccount: before that, pods are refused."""
    code, answer = plane.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    if code != 201:
        raise ControlPlaneError(f"namespace {name}: {code} {answer.get('message')}")
    plane.wait_for(f"/api/v1/namespaces/{name}/serviceaccounts/default")


def install(plane: ControlPlane) -> str:
    """The definitions of all kinds, established and told to clients. What kubectl said, warnings included."""
    items = [kinds.crd(kind) for kind in kinds.ALL]
    output = plane.kubectl(
        "apply", "-f", "-", stdin=encode({"apiVersion": "v1", "kind": "List", "items": items}).decode()
    )
    names = [f"crd/{item['metadata']['name']}" for item in items]
    plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", *names)
    for kind in kinds.ALL:
        plane.wait_for(f"/openapi/v3/apis/{kind.gvk.api_version}")
    known = {f"{kind.gvk.plural}.{kind.gvk.group}" for kind in kinds.ALL}
    plane.wait_until(
        lambda: known <= set(plane.kubectl("api-resources", "-o", "name").splitlines()),
        "every definition was in discovery",
    )
    return output

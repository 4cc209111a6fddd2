"""The real control plane, what it has answered before, and the tables of good and bad input that tests/kinds has."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Generator, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.control_plane.fault_stories import Story, story
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_fixtures import (
    control_plane,
    create_namespace,
    gang_plane,
    installed,
    namespace,
)
from tests.support.kept_answers import KeptAnswers, KeptChecks, KeptServer, NotKept, definition_key, mode
from trainyard import kinds
from trainyard.objects import GVK

__all__ = ["control_plane", "gang_plane", "installed", "namespace", "peopled", "server"]

ANSWERS, CHECKS = pytest.StashKey[KeptAnswers](), pytest.StashKey[KeptChecks]()


@pytest.fixture
def peopled(installed: ControlPlane) -> ControlPlane:
    """The same with a node that KWOK plays. Not for threads: a program ends with the thread that has started it."""
    installed.add_node("node-1")
    return installed


@pytest.fixture
async def scenario(installed: ControlPlane, namespace: str, tmp_path: Path) -> AsyncIterator[Story]:
    """A namespace with an operator's account and a scripted kubelet, for the stories of faults."""
    async with story(installed, namespace, tmp_path) as scenario:
        yield scenario


@pytest.fixture(scope="session")
def answers(pytestconfig: pytest.Config) -> KeptAnswers:
    return pytestconfig.stash.setdefault(ANSWERS, KeptAnswers())


@pytest.fixture(scope="session")
def checks(pytestconfig: pytest.Config) -> KeptChecks:
    return pytestconfig.stash.setdefault(CHECKS, KeptChecks())


@cache
def definition_keys() -> dict[GVK, str]:
    return {kind.gvk: definition_key(kinds.crd(kind)) for kind in kinds.ALL}


@pytest.fixture
def server(request: pytest.FixtureRequest, answers: KeptAnswers) -> Iterator[KeptServer]:
    """For a test with a parameter `kind`: the API server with the definition of that kind, and a namespace."""
    planes: list[ControlPlane] = []

    def connect(namespace: str) -> ControlPlane:
        plane: ControlPlane = request.getfixturevalue("installed")
        create_namespace(plane, namespace)
        planes.append(plane)
        return plane

    definition = definition_keys()[request.getfixturevalue("kind").gvk]
    kept_server = KeptServer(answers, request.node.name, definition, connect, mode=mode())
    yield kept_server
    for plane in planes:
        plane.ask("DELETE", f"/api/v1/namespaces/{kept_server.namespace}")


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Run a test again beside a real server when an answer is not kept."""
    try:
        return (yield)
    except NotKept as error:
        kept_server = pyfuncitem.funcargs.get("server")
        if not isinstance(kept_server, KeptServer):
            raise
        warnings.warn(f"asked the real API server: {error} is not kept; run `make kept-answers`", stacklevel=1)
        kept_server.ask_the_real_server()
        pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames})
        return True


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """`make kept-answers` replaces both files when every test has passed. A part of the tests replaces nothing."""
    is_part = session.config.option.keyword or hasattr(session.config, "workerinput")
    if mode() == "write" and exitstatus == pytest.ExitCode.OK and not is_part:
        for key in (ANSWERS, CHECKS):
            if key in session.config.stash:
                session.config.stash[key].write()

"""Pods that attack a node which has joined a real control plane, in both networks.

`tests/attacks/test_by_a_pod.py` tries the same where the API server is ours.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.control_plane.joined_commands import Joined, joined
from tests.support.control_plane import ControlPlane
from trainyard.objects import Json
from trainyard.objects.resources import POD

pytestmark = pytest.mark.cluster
SECRET = "the administrator's token"


@pytest.fixture
def secret() -> Iterator[str]:
    """A file of the person's that pods would like to read."""
    with tempfile.NamedTemporaryFile("w", prefix="secret-") as file:
        file.write(SECRET)
        file.flush()
        yield file.name


@pytest.fixture(params=["namespace", "shared"])
async def either(request: pytest.FixtureRequest, control_plane: ControlPlane, namespace: str) -> AsyncIterator[Joined]:
    async with joined(control_plane, namespace, network=request.param) as node:
        yield node


async def goes_on(here: Joined) -> None:
    """Another pod starts and ends, so the watch of pods and the event loop still work."""
    await here.pod("neighbour", "echo fine")
    assert await here.result("neighbour") == "fine\n"
    await here.api.delete(POD, here.namespace, "neighbour", grace_period_seconds=0)
    await here.gone("neighbour")


def end_of(pod: Json) -> Json:
    return dict(pod["status"]["containerStatuses"][0]["state"]["terminated"])


async def test_a_pod_name_of_253_letters_runs_beside_others(either: Joined) -> None:
    name = "x" * 253
    await either.pod(name, "echo long")
    assert await either.result(name) == "long\n"
    await goes_on(either)
    await either.api.delete(POD, either.namespace, name, grace_period_seconds=0)
    await either.gone(name)


REPLACE = """
for path in {state}/pods/*/messages/main/1 {state}/pods/*/logs/main/1.log; do
    rm -f "$path"; {make} "$path"
done
exit 3
"""


@pytest.mark.parametrize("make", ["mkfifo", "ln -s {secret}", "mkdir"])
async def test_a_replaced_termination_message_or_log_file_blocks_nothing_and_leaks_nothing(
    either: Joined, secret: str, make: str
) -> None:
    assert either.node is not None
    state = either.node._options.state
    script = REPLACE.format(state=state, make=make.format(secret=secret))
    more = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    await either.pod("attacker", script, container=more)
    message = end_of(await either.phase("attacker", "Failed")).get("message", "")
    _, out, err = await either.run("logs", "attacker")
    assert SECRET not in message + out + err
    await goes_on(either)


async def test_variables_of_exponential_size_are_refused_during_expansion(either: Joined) -> None:
    env = [{"name": "A0", "value": "x" * 64}]
    env += [{"name": f"A{number}", "value": f"$(A{number - 1})$(A{number - 1})"} for number in range(1, 40)]
    await either.pod("attacker", "sleep 600", container={"env": env})
    end = end_of(await either.phase("attacker", "Failed"))
    assert end["reason"] == "StartError" and "longer than 131072 bytes" in end["message"]
    await goes_on(either)


@pytest.mark.parametrize("link", ["/", "../../../..", "loop"])
async def test_a_sub_path_through_a_link_of_an_init_container_stays_in_the_volume(either: Joined, link: str) -> None:
    mounts = [{"name": "data", "mountPath": "/data"}]
    command = ["/bin/sh", "-c", f"ln -s {link} /data/loop"]
    prepare = {"name": "prepare", "image": "any", "command": command, "volumeMounts": mounts}
    reads = {"volumeMounts": [{"name": "data", "mountPath": "/there", "subPath": "loop"}]}
    volumes = [{"name": "data", "emptyDir": {}}]
    await either.pod("attacker", "ls /there", container=reads, initContainers=[prepare], volumes=volumes)
    assert "subPath" in end_of(await either.phase("attacker", "Failed"))["message"]
    await goes_on(either)

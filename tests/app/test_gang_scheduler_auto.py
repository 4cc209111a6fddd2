"""`--gang-scheduler-name=auto` against our real server, which serves one API of PodGroups, both or none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from tests.app.operating_setup import options
from tests.app.operating_values import Site, running_site, types_of
from tests.support.running_operator import operating
from tests.support.samples import kubeflow_job
from trainyard import kinds
from trainyard.app.operating import parse_kinds
from trainyard.client import ApiClient, ApiRequest, Unavailable
from trainyard.kinds.kubeflow_v1.gang import PLUGINS_POD_GROUP, VOLCANO_POD_GROUP
from trainyard.objects import Json, labels_of
from trainyard.objects.resources import CRD, NATIVE_POD_GROUP, POD

DEFINITIONS = {
    definition["spec"]["group"]: definition
    for definition in yaml.safe_load_all((Path(__file__).parents[1] / "drop_in" / "pod_groups.yaml").read_text())
}
EVERYTHING = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """Its server lacks Kubernetes' own PodGroups, as one without the feature gate does."""
    async with running_site(tmp_path, (kinds.JAXJOB,)) as server_site:
        server_site.server.registry.remove(NATIVE_POD_GROUP.group, NATIVE_POD_GROUP.plural)
        yield server_site


async def _serve(site: Site, *groups: str) -> None:
    await site.account(EVERYTHING)
    for group in groups:
        await site.api.create(CRD, "", DEFINITIONS[group])


async def _submit(site: Site) -> None:
    job = {**kubeflow_job("JAXJob", Worker=1), "metadata": {"name": "example"}}
    await site.api.create(kinds.JAXJOB.gvk, "default", job)


async def _pod(site: Site) -> Json:
    (pod,) = await site.until(POD, lambda pods: len(pods) == 1)
    return dict(pod)


async def test_volcano_alone_is_used(site: Site) -> None:
    await _serve(site, VOLCANO_POD_GROUP.group)
    async with operating(options(site, kinds=parse_kinds("jaxjob"), gang_scheduler="auto")):
        await _submit(site)
        (group,) = await site.until(VOLCANO_POD_GROUP, lambda groups: len(groups) == 1)
        assert group["spec"]["minMember"] == 1
        await site.until(kinds.JAXJOB.gvk, lambda jobs: "Created" in types_of(jobs[0]))
        assert (await site.api.list(POD, "default"))["items"] == []  # Volcano has not admitted the group
        await site.api.patch(VOLCANO_POD_GROUP, "default", "example", {"status": {"phase": "Inqueue"}}, "status")
        assert (await _pod(site))["spec"]["schedulerName"] == "volcano"


async def test_scheduler_plugins_alone_are_those_of_the_default_scheduler(site: Site) -> None:
    await _serve(site, PLUGINS_POD_GROUP.group)
    async with operating(options(site, kinds=parse_kinds("jaxjob"), gang_scheduler="auto")):
        await _submit(site)
        pod = await _pod(site)
        assert pod["spec"]["schedulerName"] == "default-scheduler"
        assert labels_of(pod)["scheduling.x-k8s.io/pod-group"] == "example"


async def test_those_of_kubernetes_itself_come_first(tmp_path: Path) -> None:
    async with running_site(tmp_path, (kinds.JAXJOB,)) as site:
        await _serve(site, VOLCANO_POD_GROUP.group, PLUGINS_POD_GROUP.group)
        async with operating(options(site, kinds=parse_kinds("jaxjob"), gang_scheduler="auto")):
            await _submit(site)
            assert (await _pod(site))["spec"]["schedulingGroup"] == {"podGroupName": "example-0"}
            (group,) = await site.until(NATIVE_POD_GROUP, lambda groups: len(groups) == 1)
            assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 1}}


async def test_of_both_volcano_is_used(site: Site) -> None:
    await _serve(site, VOLCANO_POD_GROUP.group, PLUGINS_POD_GROUP.group)
    async with operating(options(site, kinds=parse_kinds("jaxjob"), gang_scheduler="auto")):
        await _submit(site)
        await site.until(VOLCANO_POD_GROUP, lambda groups: len(groups) == 1)
    assert (await site.api.list(PLUGINS_POD_GROUP, "default"))["items"] == []


async def _runs_alone(site: Site) -> None:
    await _submit(site)
    pod = await _pod(site)
    assert pod["spec"]["schedulerName"] == "default-scheduler" and "schedulingGroup" not in pod["spec"]
    assert not [label for label in labels_of(pod) if "scheduling" in label]


async def test_with_none_there_is_no_gang(site: Site) -> None:
    await _serve(site)
    async with operating(options(site, kinds=parse_kinds("jaxjob"), gang_scheduler="auto")):
        await _runs_alone(site)


async def test_native_gangs_that_the_cluster_lacks_are_said_at_the_start_and_on_the_job(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """An API server without them drops the field of the pods without a word."""
    await _serve(site)
    async with operating(options(site, kinds=parse_kinds("jaxjob"), gang_scheduler="native")):
        await _runs_alone(site)
        await site.until(kinds.JAXJOB.gvk, lambda jobs: "GangIgnored" in types_of(jobs[0]))
    assert "the API server serves no podgroups of scheduling.k8s.io/v1beta1. Start kube-apiserver with" in caplog.text


async def test_without_the_option_volcano_of_others_is_left_alone(site: Site) -> None:
    await _serve(site, VOLCANO_POD_GROUP.group)
    async with operating(options(site, kinds=parse_kinds("jaxjob"))):
        await _submit(site)
        assert (await _pod(site))["spec"]["schedulerName"] == "default-scheduler"
    assert (await site.api.list(VOLCANO_POD_GROUP, "default"))["items"] == []


async def test_an_api_server_that_does_not_answer_yet_is_asked_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not be taken for one without PodGroups."""
    await _serve(site, VOLCANO_POD_GROUP.group)
    send = ApiClient.send
    refused: list[ApiRequest] = []

    async def unavailable_at_first(self: ApiClient, request: ApiRequest) -> bytes:
        if request.path.startswith("/apis/scheduling") and not refused:
            refused.append(request)
            raise Unavailable(503, "ServiceUnavailable", "not yet")
        return await send(self, request)

    monkeypatch.setattr(ApiClient, "send", unavailable_at_first)
    async with operating(options(site, kinds=parse_kinds("jaxjob"), gang_scheduler="auto")):
        await _submit(site)
        await site.until(VOLCANO_POD_GROUP, lambda groups: len(groups) == 1)
    assert refused

"""The operator's process against our real server: by TLS, as a ServiceAccount with few rights."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from operating_values import NARROW, TFJOB, Site, running_site, tf_job, types_of

from trainyard import kinds
from trainyard.app.config import shipped_files
from trainyard.app.kubeconfig import ClusterAccess, KubeconfigError
from trainyard.app.operating import (
    OperatorOptions,
    OperatorProcess,
    cluster_domain,
    find_cluster,
    follow_config,
    lease_identity,
    lease_timings,
    parse_address,
    parse_kinds,
)
from trainyard.client import Api, Unavailable
from trainyard.client.credentials import StaticCredentials
from trainyard.controller_runtime.lease import LeaseTimings
from trainyard.core import Config
from trainyard.objects.manifest import ManifestError
from trainyard.objects.resources import CRD, EVENT, JOB, LEASE, NAMESPACE, SERVICE
from trainyard.objects.structs import replace
from trainyard.testing.operators import operating

QUICK = LeaseTimings(duration=2, deadline=1.5, retry=0.1, renew=0.5)
LEASE_NAME = "trainyard-tfjob"


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with running_site(tmp_path) as made:
        yield made


def options(site: Site, **more: Any) -> OperatorOptions:
    access = find_cluster(site.env, folder=site.folder)
    words: dict[str, Any] = {"kinds": parse_kinds("tfjob"), "config": Config(program_files=shipped_files()), **more}
    return OperatorOptions(access, **words)


async def eventually(true: Callable[[], bool]) -> None:
    """For what no watch tells: what the process itself thinks."""
    for _ in range(1000):
        if true():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not come true")


async def test_in_a_pod_it_works_with_the_rights_of_its_account_and_asks_for_no_others(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    await site.account(NARROW)
    async with operating(options(site)):
        await site.api.create(TFJOB, "default", tf_job())
        await site.says("mnist", "Created")
        await site.until(JOB, lambda jobs: len(jobs) == 1)
        await site.until(EVENT, lambda events: bool(events))
    assert not [record for record in caplog.records if "403" in record.getMessage()]
    assert len((await site.api.list(SERVICE, "default"))["items"]) >= 1


async def test_kinds_that_are_not_served_are_not_asked_about(site: Site) -> None:
    await site.account(NARROW)
    before = site.server.verbs.copy()
    async with operating(options(site)) as one:
        await site.api.create(TFJOB, "default", tf_job())
        await site.says("mnist", "Created")
        assert one.ready() == ""
    asked = {resource for _, resource in site.server.verbs - before}
    assert "statefulsets" not in asked and "elasticjobs" not in asked


async def test_an_expired_token_is_replaced_by_the_one_in_the_file(site: Site) -> None:
    await site.account(NARROW)
    async with operating(options(site)):
        await site.api.create(TFJOB, "default", tf_job("one"))
        await site.says("one", "Created")
        site.shift += 700  # the token lived for 600
        await site.new_token()
        await site.api.create(TFJOB, "default", tf_job("two"))
        await site.says("two", "Created")


async def test_it_goes_on_when_a_new_token_comes_late(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    await site.account(NARROW)
    async with operating(options(site)):
        await site.api.create(TFJOB, "default", tf_job("one"))
        await site.says("one", "Created")
        site.shift += 700
        await site.api.create(TFJOB, "default", tf_job("two"))
        await eventually(lambda: "401" in caplog.text)
        await site.new_token()
        await site.says("two", "Created")


async def test_a_program_in_the_kubeconfig_is_asked_again_when_its_token_dies(site: Site, tmp_path: Path) -> None:
    await site.account(NARROW)
    code = "import json, pathlib, sys\nstatus = {'token': pathlib.Path(sys.argv[1]).read_text()}\n"
    code += "print(json.dumps({'apiVersion': sys.argv[2], 'kind': 'ExecCredential', 'status': status}))\n"
    version = "client.authentication.k8s.io/v1"
    plugin = {"apiVersion": version, "command": sys.executable, "interactiveMode": "Never"}
    user = {"exec": {**plugin, "args": ["-c", code, str(site.folder / "token"), version]}}
    cluster = {"server": site.server.tls_url, "certificate-authority": str(site.folder / "ca.crt")}
    content = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(content))
    words = replace(options(site), access=find_cluster({}, str(tmp_path / "kubeconfig")))
    async with operating(words):
        await site.api.create(TFJOB, "default", tf_job("one"))
        await site.says("one", "Created")
        site.shift += 700  # the program has not said that its token would end
        await site.new_token()
        await site.api.create(TFJOB, "default", tf_job("two"))
        await site.says("two", "Created")


async def test_a_new_authority_is_trusted_when_its_certificate_is_in_the_folder(site: Site) -> None:
    await site.account(NARROW)
    who = find_cluster(site.env, folder=site.folder)
    old = await who.credentials().identity()
    credentials = who.credentials()
    async with operating(options(site)):
        await site.api.create(TFJOB, "default", tf_job("one"))
        await site.says("one", "Created")
        site.rotate()
        await site.api.create(TFJOB, "default", tf_job("two"))
        await site.says("two", "Created")
    async with (
        Api(who.server, StaticCredentials(old.token, old.secure)) as late,
        Api(who.server, credentials) as renewed,
    ):
        with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
            await late.list(TFJOB)
        await renewed.list(TFJOB)


async def test_one_namespace_or_all(site: Site) -> None:
    await site.account(NARROW)
    await site.api.create(NAMESPACE, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    await site.api.create(TFJOB, "default", tf_job("here"))
    await site.api.create(TFJOB, "other", tf_job("there", "other"))
    async with operating(options(site, namespace="other")):
        await site.says("there", "Created", "other")
        assert not types_of(await site.api.get(TFJOB, "default", "here"))
    async with operating(options(site)):
        await site.says("here", "Created")


async def test_a_kind_without_its_crd_is_parked_and_served_when_it_comes(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainyard.controller_runtime.reflector.NOT_SERVED_MAX_DELAY", 0.3)
    await site.api.delete(CRD, "", kinds.crd(kinds.TFJOB)["metadata"]["name"])
    await site.account(NARROW)
    async with operating(options(site)) as one:
        await eventually(lambda: not one.ready())
        assert metric(one, 'trainyard_watch_state{group="tensorflow.org",resource="tfjobs",state="missing"}') == 1
        await site.api.create(CRD, "", kinds.crd(kinds.TFJOB))
        await site.api.create(TFJOB, "default", tf_job())
        await site.says("mnist", "Created")
        assert metric(one, 'trainyard_watch_state{group="tensorflow.org",resource="tfjobs",state="watching"}') == 1
        assert one.alive() == ""


# The lease.


async def test_two_operators_and_one_works_until_it_goes(site: Site) -> None:
    await site.account(NARROW)
    both = [options(site, seat=lease_identity({}, options(site).kinds), terms=QUICK) for _ in range(2)]
    async with operating(both[0]) as one, operating(both[1]) as two:
        await site.api.create(TFJOB, "default", tf_job("a"))
        await site.says("a", "Created")
        leading = [metric(each, "trainyard_leader") for each in (one, two)]
        assert sorted(leading) == [0, 1]
        assert metric(one if leading[0] else two, 'trainyard_jobs{kind="TfJob",state="Created"}') == 1
        await eventually(lambda: not (one.ready() or two.ready()))  # to stand by is to be ready


async def test_a_leader_that_stops_lets_the_next_one_in_at_once(site: Site) -> None:
    await site.account(NARROW)
    slow = LeaseTimings(duration=600, deadline=300, retry=0.1, renew=200)
    both = [options(site, seat=lease_identity({}, options(site).kinds), terms=slow) for _ in range(2)]
    async with operating(both[0]):
        await site.api.create(TFJOB, "default", tf_job("a"))
        await site.says("a", "Created")
    assert "holderIdentity" not in (await site.api.get(LEASE, "default", LEASE_NAME))["spec"]
    async with operating(both[1]):
        await site.api.create(TFJOB, "default", tf_job("b"))
        await site.says("b", "Created")
    spec = (await site.api.get(LEASE, "default", LEASE_NAME))["spec"]
    assert spec["leaseTransitions"] == 1


async def test_who_loses_the_lease_writes_no_more_and_who_gets_it_back_goes_on(site: Site) -> None:
    await site.account(NARROW)
    mine = options(site, seat=lease_identity({}, options(site).kinds), terms=QUICK)
    async with operating(mine) as one:
        await site.api.create(TFJOB, "default", tf_job("a"))
        await site.says("a", "Created")
        theirs = {"holderIdentity": "somebody", "leaseDurationSeconds": 600}
        await site.api.patch(LEASE, "default", LEASE_NAME, {"spec": theirs})
        await eventually(lambda: not metric(one, "trainyard_leader"))
        await site.api.create(TFJOB, "default", tf_job("b"))
        await asyncio.sleep(0.3)  # nothing happens: there is no condition to wait for
        assert "status" not in await site.api.get(TFJOB, "default", "b")
        await site.api.patch(LEASE, "default", LEASE_NAME, {"spec": {"holderIdentity": None}})
        await site.says("b", "Created")


async def test_a_write_decided_before_the_lease_was_over_is_not_sent(site: Site) -> None:
    """A pause at the worst place: the plan is made, the connection is had, and the process is stopped there."""
    await site.account(NARROW)
    one = OperatorProcess(options(site, seat=lease_identity({}, options(site).kinds), terms=QUICK))
    election = one._election
    assert election is not None
    stop = asyncio.Event()
    task = asyncio.create_task(one.run(stop))
    await asyncio.wait_for(election.won.wait(), 20)
    real, paused = election._clock, [0.0]
    election._clock = lambda: real() + paused[0]
    paused[0] = 3600.0  # the machine slept for an hour; no timer has noticed yet, and somebody else has it now
    theirs = {"spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 6000}}
    await site.api.patch(LEASE, "default", LEASE_NAME, theirs)
    before = site.server.verbs.copy()
    await site.api.create(TFJOB, "default", tf_job())
    await asyncio.wait_for(election.lost.wait(), 20)
    await eventually(lambda: metric(one, 'trainyard_watch_objects{group="batch",resource="jobs"}') is None)
    writes = [
        verb
        for verb in site.server.verbs - before
        if verb[0] in ("create", "patch") and verb[1] in ("tfjobs/status", "jobs")
    ]
    assert not writes
    stop.set()
    await task


# Health, metrics, config.


def metric(one: OperatorProcess, name: str) -> float | None:
    for line in one.metrics.render().decode().splitlines():
        if line.startswith((f"{name} ", f"{name}{{")) and not line.startswith("#"):
            return float(line.rsplit(" ", 1)[1])
    return None


async def test_probes_and_metrics_are_served(site: Site) -> None:
    await site.account(NARROW)
    async with operating(options(site, bind=("127.0.0.1", 0))) as one, aiohttp.ClientSession() as http:
        await site.api.create(TFJOB, "default", tf_job())
        await site.says("mnist", "Created")
        made = 'trainyard_api_requests_total{code="201",resource="jobs",verb="create"}'
        await eventually(lambda: metric(one, made) == 1)  # it is sent after the status
        place = f"http://127.0.0.1:{one.health.port}"
        for path in ("/healthz", "/readyz"):
            async with http.get(place + path) as answer:
                assert (answer.status, await answer.text()) == (200, "ok\n")
        async with http.get(place + "/metrics") as answer:
            text = await answer.text()
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        async with http.get(place + "/other") as answer:
            assert answer.status == 404
    names = {line.split(" ")[2] for line in text.splitlines() if line.startswith("# TYPE trainyard_")}
    page = (Path(__file__).parents[2] / "docs" / "operator.md").read_text()
    assert names == {line.split("`")[1] for line in page.splitlines() if line.startswith("| `trainyard_")}
    assert f"{made} 1.0" in text
    assert 'trainyard_api_requests_total{code="200",resource="tfjobs",verb="watch"} 1.0' in text
    assert 'trainyard_reconcile_total{kind="TfJob",outcome="done"}' in text
    assert "mnist" not in text and 'namespace="' not in text


async def test_it_is_not_ready_before_everything_is_listed(site: Site) -> None:
    await site.account([rule for rule in NARROW if "deployments" not in rule["resources"]])
    async with operating(options(site)) as one:
        named = "not listed yet: deployments: deployments.apps is forbidden"
        await eventually(lambda: one.ready().startswith(named))
        assert 'cannot list resource "deployments"' in one.ready() and ";" not in one.ready()
        assert one.alive() == ""


async def test_a_changed_config_holds_for_the_next_pass_and_a_broken_one_is_refused(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(follow_config, "__defaults__", (0.02,))
    await site.account(NARROW)
    file = tmp_path / "config.yaml"
    file.write_text("accelerators: {}\n")
    async with operating(options(site, config_file=file)) as one:
        await eventually(lambda: not one.ready())
        file.write_text("accelerators: 7\n")
        await eventually(lambda: metric(one, 'trainyard_config_reloads_total{outcome="refused"}') == 1)
        assert "accelerators: is not a mapping" in caplog.text
        file.write_text("accelerators: {example.com/gpu: {envVars: [{name: SEEN, value: yes}]}}\n")
        await eventually(lambda: metric(one, 'trainyard_config_reloads_total{outcome="used"}') == 1)
        job = tf_job()
        container = job["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]
        container["resources"] = {"limits": {"example.com/gpu": 1}}
        await site.api.create(TFJOB, "default", job)
        made = await site.until(JOB, lambda jobs: bool(jobs))
        env = made[0]["spec"]["template"]["spec"]["containers"][0]["env"]
        assert {"name": "SEEN", "value": "true"} in env


# The words.


def test_the_cluster_is_the_one_that_is_named_or_that_of_the_pod(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(
        "current-context: c\ncontexts: [{name: c, context: {cluster: c}}]\n"
        "clusters: [{name: c, cluster: {server: 'https://example.invalid'}}]\n"
    )
    for env in ({"USE_KUBE_CONFIG": str(file)}, {"KUBECONFIG": str(file)}):
        assert find_cluster(env, folder=tmp_path).server == "https://example.invalid"
    assert find_cluster({}, str(file), folder=tmp_path).server == "https://example.invalid"
    with pytest.raises(KubeconfigError, match="--kubeconfig FILE"):
        find_cluster({}, folder=tmp_path)


def test_kinds_are_named_as_people_write_them() -> None:
    groups = [kind.gvk.group for kind in parse_kinds("TfJob, mxjobs")]
    assert groups == ["tensorflow.org", "mlkube.io", "mxnet.mlkube.io"]
    assert {kind.gvk for kind in parse_kinds("all")} == {kind.gvk for kind in kinds.ALL}
    for wrong in ("pod", "", ","):
        with pytest.raises(ManifestError) as refused:
            parse_kinds(wrong)
        assert "tfjob, mxjob, chainerjob, elasticjob, all" in str(refused.value.problems[0])


@pytest.mark.parametrize(
    ("text", "meant"),
    [(":8080", ("", 8080)), ("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:80", ("::1", 80)), ("0", None), ("", None)],
)
def test_an_address_to_listen_at(text: str, meant: tuple[str, int] | None) -> None:
    assert parse_address(text) == meant


RESOLVERS = {
    "nameserver 10.96.0.10\nsearch trainyard.svc.corp.example svc.corp.example corp.example lan\noptions ndots:5\n": (
        "corp.example"
    ),
    "search default.svc.cluster.local svc.cluster.local cluster.local\n": "cluster.local",
    "search svc.first.example\nsearch a.svc.last.example svc.last.example.\n": "last.example",
    "search lan\n": "cluster.local",  # the host's own, with dnsPolicy Default
    "search svc. svc.BAD_ONE\n": "cluster.local",
    "": "cluster.local",
}


@pytest.mark.parametrize(("text", "domain"), RESOLVERS.items())
def test_the_domain_of_the_cluster_is_found_in_the_resolver_configuration(
    text: str, domain: str, tmp_path: Path
) -> None:
    resolver = tmp_path / "resolv.conf"
    resolver.write_text(text)
    assert cluster_domain("", True, resolver) == domain
    assert cluster_domain("", False, resolver) == "cluster.local"  # the machine's own says nothing of a cluster
    assert cluster_domain("named.example", True, resolver) == "named.example"
    assert cluster_domain("", True, tmp_path / "none") == "cluster.local"


def test_what_is_no_domain_is_refused_with_the_option() -> None:
    with pytest.raises(ManifestError) as refused:
        cluster_domain("not a domain", False)
    assert "--cluster-domain" in str(refused.value.problems[0])


def test_the_domain_stays_when_the_administrators_config_is_read_again() -> None:
    options = OperatorOptions(ClusterAccess("https://a"), kinds.KINDS, Config(), domain="corp.example", node_lost=5.0)
    again = options.configured(Config(accelerators={"a": {}}))
    assert (again.cluster_domain, again.node_lost_timeout, again.accelerators) == ("corp.example", 5.0, {"a": {}})


@pytest.mark.parametrize("text", ["8080", "localhost", ":x", ":70000"])
def test_what_is_no_address_is_said(text: str) -> None:
    with pytest.raises(ManifestError) as refused:
        parse_address(text)
    assert "write HOST:PORT" in str(refused.value.problems[0])


def test_the_lease_is_where_all_operators_have_theirs_under_a_name_of_this_life() -> None:
    """Not in the pod's namespace: operators of different namespaces would not meet."""
    env = {"MY_POD_NAME": "pod-1", "MY_POD_NAMESPACE": "system"}
    one, other = (lease_identity(env, parse_kinds("tfjob")) for _ in range(2))
    assert (one.namespace, one.name) == ("default", LEASE_NAME)
    assert one.identity.startswith("pod-1_") and one.identity != other.identity
    assert lease_identity({}, parse_kinds("tfjob"), "team", "leases").name == f"{LEASE_NAME}.team"


def test_by_default_a_dead_leader_is_followed_within_five_seconds_and_has_stopped_before() -> None:
    default = lease_timings()
    assert default == LeaseTimings() and default.duration + default.retry < 5
    assert default.deadline + default.retry < default.duration  # an answer under way does not bridge it
    assert default.renew + 2 * default.retry < default.deadline  # one renewal that fails is no loss


async def test_who_stands_by_says_for_whom(site: Site) -> None:
    """In the metrics and in /readyz?verbose; the log is the election's. An operator of all namespaces leads."""
    await site.account(NARROW)
    leader, other = (
        options(
            site,
            seat=lease_identity({}, parse_kinds("tfjob"), namespace),
            terms=QUICK,
            namespace=namespace,
            bind=("127.0.0.1", 0),
        )
        for namespace in ("", "default")
    )
    async with operating(leader) as one:
        await eventually(lambda: one.ready() == "" and metric(one, "trainyard_leader") == 1)
        async with operating(other) as two:
            await eventually(lambda: f"default/{LEASE_NAME} held by" in dict(_states(two))["lease"])
            assert "trainyard_standby_info{" in two.metrics.render().decode()
            url = f"http://127.0.0.1:{two.health.port}/readyz?verbose"
            async with aiohttp.ClientSession() as session, session.get(url) as answer:
                text = await answer.text()
            assert answer.status == 200 and text.endswith("readyz check passed\n")
            assert text.startswith(f"[+]lease ok: standing by for default/{LEASE_NAME} held by ")
            assert dict(_states(one))["lease"] == f"leading default/{LEASE_NAME}"
            assert "trainyard_standby_info{" not in one.metrics.render().decode()


def _states(one: OperatorProcess) -> list[tuple[str, str]]:
    return [(name, known) for name, _, known in one.checks()]

"""The options of the operator's process: the cluster, the kinds, an address to listen at, the domain of the cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.app.operating_values import Site
from trainyard import kinds
from trainyard.app.kubeconfig import ClusterAccess, KubeconfigError
from trainyard.app.operating import OperatorOptions, cluster_domain, find_cluster, parse_address, parse_kinds
from trainyard.core import Config
from trainyard.objects.manifest import ManifestError


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


def test_kinds_are_parsed_in_every_usual_spelling() -> None:
    groups = [kind.gvk.group for kind in parse_kinds("TfJob, mxjobs")]
    assert groups == ["tensorflow.org", "mlkube.io", "mxnet.mlkube.io"]
    assert {kind.gvk for kind in parse_kinds("all")} == {kind.gvk for kind in kinds.ALL}
    for wrong in ("pod", "", ","):
        with pytest.raises(ManifestError) as refused:
            parse_kinds(wrong)
        assert "tfjob, mxjob, chainerjob, elasticjob, tfjob.kubeflow.org," in str(refused.value.problems[0])


@pytest.mark.parametrize(
    ("name", "group"),
    [("TFJob", "kubeflow.org"), ("TfJob", "tensorflow.org"), ("tfjob", "tensorflow.org"), ("tfjobs", "tensorflow.org"),
     ("tfjobs.kubeflow.org", "kubeflow.org"), ("tfjob.kubeflow.org", "kubeflow.org")],
)  # fmt: skip
def test_an_ambiguous_kind_is_the_older_one_unless_the_group_or_the_exact_kind_is_given(name: str, group: str) -> None:
    assert [kind.gvk.group for kind in parse_kinds(name)] == [group]


@pytest.mark.parametrize(
    ("text", "meant"),
    [(":8080", ("", 8080)), ("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:80", ("::1", 80)), ("0", None), ("", None)],
)
def test_an_address_to_listen_at(text: str, meant: tuple[str, int] | None) -> None:
    assert parse_address(text) == meant


@pytest.mark.parametrize("text", ["8080", "localhost", ":x", ":70000"])
def test_an_invalid_address_is_reported(text: str) -> None:
    with pytest.raises(ManifestError) as refused:
        parse_address(text)
    assert "write HOST:PORT" in str(refused.value.problems[0])


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


def test_an_invalid_domain_is_refused_with_the_name_of_the_option() -> None:
    with pytest.raises(ManifestError) as refused:
        cluster_domain("not a domain", False)
    assert "--cluster-domain" in str(refused.value.problems[0])


def test_the_domain_stays_when_the_administrators_config_is_read_again() -> None:
    options = OperatorOptions(ClusterAccess("https://a"), kinds.KINDS, Config(), domain="corp.example", node_lost=5.0)
    again = options.configured(Config(accelerators={"a": {}}))
    assert (again.cluster_domain, again.node_lost_timeout, again.accelerators) == ("corp.example", 5.0, {"a": {}})

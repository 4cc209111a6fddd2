"""Label and field selectors."""

from __future__ import annotations

from tests.conformance import Cluster, check
from tests.conformance.checks.lists import create_secrets, names_of
from tests.conformance.mutations import ignores, replaced, swaps

AREA = "selectors"


async def create_labelled_secrets(cluster: Cluster) -> None:
    """Create Secrets a (l=a, n=1), b (l=b, n=5), c (l=c) and d without labels."""
    await create_secrets(cluster, "a", labels={"l": "a", "n": "1"})
    await create_secrets(cluster, "b", labels={"l": "b", "n": "5"})
    await create_secrets(cluster, "c", labels={"l": "c", "example.org/x": "y"})
    await create_secrets(cluster, "d")


async def assert_selects(cluster: Cluster, cases: dict[str, str], parameter: str) -> None:
    await create_labelled_secrets(cluster)
    for selector, expected in cases.items():
        selected = names_of(await cluster.request("GET", cluster.path("secrets"), **{parameter: selector}))
        assert selected == expected, (selector, selected, expected)


@check(
    "Label selectors support =, == and !=; != also matches objects without the label.",
    area=AREA,
    mutation=ignores("labelSelector"),
)
async def equality(cluster: Cluster) -> None:
    await assert_selects(
        cluster, {"l=a": "a", "l==b": "b", "l!=a": "bcd", "l=": "", "example.org/x=y": "c"}, "labelSelector"
    )


@check(
    "Label selectors support in and notin; notin also matches objects without the label.",
    area=AREA,
    mutation=ignores("labelSelector"),
)
async def sets(cluster: Cluster) -> None:
    expected = {"l in (a,b)": "ab", "l in (a, z)": "a", "l notin (a,b)": "cd", "l notin (a)": "bcd", "l in ()": ""}
    await assert_selects(cluster, expected, "labelSelector")


@check("Label selectors support existence (l) and absence (!l).", area=AREA, mutation=ignores("labelSelector"))
async def presence(cluster: Cluster) -> None:
    await assert_selects(cluster, {"l": "abc", "!l": "d", "n": "ab", "!n": "cd", "example.org/x": "c"}, "labelSelector")


@check("Label selectors support < and > for numbers.", area=AREA, mutation=ignores("labelSelector"))
async def numbers(cluster: Cluster) -> None:
    await assert_selects(cluster, {"n>1": "b", "n<5": "a", "n>0": "ab", "l>0": "", "n<1": ""}, "labelSelector")


@check(
    "Requirements separated by commas are combined with and; an empty selector matches everything.",
    area=AREA,
    mutation=ignores("labelSelector"),
)
async def conjunction(cluster: Cluster) -> None:
    await assert_selects(
        cluster, {"l,n": "ab", "l!=a,n": "b", "l in (a,c),!n": "c", "": "abcd", "l=a,l=b": ""}, "labelSelector"
    )


@check("An invalid label selector is rejected with 400.", area=AREA, mutation=ignores("labelSelector"))
async def bad_labels(cluster: Cluster) -> None:
    for text in ("l in (a", "=a", "l=a b", "l=a,", "-l=a", "l=A!", "l in a", "l>x", "l=a,,l=b"):
        (await cluster.request("GET", cluster.path("secrets"), labelSelector=text)).expect_error(400, "BadRequest")


@check(
    "Every resource supports the fields metadata.name and metadata.namespace.",
    area=AREA,
    mutation=ignores("fieldSelector"),
)
async def every_field(cluster: Cluster) -> None:
    combined = f"metadata.name!=a,metadata.namespace={cluster.namespace}"
    expected = {"metadata.name=a": "a", "metadata.name==b": "b", "metadata.name!=a": "bcd", combined: "bcd", "": "abcd"}
    await assert_selects(cluster, expected | {"metadata.namespace=other": ""}, "fieldSelector")


@check(
    "Pods support the fields spec.nodeName, status.phase and spec.restartPolicy.",
    area=AREA,
    mutation=ignores("fieldSelector"),
    needs=("pods",),
)
async def pod_fields(cluster: Cluster) -> None:
    await cluster.create_pod("a", nodeName="nowhere")
    await cluster.create_pod("b", restartPolicy="Never")
    path = cluster.path("pods")
    for selector, expected in {
        "spec.nodeName=nowhere": "a",
        "spec.nodeName=": "b",
        "status.phase=Pending": "ab",
        "status.phase!=Pending": "",
        "spec.restartPolicy=Never": "b",
        "spec.nodeName!=nowhere,status.phase=Pending": "b",
    }.items():
        assert names_of(await cluster.request("GET", path, fieldSelector=selector)) == expected, selector


@check("Secrets support the field type.", area=AREA, mutation=ignores("fieldSelector"))
async def secret_type(cluster: Cluster) -> None:
    await create_secrets(cluster, "a")
    obj = {"apiVersion": "v1", "kind": "Secret", "type": "example.org/x", "metadata": {"name": "b"}}
    (await cluster.request("POST", cluster.path("secrets"), obj)).expect(201)
    assert names_of(await cluster.request("GET", cluster.path("secrets"), fieldSelector="type=example.org/x")) == "b"


@check(
    "A field that the resource does not support is rejected with 400 and named.",
    area=AREA,
    mutation=swaps(b"data.x", b"field"),
)
async def unknown_field(cluster: Cluster) -> None:
    resource = await cluster.create_crd()
    for path in (cluster.path("configmaps"), cluster.path("pods"), cluster.path("jobs"), resource.path()):
        (await cluster.request("GET", path, fieldSelector="data.x=y")).expect_error(400, "BadRequest", "data.x")


@check("An invalid field selector is rejected with 400.", area=AREA, mutation=ignores("fieldSelector"))
async def bad_fields(cluster: Cluster) -> None:
    for text in ("nonsense", "metadata.name", "a,b"):
        (await cluster.request("GET", cluster.path("secrets"), fieldSelector=text)).expect_error(
            400, "BadRequest", "invalid selector"
        )


@check("Label and field selectors are combined with and.", area=AREA, mutation=ignores("fieldSelector"))
async def both(cluster: Cluster) -> None:
    await create_labelled_secrets(cluster)
    query = {"labelSelector": "l", "fieldSelector": "metadata.name!=a"}
    assert names_of(await cluster.request("GET", cluster.path("secrets"), **query)) == "bc"


@check(
    "Pagination applies to the selected objects.",
    area=AREA,
    mutation=replaced("registry.lists:_read_token", lambda token: (0, None), "loses the position of a continue token"),
)
async def paged(cluster: Cluster) -> None:
    await create_labelled_secrets(cluster)
    query = {"labelSelector": "l!=b", "limit": "2"}
    page = await cluster.request("GET", cluster.path("secrets"), **query)
    assert names_of(page) == "ac"
    assert (
        names_of(
            await cluster.request("GET", cluster.path("secrets"), continue_=page.json["metadata"]["continue"], **query)
        )
        == "d"
    )

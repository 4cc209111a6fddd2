"""Label and field selectors."""

from __future__ import annotations

from trainyard.testing.check_server import Subject, check
from trainyard.testing.check_server.breaks import ignores, replaced, swaps
from trainyard.testing.check_server.checks.listing import names, secrets

AREA = "selectors"


async def furnish(yard: Subject) -> None:
    """a: l=a n=1, b: l=b n=5, c: l=c, d without labels."""
    await secrets(yard, "a", labels={"l": "a", "n": "1"})
    await secrets(yard, "b", labels={"l": "b", "n": "5"})
    await secrets(yard, "c", labels={"l": "c", "example.org/x": "y"})
    await secrets(yard, "d")


async def hold(yard: Subject, found: dict[str, str], name: str) -> None:
    await furnish(yard)
    for selector, wanted in found.items():
        said = names(await yard.ask("GET", yard.at("secrets"), **{name: selector}))
        assert said == wanted, (selector, said, wanted)


@check(
    "A label is equal to a value, or is not: =, ==, !=; != also chooses objects without it.",
    area=AREA,
    breaks=ignores("labelSelector"),
)
async def equality(yard: Subject) -> None:
    await hold(yard, {"l=a": "a", "l==b": "b", "l!=a": "bcd", "l=": "", "example.org/x=y": "c"}, "labelSelector")


@check(
    "A label is in a set, or is not; notin also chooses objects without it.", area=AREA, breaks=ignores("labelSelector")
)
async def sets(yard: Subject) -> None:
    wanted = {"l in (a,b)": "ab", "l in (a, z)": "a", "l notin (a,b)": "cd", "l notin (a)": "bcd", "l in ()": ""}
    await hold(yard, wanted, "labelSelector")


@check("A label is there, or is not.", area=AREA, breaks=ignores("labelSelector"))
async def presence(yard: Subject) -> None:
    await hold(yard, {"l": "abc", "!l": "d", "n": "ab", "!n": "cd", "example.org/x": "c"}, "labelSelector")


@check("A label that is a number is greater or less than one.", area=AREA, breaks=ignores("labelSelector"))
async def numbers(yard: Subject) -> None:
    await hold(yard, {"n>1": "b", "n<5": "a", "n>0": "ab", "l>0": "", "n<1": ""}, "labelSelector")


@check(
    "Requirements with commas between hold together, and an empty selector chooses everything.",
    area=AREA,
    breaks=ignores("labelSelector"),
)
async def conjunction(yard: Subject) -> None:
    await hold(yard, {"l,n": "ab", "l!=a,n": "b", "l in (a,c),!n": "c", "": "abcd", "l=a,l=b": ""}, "labelSelector")


@check("A label selector that cannot be parsed is refused with 400.", area=AREA, breaks=ignores("labelSelector"))
async def bad_labels(yard: Subject) -> None:
    for text in ("l in (a", "=a", "l=a b", "l=a,", "-l=a", "l=A!", "l in a", "l>x", "l=a,,l=b"):
        (await yard.ask("GET", yard.at("secrets"), labelSelector=text)).refused(400, "BadRequest")


@check(
    "Fields that every resource has: metadata.name and metadata.namespace.", area=AREA, breaks=ignores("fieldSelector")
)
async def every_field(yard: Subject) -> None:
    both = f"metadata.name!=a,metadata.namespace={yard.namespace}"
    wanted = {"metadata.name=a": "a", "metadata.name==b": "b", "metadata.name!=a": "bcd", both: "bcd", "": "abcd"}
    await hold(yard, wanted | {"metadata.namespace=other": ""}, "fieldSelector")


@check(
    "Pods are chosen by spec.nodeName, status.phase and spec.restartPolicy.",
    area=AREA,
    breaks=ignores("fieldSelector"),
    needs=("pods",),
)
async def pod_fields(yard: Subject) -> None:
    await yard.pod("a", nodeName="nowhere")
    await yard.pod("b", restartPolicy="Never")
    path = yard.at("pods")
    for selector, wanted in {
        "spec.nodeName=nowhere": "a",
        "spec.nodeName=": "b",
        "status.phase=Pending": "ab",
        "status.phase!=Pending": "",
        "spec.restartPolicy=Never": "b",
        "spec.nodeName!=nowhere,status.phase=Pending": "b",
    }.items():
        assert names(await yard.ask("GET", path, fieldSelector=selector)) == wanted, selector


@check("Secrets are chosen by their type.", area=AREA, breaks=ignores("fieldSelector"))
async def secret_type(yard: Subject) -> None:
    await secrets(yard, "a")
    obj = {"apiVersion": "v1", "kind": "Secret", "type": "example.org/x", "metadata": {"name": "b"}}
    (await yard.ask("POST", yard.at("secrets"), obj)).must(201)
    assert names(await yard.ask("GET", yard.at("secrets"), fieldSelector="type=example.org/x")) == "b"


@check(
    "A field that the resource does not offer is refused with 400, and named.",
    area=AREA,
    breaks=swaps(b"data.x", b"field"),
)
async def unknown_field(yard: Subject) -> None:
    kind = await yard.crd()
    for path in (yard.at("configmaps"), yard.at("pods"), yard.at("jobs"), kind.path()):
        (await yard.ask("GET", path, fieldSelector="data.x=y")).refused(400, "BadRequest", "data.x")


@check("A field selector that cannot be parsed is refused with 400.", area=AREA, breaks=ignores("fieldSelector"))
async def bad_fields(yard: Subject) -> None:
    for text in ("nonsense", "metadata.name", "a,b"):
        (await yard.ask("GET", yard.at("secrets"), fieldSelector=text)).refused(400, "BadRequest", "invalid selector")


@check("Label and field selectors hold together.", area=AREA, breaks=ignores("fieldSelector"))
async def both(yard: Subject) -> None:
    await furnish(yard)
    query = {"labelSelector": "l", "fieldSelector": "metadata.name!=a"}
    assert names(await yard.ask("GET", yard.at("secrets"), **query)) == "bc"


@check(
    "A page of a selection is a page of what is selected, and its continue goes on with it.",
    area=AREA,
    breaks=replaced("registry.lists:_read_token", lambda token: (0, None), "forgets where a page ended"),
)
async def paged(yard: Subject) -> None:
    await furnish(yard)
    query = {"labelSelector": "l!=b", "limit": "2"}
    page = await yard.ask("GET", yard.at("secrets"), **query)
    assert names(page) == "ac"
    assert names(await yard.ask("GET", yard.at("secrets"), continue_=page.json["metadata"]["continue"], **query)) == "d"

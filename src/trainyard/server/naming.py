"""Who may have a name: two definitions of one group cannot share a plural, a kind or a short name.

The real server accepts both definitions and says in the later one's conditions that its names are taken; it is not
served until they are free.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.objects import Json, condition, decode, with_condition
from trainyard.server.site import Site
from trainyard.server.writes import DEFINITIONS


def judged(crd: Json, site: Site) -> Json:
    """The part of a definition's status that tells of its names."""
    status = crd.get("status") or {}
    conditions = [one for one in status.get("conditions") or () if isinstance(one, dict)]
    names, accepted = crd["spec"]["names"], dict(crd["spec"]["names"])
    taken = list(_taken(crd, site))
    for _, word, _ in taken:
        accepted.pop(word, None)
    if taken:
        reason, _, text = taken[-1]
        conditions = _with(conditions, "NamesAccepted", False, (reason, text), site)
        if condition(conditions, "Established") is None:
            told = ("NotAccepted", "not all names are accepted")
            conditions = _with(conditions, "Established", False, told, site)
    else:
        conditions = _with(conditions, "NamesAccepted", True, ("NoConflicts", "no conflicts found"), site)
        told = ("InitialNamesAccepted", "the initial names have been accepted")
        conditions = _with(conditions, "Established", True, told, site)
    return {"conditions": conditions, "acceptedNames": accepted if taken else names}


def _with(conditions: list[Json], kind: str, true: bool, told: tuple[str, str], site: Site) -> list[Json]:
    before = condition(conditions, kind)
    if before is not None and before.get("status") == str(true):
        return conditions
    return with_condition(conditions, kind, true, *told, site.now)


def refused(crd: Json) -> bool:
    """Whether it has never been established."""
    found = condition((crd.get("status") or {}).get("conditions"), "Established")
    return found is not None and found.get("status") == "False"


def _taken(crd: Json, site: Site) -> Iterator[tuple[str, str, str]]:
    """Reason, word in the names, text: for each name that another definition of the group has."""
    group, names = crd["spec"]["group"], crd["spec"]["names"]
    words: set[str] = set()
    kinds: set[str] = set()
    for key, record in site.log.list(DEFINITIONS):
        # Its name is PLURAL.GROUP. A definition is large, so those of other groups are not read.
        if key.name.partition(".")[2] != group or key.name == crd["metadata"].get("name"):
            continue
        other = decode(record.body)
        has: Json = (other.get("status") or {}).get("acceptedNames") or {}
        words.update(has[word] for word in ("plural", "singular") if word in has)
        words.update(has.get("shortNames") or ())
        kinds.update(has[word] for word in ("kind", "listKind") if word in has)
    for reason, word, used in (
        ("PluralConflict", "plural", words),
        ("SingularConflict", "singular", words),
        ("ShortNamesConflict", "shortNames", words),
        ("KindConflict", "kind", kinds),
        ("ListKindConflict", "listKind", kinds),
    ):
        wanted = names.get(word) or ()
        for name in [wanted] if isinstance(wanted, str) else wanted:
            if name in used:
                yield reason, word, f'"{name}" is already in use'

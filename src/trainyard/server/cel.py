"""CEL, the language of a definition's rules: one expression in, a program out, with the functions that Kubernetes adds.

The engine is an optional library (`pip install trainyard[local]`). It is imported with the first rule; a server that
meets none never pays for it.

Rules for this file:
- A function that Kubernetes has and we have not is a `Wrong` expression, with its name. Nothing is ever half checked.
- What the engine has no type for (a quantity, an address, a URL) is a map with one key that says what it is; two equal
  ones are equal maps.
- The engine cannot add to a function that one of its extensions owns, so `indexOf` and `lastIndexOf` get other names.
"""

from __future__ import annotations

import datetime
import importlib
import ipaddress
import re
from collections.abc import Callable, Mapping
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from functools import cache, lru_cache
from itertools import islice, pairwise
from typing import Any
from urllib.parse import parse_qs, urlsplit

from trainyard.objects import Json
from trainyard.schema.patterns import compiled_pattern

EXTENSIONS = ("sets", "two-var-comprehensions", "lists", "strings", "math", "optional", "bindings")
# A string that nothing closes goes to the end of the text: otherwise each quote in it is searched for an end anew.
RENAMED = re.compile(r"""("(?:\\.|[^"\\])*+(?:"|\\?\Z)|'(?:\\.|[^'\\])*+(?:'|\\?\Z))|\.(indexOf|lastIndexOf)(?=\()""")
_SUFFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_LARGEST = Decimal(2**63 - 1)
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|([numkMGTPE]|[KMGTPE]i)?)")
_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?", flags=re.ASCII
)


class Missing(Exception):
    """The engine is not installed."""


class Wrong(Exception):
    """An expression that does not compile; or, at work, one that cannot be evaluated."""


class Program:
    """A compiled expression."""

    def __init__(self, compiled: Any, kind: str) -> None:
        self._compiled = compiled
        self.kind = kind
        """The type of its result as far as the expression tells: BOOL, STRING, DYN."""

    def value(self, variables: Json) -> Any:
        """Raises Wrong when there is no value."""
        try:
            found = self._compiled.eval(data=variables)
            if found.type().name() == "ERROR":
                raise Wrong(_said(str(found.plain_value())))
            return found.plain_value()
        except (RuntimeError, TypeError) as error:
            raise Wrong(str(error)) from None


def _said(error: str) -> str:
    """An error of the engine in Kubernetes' words."""
    text = re.sub(r"^[A-Z_]+: ", "", error).replace("divide by zero", "division by zero")
    return re.sub(r'^Key not found in map : "(.*)"$', r"no such key: \1", text)


@lru_cache(maxsize=4096)
def program(expression: str, old: str = "", types: tuple[tuple[str, str], ...] = ()) -> Program:
    """Raises Wrong, Missing. `old`: "" without oldSelf, "value" with it, "optional" with one that may be absent, and
    then the variables are `was` (whether it is there) and `before`. `types` declares more, for a check: (name, INT).
    """
    text = RENAMED.sub(lambda found: found[1] or f".k8s{found[2]}", expression)
    if old == "optional":
        text = f"cel.bind(oldSelf, was ? optional.of(before) : optional.none(), {text}\n)"
    try:
        compiled = (_made(old, types) if types else _environment(old)).compile(text)
    except RuntimeError as error:
        first = str(error).removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")
        raise Wrong(first.replace("k8sindexOf", "indexOf").replace("k8slastIndexOf", "lastIndexOf")) from None
    return Program(compiled, str(compiled.return_type().name()))


def present() -> bool:
    try:
        _engine()
    except Missing:
        return False
    return True


@cache
def _engine() -> Any:
    try:
        return importlib.import_module("cel_expr_python.cel")
    except ImportError:
        raise Missing("rules (CEL) need an engine: pip install 'trainyard[local]'") from None


@cache
def _environment(old: str) -> Any:
    return _made(old, ())


def _made(old: str, types: tuple[tuple[str, str], ...]) -> Any:
    engine = _engine()
    dynamic = engine.Type.DYN
    variables = {"self": dynamic, **{name: getattr(engine.Type, kind) for name, kind in types}}
    if old == "optional":
        variables.update(was=engine.Type.BOOL, before=dynamic)
    elif old:
        variables["oldSelf"] = dynamic
    words = "extensions:\n" + "".join(f"- name: {name}\n" for name in EXTENSIONS)
    return engine.NewEnv(config=engine.NewEnvConfigFromYaml(words), variables=variables, functions=_declared(engine))


# --- the functions: name -> (overloads: parameters, whether it is a method, the function, what it gives)


def _declared(engine: Any) -> list[Any]:
    kinds = engine.Type
    types = {
        "s": kinds.STRING,
        "i": kinds.INT,
        "b": kinds.BOOL,
        "d": kinds.DOUBLE,
        "l": kinds.List(kinds.DYN),
        "m": kinds.Map(kinds.DYN, kinds.DYN),
        "*": kinds.DYN,
    }
    found = []
    for name, overloads in FUNCTIONS.items():
        made = [
            engine.Overload(
                f"trainyard_{name}_{'method_' if takes.startswith('.') else ''}{takes.strip('.')}".replace("*", "x"),
                types[gives],
                [types[one] for one in takes.removeprefix(".")],
                takes.startswith("."),
                impl=act,
            )
            for takes, gives, act in overloads
        ]
        found.append(engine.FunctionDecl(name, made))
    return found


def _sorted(items: list[Any]) -> bool:
    return all(one <= other for one, other in pairwise(items))


def _at(items: Any, wanted: Any) -> int:
    return next((index for index, one in enumerate(items) if one == wanted), -1)


def _last(items: Any, wanted: Any) -> int:
    return next((index for index in range(len(items) - 1, -1, -1) if items[index] == wanted), -1)


def _some(choose: Callable[[Any], Any], word: str) -> Callable[[Any], Any]:
    def chosen(items: list[Any]) -> Any:
        if not items:
            raise ValueError(f"{word} called on empty list")
        return choose(items)

    return chosen


def _find(text: str, pattern: str) -> str:
    return compiled_pattern(pattern).search(text) or ""


def _find_all(text: str, pattern: str, most: int = -1) -> list[str]:
    matches = compiled_pattern(pattern).search_all(text)
    return list(matches if most < 0 else islice(matches, most))


def _number(text: str) -> Decimal:
    found = _QUANTITY.fullmatch(text)
    if found is None:
        pattern = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
        raise ValueError(f"quantities must match the regular expression '{pattern}'")
    digits, power, suffix = found[1], found[2], found[3] or ""
    if power:
        return Decimal(digits + power)
    if suffix in _BINARY:
        return Decimal(digits) * Decimal(1024) ** _BINARY[suffix]
    return Decimal(digits).scaleb(_SUFFIXES[suffix])


def _quantity(value: Decimal) -> Json:
    """Of what is larger than any number, the largest, as in Kubernetes: 1e900000000, written out, fills the memory."""
    value = max(-_LARGEST, min(value, _LARGEST))
    nano = (value * 10**9).to_integral_value(ROUND_CEILING)
    return {"quantity": format((nano / 10**9).normalize(), "f")}


def _of(value: Any) -> Decimal:
    return Decimal(value["quantity"] if isinstance(value, Mapping) else value)


def _asked(read: Callable[[str], Any]) -> Callable[[str], bool]:
    def asked(text: str) -> bool:
        try:
            read(text)
        except (ValueError, InvalidOperation):
            return False
        return True

    return asked


def _whole(value: Any) -> int:
    if (found := _of(value)) != found.to_integral_value() or not -(2**63) <= found < 2**63:
        raise ValueError("cannot convert value to integer")
    return int(found)


def _version(text: str) -> Json:
    found = _SEMVER.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no semantic version")
    return {"semver": [int(found[1]), int(found[2]), int(found[3])], "pre": found[4] or ""}


def _rank(value: Any) -> tuple[Any, ...]:
    """Quantities and versions in their order."""
    if "quantity" in value:
        return (_of(value),)
    pre = [(0, int(one), "") if one.isdigit() else (1, 0, one) for one in value["pre"].split(".")]
    return (list(value["semver"]), not value["pre"], pre)


def _compared(one: Any, other: Any) -> int:
    return (_rank(one) > _rank(other)) - (_rank(one) < _rank(other))


def _summed(sign: int) -> Callable[[Any, Any], Json]:
    return lambda one, other: _quantity(_of(one) + sign * _of(other))


def _address(text: str) -> Json:
    found = ipaddress.ip_address(text)
    if "%" in text or (found.version == 6 and found.ipv4_mapped):
        raise ValueError(f"{text!r} is no plain IP address")
    return {"ip": str(found)}


def _ip(value: Any) -> Any:
    return ipaddress.ip_address(value["ip"] if isinstance(value, Mapping) else value)


def _network(text: str) -> Json:
    return {"cidr": str(ipaddress.ip_interface(_slashed(text)))}


def _slashed(text: str) -> str:
    if not re.fullmatch(r".+/\d+", text):
        raise ValueError(f"{text!r} is no network address in CIDR notation")
    return text


def _net(value: Any) -> Any:
    return ipaddress.ip_interface(value["cidr"] if isinstance(value, Mapping) else _slashed(value)).network


def _holds(net: Any, other: Any) -> bool:
    inner = _net(other)
    return bool(inner.version == _net(net).version and inner.subnet_of(_net(net)))


def _has_ip(net: Any, other: Any) -> bool:
    return _ip(other) in _net(net)


def _url(text: str) -> Json:
    parts = urlsplit(text)
    if not text or (not parts.scheme and not text.startswith("/")) or re.search(r"[\s\x00-\x1f]", text):
        raise ValueError(f"URL parse error during conversion from string: {text!r}")
    _ = parts.port  # raises ValueError
    return {"url": text}


def _part(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: read(urlsplit(value["url"])) or ""


FUNCTIONS: dict[str, list[tuple[str, str, Callable[..., Any]]]] = {
    "isSorted": [(".l", "b", _sorted)],
    "sum": [(".l", "*", lambda items: sum(items[1:], items[0]) if items else 0)],
    "min": [(".l", "*", _some(min, "min"))],
    "max": [(".l", "*", _some(max, "max"))],
    "k8sindexOf": [
        *((f".l{kind}", "i", _at) for kind in "sidbm"),
        (".ss", "i", lambda text, part: text.find(part)),
        (".ssi", "i", lambda text, part, start: text.find(part, start)),
    ],
    "k8slastIndexOf": [
        *((f".l{kind}", "i", _last) for kind in "sidbm"),
        (".ss", "i", lambda text, part: text.rfind(part)),
        (".ssi", "i", lambda text, part, end: text.rfind(part, 0, end + len(part))),
    ],
    "find": [(".ss", "s", _find)],
    "findAll": [(".ss", "l", _find_all), (".ssi", "l", _find_all)],
    "quantity": [("s", "m", lambda text: _quantity(_number(text)))],
    "isQuantity": [("s", "b", _asked(_number))],
    "isInteger": [(".m", "b", _asked(_whole))],
    "asInteger": [(".m", "i", _whole)],
    "asApproximateFloat": [(".m", "d", lambda value: float(_of(value)))],
    "sign": [(".m", "i", lambda value: (_of(value) > 0) - (_of(value) < 0))],
    "add": [(".mm", "m", _summed(1)), (".mi", "m", _summed(1))],
    "sub": [(".mm", "m", _summed(-1)), (".mi", "m", _summed(-1))],
    "compareTo": [(".mm", "i", _compared)],
    "isLessThan": [(".mm", "b", lambda one, other: _compared(one, other) < 0)],
    "isGreaterThan": [(".mm", "b", lambda one, other: _compared(one, other) > 0)],
    "semver": [("s", "m", _version)],
    "isSemver": [("s", "b", _asked(_version))],
    "major": [(".m", "i", lambda value: value["semver"][0])],
    "minor": [(".m", "i", lambda value: value["semver"][1])],
    "patch": [(".m", "i", lambda value: value["semver"][2])],
    "ip": [("s", "m", _address), (".m", "m", lambda net: {"ip": net["cidr"].partition("/")[0]})],
    "isIP": [("s", "b", _asked(_address))],
    "family": [(".m", "i", lambda value: _ip(value).version)],
    "isLoopback": [(".m", "b", lambda value: _ip(value).is_loopback)],
    "isUnspecified": [(".m", "b", lambda value: _ip(value).is_unspecified)],
    "isLinkLocalUnicast": [(".m", "b", lambda value: _ip(value).is_link_local)],
    "isGlobalUnicast": [(".m", "b", lambda value: not (_ip(value).is_multicast or _ip(value).is_loopback
                                                      or _ip(value).is_unspecified or _ip(value).is_link_local))],
    "cidr": [("s", "m", _network)],
    "isCIDR": [("s", "b", _asked(_network))],
    "containsIP": [(".mm", "b", _has_ip), (".ms", "b", _has_ip)],
    "containsCIDR": [(".mm", "b", _holds), (".ms", "b", _holds)],
    "masked": [(".m", "m", lambda value: {"cidr": str(_net(value))})],
    "prefixLength": [(".m", "i", lambda value: _net(value).prefixlen)],
    "url": [("s", "m", _url)],
    "isURL": [("s", "b", _asked(_url))],
    "getScheme": [(".m", "s", _part(lambda url: url.scheme))],
    "getHost": [(".m", "s", _part(lambda url: url.netloc.rpartition("@")[2]))],
    "getHostname": [(".m", "s", _part(lambda url: url.hostname))],
    "getPort": [(".m", "s", _part(lambda url: str(url.port) if url.port is not None else ""))],
    "getEscapedPath": [(".m", "s", _part(lambda url: url.path))],
    "getQuery": [(".m", "m", lambda value: parse_qs(urlsplit(value["url"]).query, keep_blank_values=True))],
}  # fmt: skip


def duration(text: str) -> datetime.timedelta | None:
    """What Go's words for a duration mean (1h30m), None when they mean nothing."""
    units = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
    if not re.fullmatch(r"-?(\d+(\.\d*)?(h|ms|m|s|us|ns))+", text):
        return None
    total = sum(float(count) * units[unit] for count, _, unit in re.findall(r"(\d+(\.\d*)?)(h|ms|m|s|us|ns)", text))
    return datetime.timedelta(seconds=-total if text.startswith("-") else total)

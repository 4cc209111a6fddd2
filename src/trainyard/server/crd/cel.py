"""CEL, the language of a CRD's validation rules: compiles an expression, with the functions that Kubernetes adds.

The engine is an optional library (`pip install trainyard[local]`). It is imported when the first rule is compiled; a
server without rules never loads it.

Rules for this file:
- An expression with a Kubernetes function that is not implemented here raises `EvaluationError` with the function's
  name; it is never partly evaluated.
- A value without a type in the engine (a quantity, an IP address, a URL) is a map with one key that names its type;
  equal values are equal maps.
- The engine cannot overload a function of one of its extensions, so `indexOf` and `lastIndexOf` are renamed.
"""

from __future__ import annotations

import datetime
import importlib
import ipaddress
import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from functools import cache, lru_cache
from itertools import islice, pairwise
from typing import Any
from urllib.parse import parse_qs, urlsplit

from trainyard.objects import Json, quantities
from trainyard.schema.patterns import compiled_pattern

EXTENSIONS = ("sets", "two-var-comprehensions", "lists", "strings", "math", "optional", "bindings")
# An unterminated string extends to the end of the text: otherwise the search for a closing quote restarts at each
# quote (quadratic time).
RENAMED = re.compile(r"""("(?:\\.|[^"\\])*+(?:"|\\?\Z)|'(?:\\.|[^'\\])*+(?:'|\\?\Z))|\.(indexOf|lastIndexOf)(?=\()""")
_LARGEST = Fraction(2**63 - 1)
_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?", flags=re.ASCII
)


class EngineMissing(Exception):
    """The engine is not installed."""


class EvaluationError(Exception):
    """An expression that does not compile, or whose evaluation failed."""


class CelProgram:
    """A compiled expression."""

    def __init__(self, compiled: Any, kind: str) -> None:
        self._compiled = compiled
        self.kind = kind
        """The static type of its result: BOOL, STRING, ..., or DYN when it is not known."""

    def evaluate(self, variables: Json) -> Any:
        """Evaluate the program. Raises EvaluationError when the evaluation fails."""
        try:
            result = self._compiled.eval(data=variables)
            if result.type().name() == "ERROR":
                raise EvaluationError(_kubernetes_message(str(result.plain_value())))
            return result.plain_value()
        except (RuntimeError, TypeError) as error:
            raise EvaluationError(str(error)) from None


def _kubernetes_message(error: str) -> str:
    """An error message of the engine, in Kubernetes' wording."""
    text = re.sub(r"^[A-Z_]+: ", "", error).replace("divide by zero", "division by zero")
    return re.sub(r'^Key not found in map : "(.*)"$', r"no such key: \1", text)


@lru_cache(maxsize=4096)
def compile_expression(expression: str, old_self: str = "", types: tuple[tuple[str, str], ...] = ()) -> CelProgram:
    """Compile an expression. Raises EvaluationError, EngineMissing.

    `old_self`: "" without oldSelf; "value" with it; "optional" with an optional one, and then the variables are `was`
    (whether there is an old value) and `before`. `types` declares further variables for type checks: (name, "INT").
    """
    text = RENAMED.sub(lambda match: match[1] or f".k8s{match[2]}", expression)
    if old_self == "optional":
        text = f"cel.bind(oldSelf, was ? optional.of(before) : optional.none(), {text}\n)"
    try:
        compiled = (_new_environment(old_self, types) if types else _environment(old_self)).compile(text)
    except RuntimeError as error:
        message = str(error).removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")
        raise EvaluationError(
            message.replace("k8sindexOf", "indexOf").replace("k8slastIndexOf", "lastIndexOf")
        ) from None
    return CelProgram(compiled, str(compiled.return_type().name()))


def is_engine_installed() -> bool:
    """Whether the optional CEL engine can be imported."""
    try:
        _engine()
    except EngineMissing:
        return False
    return True


@cache
def _engine() -> Any:
    try:
        return importlib.import_module("cel_expr_python.cel")
    except ImportError:
        raise EngineMissing("rules (CEL) need an engine: pip install 'trainyard[local]'") from None


@cache
def _environment(old: str) -> Any:
    return _new_environment(old, ())


def _new_environment(old: str, types: tuple[tuple[str, str], ...]) -> Any:
    engine = _engine()
    dynamic = engine.Type.DYN
    variables = {"self": dynamic, **{name: getattr(engine.Type, kind) for name, kind in types}}
    if old == "optional":
        variables.update(was=engine.Type.BOOL, before=dynamic)
    elif old:
        variables["oldSelf"] = dynamic
    config = "extensions:\n" + "".join(f"- name: {name}\n" for name in EXTENSIONS)
    return engine.NewEnv(
        config=engine.NewEnvConfigFromYaml(config), variables=variables, functions=_function_declarations(engine)
    )


# --- the functions: name -> overloads (parameter types, with a leading dot for a method; result type; implementation)


def _function_declarations(engine: Any) -> list[Any]:
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
    declarations = []
    for name, overloads in FUNCTIONS.items():
        engine_overloads = [
            engine.Overload(
                f"trainyard_{name}_{'method_' if parameters.startswith('.') else ''}{parameters.strip('.')}".replace(
                    "*", "x"
                ),
                types[result],
                [types[parameter] for parameter in parameters.removeprefix(".")],
                parameters.startswith("."),
                impl=implementation,
            )
            for parameters, result, implementation in overloads
        ]
        declarations.append(engine.FunctionDecl(name, engine_overloads))
    return declarations


def _sorted(items: list[Any]) -> bool:
    return all(item <= next_item for item, next_item in pairwise(items))


def _index_of(items: Any, value: Any) -> int:
    return next((index for index, item in enumerate(items) if item == value), -1)


def _last_index_of(items: Any, value: Any) -> int:
    return next((index for index in range(len(items) - 1, -1, -1) if items[index] == value), -1)


def _non_empty(choose: Callable[[Any], Any], function: str) -> Callable[[Any], Any]:
    def chosen(items: list[Any]) -> Any:
        if not items:
            raise ValueError(f"{function} called on empty list")
        return choose(items)

    return chosen


def _find(text: str, pattern: str) -> str:
    return compiled_pattern(pattern).search(text) or ""


def _find_all(text: str, pattern: str, most: int = -1) -> list[str]:
    matches = compiled_pattern(pattern).search_all(text)
    return list(matches if most < 0 else islice(matches, most))


def _parse_quantity(text: str) -> Fraction:
    value = quantities.exact(text)
    if value is None:
        pattern = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
        raise ValueError(f"quantities must match the regular expression '{pattern}'")
    return value


def _quantity(value: Fraction) -> Json:
    """A quantity, rounded up to billionths and capped at the largest int64, as in Kubernetes."""
    nano = math.ceil(max(-_LARGEST, min(value, _LARGEST)) * 10**9)
    return {"quantity": format(Decimal(nano).scaleb(-9).normalize(), "f")}


def _number(value: Any) -> Fraction:
    return Fraction(value["quantity"] if isinstance(value, Mapping) else value)


def _parses(parse: Callable[[str], Any]) -> Callable[[str], bool]:
    def parses(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True

    return parses


def _whole_number(value: Any) -> int:
    if (number := _number(value)).denominator != 1 or not -(2**63) <= number < 2**63:
        raise ValueError("cannot convert value to integer")
    return int(number)


def _version(text: str) -> Json:
    match = _SEMVER.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no semantic version")
    return {"semver": [int(match[1]), int(match[2]), int(match[3])], "pre": match[4] or ""}


def _sort_key(value: Any) -> tuple[Any, ...]:
    """A sort key for quantities and semantic versions."""
    if "quantity" in value:
        return (_number(value),)
    pre = [
        (0, int(identifier), "") if identifier.isdigit() else (1, 0, identifier)
        for identifier in value["pre"].split(".")
    ]
    return (list(value["semver"]), not value["pre"], pre)


def _compared(left: Any, right: Any) -> int:
    return (_sort_key(left) > _sort_key(right)) - (_sort_key(left) < _sort_key(right))


def _added(sign: int) -> Callable[[Any, Any], Json]:
    return lambda left, right: _quantity(_number(left) + sign * _number(right))


def _address(text: str) -> Json:
    address = ipaddress.ip_address(text)
    if "%" in text or (address.version == 6 and address.ipv4_mapped):
        raise ValueError(f"{text!r} is no plain IP address")
    return {"ip": str(address)}


def _ip(value: Any) -> Any:
    return ipaddress.ip_address(value["ip"] if isinstance(value, Mapping) else value)


def _cidr(text: str) -> Json:
    return {"cidr": str(ipaddress.ip_interface(_with_prefix(text)))}


def _with_prefix(text: str) -> str:
    if not re.fullmatch(r".+/\d+", text):
        raise ValueError(f"{text!r} is no network address in CIDR notation")
    return text


def _network_of(value: Any) -> Any:
    return ipaddress.ip_interface(value["cidr"] if isinstance(value, Mapping) else _with_prefix(value)).network


def _contains_network(outer: Any, value: Any) -> bool:
    inner = _network_of(value)
    return bool(inner.version == _network_of(outer).version and inner.subnet_of(_network_of(outer)))


def _contains_ip(network: Any, address: Any) -> bool:
    return _ip(address) in _network_of(network)


def _url(text: str) -> Json:
    parts = urlsplit(text)
    if not text or (not parts.scheme and not text.startswith("/")) or re.search(r"[\s\x00-\x1f]", text):
        raise ValueError(f"URL parse error during conversion from string: {text!r}")
    _ = parts.port  # raises ValueError
    return {"url": text}


def _url_part(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: read(urlsplit(value["url"])) or ""


FUNCTIONS: dict[str, list[tuple[str, str, Callable[..., Any]]]] = {
    "isSorted": [(".l", "b", _sorted)],
    "sum": [(".l", "*", lambda items: sum(items[1:], items[0]) if items else 0)],
    "min": [(".l", "*", _non_empty(min, "min"))],
    "max": [(".l", "*", _non_empty(max, "max"))],
    "k8sindexOf": [
        *((f".l{kind}", "i", _index_of) for kind in "sidbm"),
        (".ss", "i", lambda text, part: text.find(part)),
        (".ssi", "i", lambda text, part, start: text.find(part, start)),
    ],
    "k8slastIndexOf": [
        *((f".l{kind}", "i", _last_index_of) for kind in "sidbm"),
        (".ss", "i", lambda text, part: text.rfind(part)),
        (".ssi", "i", lambda text, part, end: text.rfind(part, 0, end + len(part))),
    ],
    "find": [(".ss", "s", _find)],
    "findAll": [(".ss", "l", _find_all), (".ssi", "l", _find_all)],
    "quantity": [("s", "m", lambda text: _quantity(_parse_quantity(text)))],
    "isQuantity": [("s", "b", _parses(_parse_quantity))],
    "isInteger": [(".m", "b", _parses(_whole_number))],
    "asInteger": [(".m", "i", _whole_number)],
    "asApproximateFloat": [(".m", "d", lambda value: float(_number(value)))],
    "sign": [(".m", "i", lambda value: (_number(value) > 0) - (_number(value) < 0))],
    "add": [(".mm", "m", _added(1)), (".mi", "m", _added(1))],
    "sub": [(".mm", "m", _added(-1)), (".mi", "m", _added(-1))],
    "compareTo": [(".mm", "i", _compared)],
    "isLessThan": [(".mm", "b", lambda left, right: _compared(left, right) < 0)],
    "isGreaterThan": [(".mm", "b", lambda left, right: _compared(left, right) > 0)],
    "semver": [("s", "m", _version)],
    "isSemver": [("s", "b", _parses(_version))],
    "major": [(".m", "i", lambda value: value["semver"][0])],
    "minor": [(".m", "i", lambda value: value["semver"][1])],
    "patch": [(".m", "i", lambda value: value["semver"][2])],
    "ip": [("s", "m", _address), (".m", "m", lambda net: {"ip": net["cidr"].partition("/")[0]})],
    "isIP": [("s", "b", _parses(_address))],
    "family": [(".m", "i", lambda value: _ip(value).version)],
    "isLoopback": [(".m", "b", lambda value: _ip(value).is_loopback)],
    "isUnspecified": [(".m", "b", lambda value: _ip(value).is_unspecified)],
    "isLinkLocalUnicast": [(".m", "b", lambda value: _ip(value).is_link_local)],
    "isGlobalUnicast": [(".m", "b", lambda value: not (_ip(value).is_multicast or _ip(value).is_loopback
                                                      or _ip(value).is_unspecified or _ip(value).is_link_local))],
    "cidr": [("s", "m", _cidr)],
    "isCIDR": [("s", "b", _parses(_cidr))],
    "containsIP": [(".mm", "b", _contains_ip), (".ms", "b", _contains_ip)],
    "containsCIDR": [(".mm", "b", _contains_network), (".ms", "b", _contains_network)],
    "masked": [(".m", "m", lambda value: {"cidr": str(_network_of(value))})],
    "prefixLength": [(".m", "i", lambda value: _network_of(value).prefixlen)],
    "url": [("s", "m", _url)],
    "isURL": [("s", "b", _parses(_url))],
    "getScheme": [(".m", "s", _url_part(lambda url: url.scheme))],
    "getHost": [(".m", "s", _url_part(lambda url: url.netloc.rpartition("@")[2]))],
    "getHostname": [(".m", "s", _url_part(lambda url: url.hostname))],
    "getPort": [(".m", "s", _url_part(lambda url: str(url.port) if url.port is not None else ""))],
    "getEscapedPath": [(".m", "s", _url_part(lambda url: url.path))],
    "getQuery": [(".m", "m", lambda value: parse_qs(urlsplit(value["url"]).query, keep_blank_values=True))],
}  # fmt: skip


def duration(text: str) -> datetime.timedelta | None:
    """A duration in Go's format (1h30m); None when the text is not one."""
    units = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
    if not re.fullmatch(r"-?(\d+(\.\d*)?(h|ms|m|s|us|ns))+", text):
        return None
    total = sum(float(count) * units[unit] for count, _, unit in re.findall(r"(\d+(\.\d*)?)(h|ms|m|s|us|ns)", text))
    return datetime.timedelta(seconds=-total if text.startswith("-") else total)

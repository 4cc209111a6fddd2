"""Secrets that a manifest has as literal values of env: they are recognized by the name of the variable."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

MASKED = "(masked)"
SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY", re.IGNORECASE)
MIN_SECRET = 6  # characters: a shorter value is masked where it is set, but not in other texts
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"  # annotation: a copy of the manifest


def masker(secrets: Iterable[str]) -> Callable[[str], str]:
    """A function that masks these values wherever they are in a text."""
    long_secrets = sorted((secret for secret in set(secrets) if len(secret) >= MIN_SECRET), key=len, reverse=True)
    if not long_secrets:
        return lambda text: text
    pattern = re.compile("|".join(map(re.escape, long_secrets)))
    return lambda text: pattern.sub(MASKED, text)


def mask_env(value: Any, secrets: list[str]) -> Any:
    """A part of an object without the literal values of env whose names are those of secrets; these are added to
    `secrets`. An env that comes from a Secret has no value in an object."""
    if isinstance(value, list):
        return [mask_env(item, secrets) for item in value]
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("value"), str) and value["value"] and SECRET_NAME.search(str(value.get("name"))):
        secrets.append(value["value"])
        return {**value, "value": MASKED}
    return {key: mask_env(item, secrets) for key, item in value.items() if key != LAST_APPLIED}

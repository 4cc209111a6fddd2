"""Tokens of ServiceAccounts: signed, short-lived, and dead as soon as what they are bound to is gone.

A token is a JSON Web Token (HMAC-SHA256) with the claims that Kubernetes writes. Whoever keeps the key (a cluster with
a state does) has tokens that are good in the next life, too; otherwise it is random and ends with this process.

Rules for this file:
- Whatever is wrong with a token, the answer is the same: nobody. The caller says 401 and no reason.
- The signature is checked before anything in the token is read.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import uuid
from collections.abc import Callable
from typing import Any

from trainyard.objects import Json, Key, decode, encode, parse_time
from trainyard.server.log import Log
from trainyard.server.users import User, account_groups, account_name

ISSUER = "https://kubernetes.default.svc.cluster.local"
ACCOUNTS, PODS = "serviceaccounts", "pods"
LEEWAY = 60.0  # seconds after the end of its grace in which a pod that is being deleted may still ask
LONGEST = 16_384
_HEADER = {"alg": "HS256", "typ": "JWT"}


class Tokens:
    """Gives tokens out and takes them back. `log` says who still exists."""

    def __init__(self, log: Log, now: Callable[[], float], key: bytes = b"") -> None:
        self._log, self._now = log, now
        self._key = key or secrets.token_bytes(32)

    def issue(self, account: Json, pod: Json | None, audiences: tuple[str, ...], seconds: int) -> str:
        """A token for a ServiceAccount, bound to a pod when one is given."""
        meta, now = account["metadata"], int(self._now())
        bound: Json = {"namespace": meta["namespace"], "serviceaccount": {"name": meta["name"], "uid": meta["uid"]}}
        if pod is not None:
            bound["pod"] = {"name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        claims = {
            "aud": list(audiences or (ISSUER,)),
            "exp": now + seconds,
            "iat": now,
            "iss": ISSUER,
            "jti": str(uuid.uuid4()),
            "kubernetes.io": bound,
            "nbf": now,
            "sub": account_name(meta["namespace"], meta["name"]),
        }
        signed = f"{_coded(encode(_HEADER))}.{_coded(encode(claims))}"
        return f"{signed}.{_coded(self._signature(signed))}"

    def user_of(self, token: str) -> User | None:
        """Who sends this token; None when it is none of ours, or no longer good."""
        signed, _, signature = token.rpartition(".")
        if len(token) > LONGEST or not hmac.compare_digest(_coded(self._signature(signed)).encode(), _bytes(signature)):
            return None
        try:
            claims: Json = decode(_uncoded(signed.partition(".")[2]))
        except (ValueError, binascii.Error):
            return None
        now = self._now()
        if not claims["nbf"] <= now < claims["exp"] or ISSUER not in claims["aud"]:
            return None
        return self._alive(claims)

    def _alive(self, claims: Json) -> User | None:
        bound: Json = claims["kubernetes.io"]
        namespace, account, pod = bound["namespace"], bound["serviceaccount"], bound.get("pod")
        if not self._is(ACCOUNTS, namespace, account) or (pod and not self._is(PODS, namespace, pod)):
            return None
        extra = {"authentication.kubernetes.io/credential-id": (f"JTI={claims['jti']}",)}
        if pod:
            extra["authentication.kubernetes.io/pod-name"] = (pod["name"],)
            extra["authentication.kubernetes.io/pod-uid"] = (pod["uid"],)
        return User(claims["sub"], account["uid"], account_groups(namespace), extra)

    def _is(self, store: str, namespace: str, bound: Json) -> bool:
        """Whether exactly that object is still there, and not long dead."""
        record = self._log.get(store, Key(namespace, bound["name"]))
        if record is None:
            return False
        meta: Any = decode(record.body)["metadata"]
        ending = parse_time(meta.get("deletionTimestamp"))
        return meta["uid"] == bound["uid"] and (ending is None or self._now() < ending + LEEWAY)

    def _signature(self, signed: str) -> bytes:
        return hmac.new(self._key, _bytes(signed), hashlib.sha256).digest()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _coded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _uncoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))

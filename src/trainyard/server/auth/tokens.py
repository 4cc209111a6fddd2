"""ServiceAccount tokens: signed, with an expiry, and invalid once the object that they are bound to is deleted.

A token is a JSON Web Token (HMAC-SHA256) with the claims of Kubernetes. A cluster with persistent state keeps the
signing key, so that its tokens are valid after a restart; otherwise the key is random for each process.

Rules for this file:
- An invalid token of any sort gives None. The caller answers 401 without a reason.
- The signature is verified before the claims are decoded.
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

from trainyard.objects import Json, NamespacedName, decode, encode, parse_time
from trainyard.server.model.users import User, account_groups, account_name
from trainyard.server.storage.log import RevisionLog

ISSUER = "https://kubernetes.default.svc.cluster.local"
ACCOUNTS, PODS = "serviceaccounts", "pods"
LEEWAY = 60.0  # seconds after its deletionTimestamp for which the token of a terminating pod is valid
LONGEST = 16_384
_HEADER = {"alg": "HS256", "typ": "JWT"}


class TokenAuthority:
    """Issues and validates tokens. The bound objects are looked up in `log`."""

    def __init__(self, log: RevisionLog, now: Callable[[], float], key: bytes = b"") -> None:
        self._log, self._now = log, now
        self._key = key or secrets.token_bytes(32)

    def issue(self, account: Json, pod: Json | None, audiences: tuple[str, ...], seconds: int) -> str:
        """A token for a ServiceAccount, valid for `seconds`; bound to `pod` unless that is None."""
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
        signed = f"{_base64url(encode(_HEADER))}.{_base64url(encode(claims))}"
        return f"{signed}.{_base64url(self._signature(signed))}"

    def validate(self, token: str) -> User | None:
        """The user of a token; None when it is invalid or expired, or a bound object is deleted."""
        signed, _, signature = token.rpartition(".")
        if len(token) > LONGEST or not hmac.compare_digest(
            _base64url(self._signature(signed)).encode(), _bytes(signature)
        ):
            return None
        try:
            claims: Json = decode(_base64url_decoded(signed.partition(".")[2]))
        except (ValueError, binascii.Error):
            return None
        now = self._now()
        if not claims["nbf"] <= now < claims["exp"] or ISSUER not in claims["aud"]:
            return None
        return self._user_of_claims(claims)

    def _user_of_claims(self, claims: Json) -> User | None:
        bound: Json = claims["kubernetes.io"]
        namespace, account, pod = bound["namespace"], bound["serviceaccount"], bound.get("pod")
        if not self._is(ACCOUNTS, namespace, account) or (pod and not self._is(PODS, namespace, pod)):
            return None
        extra = {"authentication.kubernetes.io/credential-id": (f"JTI={claims['jti']}",)}
        if pod:
            extra["authentication.kubernetes.io/pod-name"] = (pod["name"],)
            extra["authentication.kubernetes.io/pod-uid"] = (pod["uid"],)
        return User(claims["sub"], account["uid"], account_groups(namespace), extra)

    def _is(self, store: str, namespace: str, reference: Json) -> bool:
        """Whether the bound object exists with that uid and was not deleted more than LEEWAY ago."""
        record = self._log.get(store, NamespacedName(namespace, reference["name"]))
        if record is None:
            return False
        meta: Any = decode(record.body)["metadata"]
        deletion_time = parse_time(meta.get("deletionTimestamp"))
        return meta["uid"] == reference["uid"] and (deletion_time is None or self._now() < deletion_time + LEEWAY)

    def _signature(self, signed: str) -> bytes:
        return hmac.new(self._key, _bytes(signed), hashlib.sha256).digest()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _base64url_decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))

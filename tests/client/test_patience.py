"""A 429 means that the request was not executed: a client with a time-out retries until it is served."""

from __future__ import annotations

import pytest

from trainyard.client import ApiClient, Unavailable
from trainyard.client.credentials import Identity
from trainyard.client.request import ApiRequest

ASK = ApiRequest("GET", "/version")


class Full(ApiClient):
    """Answers 429, or another code, so many times."""

    def __init__(self, times: int, code: int = 429) -> None:
        super().__init__("http://server.test")
        self.times, self.code, self.requests = times, code, 0

    async def _send(self, request: ApiRequest, identity: Identity) -> bytes:
        self.requests += 1
        if self.requests <= self.times:
            raise Unavailable(self.code, "TooManyRequests", "no room", retry_after=0.0)
        return b"{}"


async def test_a_request_that_finds_no_room_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainyard.client.api.MIN_RETRY_DELAY", 0.0)
    api = Full(3)
    api.too_many_requests_timeout = 60.0
    assert await api.send(ASK) == b"{}" and api.requests == 4


@pytest.mark.parametrize(("code", "patience"), [(429, 0.0), (503, 60.0)])
async def test_without_a_time_out_or_for_other_codes_a_request_is_not_retried(code: int, patience: float) -> None:
    api = Full(1, code)
    api.too_many_requests_timeout = patience
    with pytest.raises(Unavailable):
        await api.send(ASK)
    assert api.requests == 1


async def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainyard.client.api.MIN_RETRY_DELAY", 0.001)
    api = Full(10**9)
    api.too_many_requests_timeout = 0.01
    with pytest.raises(Unavailable):
        await api.send(ASK)

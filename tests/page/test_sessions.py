from __future__ import annotations

import contextlib

import pytest

from trainyard.page.sessions import (
    INVITATION_SECONDS,
    MAX_TRIES,
    SESSION_SECONDS,
    TICKET_SECONDS,
    TRY_SECONDS,
    Sessions,
    TooManyTries,
)


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def test_an_invitation_gives_one_session_once() -> None:
    sessions = Sessions(b"a", Clock())
    invitation = sessions.invite()
    session = sessions.accept(invitation)
    assert session is not None and sessions.right_of(session) == "read"
    assert sessions.accept(invitation) is None
    assert sessions.right_of(invitation) is None and sessions.right_of("") is None


def test_an_invitation_and_a_session_expire() -> None:
    clock = Clock()
    sessions = Sessions(b"a", clock)
    late, early = sessions.invite(), sessions.invite()
    session = sessions.accept(early)
    clock.seconds += INVITATION_SECONDS + 1
    assert sessions.accept(late) is None
    assert session is not None and sessions.right_of(session) == "read"
    clock.seconds += SESSION_SECONDS
    assert sessions.right_of(session) is None


def test_guesses_are_limited_and_the_limit_passes() -> None:
    clock = Clock()
    sessions = Sessions(b"a", clock)
    for _ in range(MAX_TRIES):
        assert sessions.accept("guess") is None
    with pytest.raises(TooManyTries):
        sessions.accept("guess")
    clock.seconds += TRY_SECONDS + 1
    assert sessions.accept("guess") is None


def test_guesses_of_another_user_lock_no_owner_out() -> None:
    sessions = Sessions(b"a", Clock())
    for _ in range(3 * MAX_TRIES):
        with contextlib.suppress(TooManyTries):
            sessions.accept("guess")
    for right in ("read", "write"):
        session = sessions.accept(sessions.invite(right))
        assert session is not None and sessions.right_of(session) == right
    with pytest.raises(TooManyTries):
        sessions.accept("guess")


def test_a_ticket_is_for_one_path_once_and_soon() -> None:
    clock = Clock()
    sessions = Sessions(b"a", clock)
    ticket = sessions.issue_ticket("jobs/u/logs/f")
    assert sessions.take_ticket(ticket) == "jobs/u/logs/f"
    assert sessions.take_ticket(ticket) is None
    late = sessions.issue_ticket("x")
    clock.seconds += TICKET_SECONDS + 1
    assert sessions.take_ticket(late) is None


def test_a_session_outlives_its_server_but_not_its_secret() -> None:
    clock = Clock()
    first = Sessions(b"a", clock)
    session = first.accept(first.invite())
    assert session is not None
    assert Sessions(b"a", clock).right_of(session) == "read"
    assert Sessions(b"b", clock).right_of(session) is None


@pytest.mark.parametrize("session", ["", ".", "9999999999", "9999999999.", "9999999999.x", "x.y", "\u00e9.\u00e9"])
def test_a_session_that_was_made_up_is_not_valid(session: str) -> None:
    assert Sessions(b"a", Clock()).right_of(session) is None


def test_the_end_of_a_session_cannot_be_changed() -> None:
    sessions = Sessions(b"a", Clock())
    session = sessions.accept(sessions.invite())
    assert session is not None
    assert sessions.right_of(f"9999999999.{session.partition('.')[2]}") is None
    assert sessions.right_of(f"key.{sessions.key}") is None or sessions.right_of(f"9999999999.{sessions.key}") is None


def test_the_key_of_one_page_server_is_not_that_of_another() -> None:
    first, second = Sessions(b"a", Clock()), Sessions(b"b", Clock())
    assert first.may_invite(first.key)
    assert not first.may_invite(second.key) and not first.may_invite("")


@pytest.mark.parametrize("text", ["\udcff", "9999999999.\udcff", "\udcff.x", "é"])
def test_bytes_that_are_no_text_are_no_key_and_no_session(text: str) -> None:
    """HTTP headers may have them; the parser turns them into surrogates."""
    sessions = Sessions(b"secret", lambda: 0.0)
    assert sessions.right_of(text) is None and not sessions.may_invite(text)
    assert sessions.accept(text) is None and sessions.take_ticket(text) is None


def test_an_invitation_to_write_gives_a_session_that_may() -> None:
    sessions = Sessions(b"a", Clock())
    writing, reading = (sessions.accept(sessions.invite(right)) for right in ("write", "read"))
    assert writing is not None and reading is not None
    assert (sessions.right_of(writing), sessions.right_of(reading)) == ("write", "read")


def test_a_session_that_reads_cannot_be_made_to_write() -> None:
    """Its end is the only part of it beside the signature, and the signature is that of a right."""
    sessions = Sessions(b"a", Clock())
    session = sessions.accept(sessions.invite())
    assert session is not None
    end, _, signature = session.partition(".")
    for made_up in (f"{end} write.{signature}", f"write {end}.{signature}", f"writing session {end}.{signature}"):
        assert sessions.right_of(made_up) is None

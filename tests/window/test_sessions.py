from __future__ import annotations

import pytest

from trainyard.window.sessions import (
    INVITATION_SECONDS,
    MAX_SESSIONS,
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
    sessions = Sessions(Clock())
    invitation = sessions.invite()
    session = sessions.accept(invitation)
    assert session is not None and sessions.is_valid(session)
    assert sessions.accept(invitation) is None
    assert not sessions.is_valid(invitation) and not sessions.is_valid("")


def test_an_invitation_and_a_session_expire() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    late, early = sessions.invite(), sessions.invite()
    session = sessions.accept(early)
    clock.seconds += INVITATION_SECONDS + 1
    assert sessions.accept(late) is None
    assert session is not None and sessions.is_valid(session)
    clock.seconds += SESSION_SECONDS
    assert not sessions.is_valid(session)


def test_guesses_are_limited_and_the_limit_passes() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    for _ in range(MAX_TRIES):
        assert sessions.accept("guess") is None
    with pytest.raises(TooManyTries):
        sessions.accept(sessions.invite())
    clock.seconds += TRY_SECONDS + 1
    assert sessions.accept(sessions.invite()) is not None


def test_a_ticket_is_for_one_path_once_and_soon() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    ticket = sessions.issue_ticket("jobs/u/logs/f")
    assert sessions.take_ticket(ticket) == "jobs/u/logs/f"
    assert sessions.take_ticket(ticket) is None
    late = sessions.issue_ticket("x")
    clock.seconds += TICKET_SECONDS + 1
    assert sessions.take_ticket(late) is None


def test_the_oldest_session_ends_when_there_are_too_many() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    first = sessions.accept(sessions.invite())
    for _ in range(MAX_SESSIONS):
        clock.seconds += TRY_SECONDS
        last = sessions.accept(sessions.invite())
    assert first is not None and not sessions.is_valid(first)
    assert last is not None and sessions.is_valid(last)


def test_the_key_of_one_window_is_not_that_of_another() -> None:
    first, second = Sessions(Clock()), Sessions(Clock())
    assert first.may_invite(first.key)
    assert not first.may_invite(second.key) and not first.may_invite("")

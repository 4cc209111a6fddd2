"""The counter of an API server's requests reads whole lines of a log that is still being written."""

import json
from pathlib import Path

import pytest

from tests.support.control_plane_audit import BLOCK, Audit


def _line(number: int, uri: str, padding: int = 0) -> bytes:
    return (
        json.dumps(
            {"auditID": str(number), "requestURI": uri, "verb": "get", "user": {"username": "u" * (1 + padding)}}
        ).encode()
        + b"\n"
    )


@pytest.mark.parametrize("padding", [0, BLOCK, 3 * BLOCK])
def test_a_mark_made_while_a_line_is_written_lies_before_that_line(tmp_path: Path, padding: int) -> None:
    log = tmp_path / "audit.log"
    log.write_bytes(_line(0, "/api/before"))
    half = _line(1, "/api/after", padding)

    def ask(uri: str) -> None:
        """Answers, and leaves half of the next request's line behind, or its other half."""
        with log.open("ab") as writer:
            if uri.endswith("=1"):
                writer.write(_line(100, uri) + half[:-5])
            else:
                writer.write(half[-5:] + _line(101, uri))

    def wait(true: object, description: str) -> None:
        assert callable(true), description
        assert true(), description

    audit = Audit(log, ask, wait)
    mark = audit.mark()
    assert [request.resource for request in audit.since(mark)] == ["/api/after"]

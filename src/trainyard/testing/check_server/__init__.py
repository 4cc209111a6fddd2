"""check_server: what a Kubernetes API server must do, one sentence each, run unchanged against ours and the real one.

    @check("A name that is taken is refused with 409 AlreadyExists.", area="crud", breaks=answers(409, 201))
    async def taken(yard: Subject) -> None: ...

Flow: a module of `checks` declares checks -> `CHECKS` gathers them -> a runner gives each a `Subject` (an
administrator, a fresh namespace, raw HTTP) -> it returns, or raises.

Rules:
- A check never asks which server it has, except to set something up.
- A check is shown able to fail: `breaks` switches the one behaviour off in the embedded server, or alters its answers,
  and then it must raise. A check without `breaks` fails the tests.
- A check leaves nothing behind: its namespace, names and definitions are removed by the subject.
"""

from trainyard.testing.check_server.breaks import Break
from trainyard.testing.check_server.catalogue import Check, check, gathered
from trainyard.testing.check_server.subject import Lines, Reply, Subject, embedded, real

__all__ = ["CHECKS", "Break", "Check", "Lines", "Reply", "Subject", "check", "embedded", "real"]

CHECKS = gathered()

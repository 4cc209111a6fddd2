"""Controllers of other projects that serve the same jobs in a cluster (core.OtherController): beside one, the operator
serves no job of that kind.

Rules for this file:
- The object by which such a controller is recognised is read at the start and again every POLL_SECONDS. Until the first
  answer no job of its kind is served, so that two controllers never start the same new job.
- An API server that does not answer changes nothing. Where the operator may not read the object, as with Roles of one
  namespace, its jobs are served, with a warning in the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial

from trainyard.client import ApiClient, ApiError, Forbidden, NotFound
from trainyard.core import Kind, OtherController
from trainyard.objects import GVK
from trainyard.operator import Operator

log = logging.getLogger(__name__)

POLL_SECONDS = 10.0
FIRST_ANSWER_SECONDS = 1.0  # between two reads before the first answer


def start(api: ApiClient, operator: Operator, kinds: Iterable[Kind]) -> None:
    """Hold and release these kinds as their other controllers come and go, until the operator is stopped."""
    shared = [kind for kind in kinds if kind.api.other_controller is not None]
    for kind in shared:
        operator.held.hold(kind.gvk)
    if shared:
        operator.tasks.start("look for other controllers", partial(_follow, api, operator, shared))


async def _follow(api: ApiClient, operator: Operator, kinds: Iterable[Kind]) -> None:
    watched = [(kind, other) for kind in kinds if (other := kind.api.other_controller) is not None]
    states: dict[GVK, bool | None] = {}
    while True:
        for kind, other in watched:
            before = states.get(kind.gvk)
            states[kind.gvk] = is_installed = await _is_installed(api, other, before)
            if is_installed is not None and is_installed is not before:
                _apply(operator, kind, other, is_installed)
        unknown = None in states.values()
        await asyncio.sleep(FIRST_ANSWER_SECONDS if unknown else POLL_SECONDS)


def _apply(operator: Operator, kind: Kind, other: OtherController, is_installed: bool) -> None:
    name = kind.gvk.kind
    if is_installed:
        log.error(
            "no %s is served: %s. Remove it, and this operator serves them; or use --kinds without %s",
            *(name, other.is_installed_text, name),
        )
        operator.held.hold(kind.gvk, other.is_installed_text)
    else:
        log.info("%s are served: %s is not installed", kind.gvk.plural, other.name)
        operator.held.release(kind.gvk)


async def _is_installed(api: ApiClient, other: OtherController, before: bool | None) -> bool | None:
    """Whether its object is there; without an answer as before."""
    try:
        await api.get(other.gvk, "", other.object_name)
    except NotFound:
        return False
    except Forbidden as error:
        if before is None:
            log.warning("it is not known whether %s is installed, and it must not be: %s", other.name, error)
        return False
    except ApiError as error:
        log.warning("cannot look for %s, again in some seconds: %s", other.name, error)
        return before
    return True

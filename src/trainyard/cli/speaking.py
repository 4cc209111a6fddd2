"""What every word about jobs has in common: find the cluster, speak, and turn what went wrong into words and a code.

    def get(..., **words): speak(words, lambda here: _get(here, ...))

Rules:
- The HTTP library is loaded only here, after the command line has been understood.
- stdout holds what was asked for; problems go to stderr. A reader who went away is no problem of ours.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from trainyard.app.background import BackgroundError
from trainyard.app.kubeconfig import Access, KubeconfigError, find
from trainyard.cli.codes import BAD, CANNOT, FAILED, INTERRUPTED, READER_GONE
from trainyard.objects.manifest import ManifestError

if TYPE_CHECKING:
    from trainyard.client import Api


@dataclass(frozen=True, slots=True)
class Here:
    """The cluster that is spoken to, and the namespace that is meant."""

    api: Api
    namespace: str
    access: Access


class Said(Exception):
    """The answer is no. The text is for the person, `code` for the shell."""

    def __init__(self, text: str, code: int = FAILED) -> None:
        super().__init__(text)
        self.code = code


def speak(words: dict[str, Any], work: Callable[[Here], Awaitable[int | None]]) -> None:
    """Do the work against the cluster that the words name, and exit."""
    code: int | None
    try:
        code = asyncio.run(_speak(words, work))
        sys.stdout.flush()
    except Said as said:
        if str(said):
            click.echo(str(said), err=True)
        code = said.code
    except (KubeconfigError, BackgroundError) as error:
        click.echo(str(error), err=True)
        code = CANNOT
    except ManifestError as error:
        for problem in error.problems:
            click.echo(str(problem), err=True)
        code = BAD
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the interpreter complains once more when it flushes
        code = READER_GONE
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(code or 0)


async def _speak(words: dict[str, Any], work: Callable[[Here], Awaitable[int | None]]) -> int | None:
    access = find(words.get("kubeconfig") or "", words.get("context") or "")
    # What the rooms below log is for those who ask; what a person has to know is said by the word itself.
    logging.basicConfig(level=os.environ.get("TRAINYARD_LOG", "ERROR").upper())
    from trainyard.client import ApiError, Unavailable

    try:
        api = access.api()
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise Said(f"{access.source}: its certificates cannot be used ({error}); write them anew", CANNOT) from None
    try:
        async with api:
            return await work(Here(api, words.get("namespace") or access.namespace, access))
    except Unavailable as error:
        if error.code:
            raise Said(f"the cluster cannot answer now: {error.message}", CANNOT) from None
        text = f"the cluster at {_place(access.server)} does not answer: {_why(error.message)}"
        raise Said(f"{text}; is it up? (kubeconfig: {access.source})", CANNOT) from None
    except ApiError as error:
        if error.code == 401:
            text = f"the cluster at {_place(access.server)} does not know us: renew the token in {access.source}"
            raise Said(text, CANNOT) from None
        raise Said(error.message, FAILED) from None


def _place(server: str) -> str:
    """Scheme and host: what follows may be a token."""
    return "/".join(server.split("/")[:3])


def _why(message: str) -> str:
    return message.split(": ", 1)[-1]


def out(text: str) -> None:
    """What was asked for. It is there at once, in a pipe too: the word may go on to wait for hours."""
    sys.stdout.write(text if text.endswith("\n") or not text else f"{text}\n")
    sys.stdout.flush()


def note(text: str) -> None:
    click.echo(text, err=True)

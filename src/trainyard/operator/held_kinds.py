"""The kinds of jobs that the operator watches and does not serve."""

from __future__ import annotations

from collections.abc import Callable

from trainyard.objects import GVK


class HeldKinds:
    """The operator sends no write for jobs of a held kind but, where there is a reason, an event about each job that it
    has begun and that has not ended. `resync` enqueues the jobs of a kind. Reconciles in progress are completed."""

    def __init__(self, resync: Callable[[GVK], None]) -> None:
        self._reasons: dict[GVK, str] = {}
        self._resync = resync

    @property
    def reasons(self) -> dict[GVK, str]:
        """Why each of them is not served, "" while that is not known."""
        return dict(self._reasons)

    def reason(self, gvk: GVK) -> str | None:
        """Why no job of the kind is served, "" while that is not known; None: they are served."""
        return self._reasons.get(gvk)

    def hold(self, gvk: GVK, reason: str = "") -> None:
        """Serve no job of this kind until `release`."""
        self._reasons[gvk] = reason
        self._resync(gvk)

    def release(self, gvk: GVK) -> None:
        """Serve the jobs of this kind."""
        if self._reasons.pop(gvk, None) is not None:
            self._resync(gvk)

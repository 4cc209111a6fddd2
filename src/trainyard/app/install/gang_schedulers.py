"""`--gang-scheduler-name=auto`: the gang scheduler of a cluster, by the PodGroups that its API server serves.

See docs/decisions/0016-gang-scheduler-auto.md.
"""

from __future__ import annotations

import asyncio
import logging

from trainyard.client import ApiClient, ApiError, NotFound
from trainyard.controller_runtime.backoff import Backoff
from trainyard.kinds.kubeflow_v1.gang import PLUGINS_POD_GROUP, POD_GROUPS, VOLCANO, VOLCANO_POD_GROUP
from trainyard.objects import GVK, decode

log = logging.getLogger(__name__)

AUTO = "auto"
DEFAULT_SCHEDULER = "default-scheduler"
"""The schedulerName of pods whose template names none. With scheduler-plugins in it, it knows PodGroups."""
_SCHEDULERS = {VOLCANO_POD_GROUP: VOLCANO, PLUGINS_POD_GROUP: DEFAULT_SCHEDULER}


async def find_gang_scheduler(api: ApiClient) -> str:
    """The gang scheduler whose PodGroups are the only ones that the API server serves, "" without exactly one (see
    core.Config). Waits until the API server has answered."""
    served = [gvk for gvk in POD_GROUPS if await _is_served(api, gvk)]
    if len(served) != 1:
        reason = "both APIs of PodGroups are served: name the scheduler" if served else "no API of PodGroups is served"
        log.log(logging.WARNING if served else logging.INFO, "no gang scheduler: %s", reason)
        return ""
    log.info("gang scheduler name=%s PodGroups=%s", _SCHEDULERS[served[0]], served[0].api_version)
    return _SCHEDULERS[served[0]]


async def _is_served(api: ApiClient, gvk: GVK) -> bool:
    backoff = Backoff(0.5, 10.0)
    while True:
        try:
            resources = decode(await api.request("GET", f"/apis/{gvk.api_version}")).get("resources") or []
        except NotFound:
            return False
        except ApiError as error:
            delay = backoff.next_delay()
            log.warning("the PodGroups of %s cannot be looked up, again in %.0f s: %s", gvk.group, delay, error)
            await asyncio.sleep(delay)
        else:
            return any(resource.get("name") == gvk.plural for resource in resources)

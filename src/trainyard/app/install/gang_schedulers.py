"""The gang scheduler of a cluster: that of `--gang-scheduler-name=auto`, and whether `native` can work.

See docs/decisions/0016-gang-scheduler-auto.md and 0028-native-gangs.md.
"""

from __future__ import annotations

import asyncio
import logging

from trainyard.client import ApiClient, ApiError, NotFound
from trainyard.controller_runtime.backoff import Backoff
from trainyard.kinds.kubeflow_v1.gang import PLUGINS_POD_GROUP, VOLCANO, VOLCANO_POD_GROUP
from trainyard.kinds.native_gang import NATIVE
from trainyard.objects import GVK, decode
from trainyard.objects.resources import NATIVE_POD_GROUP

log = logging.getLogger(__name__)

AUTO = "auto"
DEFAULT_SCHEDULER = "default-scheduler"
"""The schedulerName of pods whose template names none. With scheduler-plugins in it, it knows PodGroups."""
_SCHEDULERS = {NATIVE_POD_GROUP: NATIVE, VOLCANO_POD_GROUP: VOLCANO, PLUGINS_POD_GROUP: DEFAULT_SCHEDULER}
"""By the resource of their PodGroups, in the order in which `auto` prefers them."""
NATIVE_NOT_SERVED = (
    "--gang-scheduler-name=native: the API server serves no podgroups of scheduling.k8s.io/v1beta1. Start "
    "kube-apiserver with --feature-gates=GenericWorkload=true --runtime-config=scheduling.k8s.io/v1beta1=true, and "
    "kube-scheduler and kube-controller-manager with the same feature gate (Kubernetes 1.37 and newer); until then the "
    "pods of each job are scheduled one by one"
)


async def choose_gang_scheduler(api: ApiClient, named: str) -> str:
    """The gang scheduler in the place of AUTO or NATIVE: "" where the cluster has none, or not that."""
    if named == AUTO:
        return await find_gang_scheduler(api)
    if await serves_native_gangs(api):
        return named
    log.error(NATIVE_NOT_SERVED)
    return ""


async def find_gang_scheduler(api: ApiClient) -> str:
    """The first gang scheduler whose PodGroups the API server serves, "" without any (see core.Config). Waits until the
    API server has answered."""
    for gvk, name in _SCHEDULERS.items():
        if await _is_served(api, gvk):
            log.info("gang scheduler name=%s PodGroups=%s", name, gvk.api_version)
            return name
    log.info("no gang scheduler: no API of PodGroups is served")
    return ""


async def serves_native_gangs(api: ApiClient) -> bool:
    """Whether the API server serves the PodGroups of Kubernetes itself, and so stores the pods' `schedulingGroup`,
    which it drops without a word otherwise. Waits until it has answered."""
    return await _is_served(api, NATIVE_POD_GROUP)


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

"""The built-in resources: one `Resource` value per resource, collected into `BUILT_IN`."""

from trainyard.server.builtin import (
    apps,
    core_resources,
    crd_resource,
    events,
    jobs,
    pod_groups,
    pods,
    rbac_resources,
    reviews,
    services,
    slices,
)
from trainyard.server.model.resources import Resource

BUILT_IN: tuple[Resource, ...] = (
    *core_resources.CORE,
    *pods.RESOURCES,
    *services.RESOURCES,
    *events.RESOURCES,
    *apps.RESOURCES,
    *jobs.RESOURCES,
    *slices.RESOURCES,
    *pod_groups.RESOURCES,
    *core_resources.OTHERS,
    *rbac_resources.RESOURCES,
    *reviews.RESOURCES,
    *crd_resource.RESOURCES,
)

__all__ = ["BUILT_IN"]

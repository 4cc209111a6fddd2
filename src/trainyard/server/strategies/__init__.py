"""The built-in resources: one `Resource` value per resource, collected into `BUILT_IN`."""

from trainyard.server.resources import Resource
from trainyard.server.strategies import apps, definition, events, jobs, plain, pods, rbac, reviews, services, slices

BUILT_IN: tuple[Resource, ...] = (
    *plain.CORE,
    *pods.RESOURCES,
    *services.RESOURCES,
    *events.RESOURCES,
    *apps.RESOURCES,
    *jobs.RESOURCES,
    *slices.RESOURCES,
    *plain.OTHERS,
    *rbac.RESOURCES,
    *reviews.RESOURCES,
    *definition.RESOURCES,
)

__all__ = ["BUILT_IN"]

"""One HTTP client for a Kubernetes API server, real or embedded.

The room's idea: requests and answers are values (request.py, pure), failures are one tree (errors.py), and a thin
transport (api.py) moves bytes between them, as whoever credentials.py says we are. It knows no kind of job and decides
nothing.
"""

from trainyard.client.api import Api
from trainyard.client.credentials import Credentials, Identity
from trainyard.client.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    Unavailable,
)
from trainyard.client.request import Named, Request, Selection, named, path_of

__all__ = [
    "AlreadyExists",
    "Api",
    "ApiError",
    "Conflict",
    "Credentials",
    "Forbidden",
    "Gone",
    "Identity",
    "Invalid",
    "Named",
    "NotFound",
    "Request",
    "Selection",
    "Unavailable",
    "named",
    "path_of",
]

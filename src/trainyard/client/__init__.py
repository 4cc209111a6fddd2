"""One HTTP client for a Kubernetes API server, real or embedded.

- request.py builds requests and parses responses; pure functions, no I/O.
- errors.py has one exception class per error response that callers tell apart.
- api.py sends requests through a transport (transport.py: the interface; http.py: a pool of
  connections; connector.py opens them; connection.py: HTTP/1.1 on one of them).
- credentials.py gives the bearer token and the TLS context of each request; tls.py makes the contexts.

The client has no code for any kind of job and makes no decisions.
"""

from trainyard.client.api import ApiClient, Endpoint
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
from trainyard.client.request import ApiRequest, RequestInfo, Selectors, path_of, request_info

__all__ = [
    "AlreadyExists",
    "ApiClient",
    "ApiError",
    "ApiRequest",
    "Conflict",
    "Credentials",
    "Endpoint",
    "Forbidden",
    "Gone",
    "Identity",
    "Invalid",
    "NotFound",
    "RequestInfo",
    "Selectors",
    "Unavailable",
    "path_of",
    "request_info",
]

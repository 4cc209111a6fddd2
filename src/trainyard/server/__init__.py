"""The embedded Kubernetes API server: HTTP, the verbs, and a log of revisions as storage.

A request passes three files: http/handler.py decodes it into a Request, verbs.py executes it, storage/log.py stores
the result under the next resourceVersion (and storage/watches.py sends the watch events). All that differs between
resources is in one table, `model.resources.Resource`. `auth` authenticates the request as a User, and authorizes it
(RBAC) before any verb runs.

Rules for this package:
- It has no code for job kinds or for the operator: custom resources are added by CustomResourceDefinitions, cross-field
  validation is passed in as functions.
- Responses have kube-apiserver's status codes, reasons and messages. A difference is a bug.
- One server has two listeners: plain HTTP for the components of this process, TLS (auth/certificates.py) for kubectl
  and pods.
- The code between HTTP and the log has no await, no web framework and no clock; the time is read once per request.
"""

from trainyard.server.auth.certificates import CertificateAuthority
from trainyard.server.crd.trusted_schemas import trust_crd
from trainyard.server.server import Server
from trainyard.server.storage.database import DiskError
from trainyard.server.storage.disk import DiskLog
from trainyard.server.storage.log import NotWritten, RevisionLog

__all__ = ["CertificateAuthority", "DiskError", "DiskLog", "NotWritten", "RevisionLog", "Server", "trust_crd"]

"""The embedded Kubernetes API server: HTTP, the verbs, and a log of revisions as storage.

A request passes three files: http.py decodes it into a Request, verbs.py executes it, log.py stores the result under
the next resourceVersion (and watching.py sends the watch events). All that differs between resources is in one table,
`resources.Resource`. guard.py and tokens.py authenticate the request as a User; access.py authorizes it (RBAC) before
any verb runs.

Rules for this package:
- It has no code for job kinds or for the operator: custom resources are added by CustomResourceDefinitions, cross-field
  validation is passed in as functions.
- Responses have kube-apiserver's status codes, reasons and messages. A difference is a bug.
- One server has two listeners: plain HTTP for the components of this process, TLS (certificates.py) for kubectl and
  pods.
- The code between HTTP and the log has no await, no web framework and no clock; the time is read once per request.
"""

from trainyard.server.certificates import CertificateAuthority
from trainyard.server.disk import DiskError, DiskLog
from trainyard.server.examining import trust_crd
from trainyard.server.log import Log, NotWritten
from trainyard.server.server import Server

__all__ = ["CertificateAuthority", "DiskError", "DiskLog", "Log", "NotWritten", "Server", "trust_crd"]

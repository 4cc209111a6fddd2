"""The embedded Kubernetes API server: a numbered log, behind the verbs, behind HTTP.

The path of a request is three files: http.py turns bytes into a Request, verbs.py decides what it means, log.py
appends (and watching.py tells who listens). All that differs between resources is in one table, `resources.Resource`.
Who asks is a User from the moment a token is read (tokens.py), and access.py judges him before any verb acts.

Rules for this room:
- It knows neither a kind of job nor the operator: custom resources come as definitions, cross-field rules as functions.
- Answers are the real server's: codes, reasons, messages. A difference is a bug.
- Two listeners, one server: plain for the parts of this process, TLS (certificates.py) for kubectl and pods.
- Everything between HTTP and the log is free of await, of frameworks and of the clock; time is asked once per request.
"""

from trainyard.server.certificates import Authority
from trainyard.server.disk import DiskError, DiskLog
from trainyard.server.examining import vouch
from trainyard.server.log import Log, NotWritten
from trainyard.server.server import Server

__all__ = ["Authority", "DiskError", "DiskLog", "Log", "NotWritten", "Server", "vouch"]

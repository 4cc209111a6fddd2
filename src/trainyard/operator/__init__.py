"""The operator: watches jobs and their children, and sends the writes of the plan that `core.plan` makes for each job.

Rules for this package:
- No policy here: `core` decides what to write. This package has the order of the writes and their error handling.
- One event loop, no threads, no polling. The process may be killed after any request: the next operator continues.
"""

from trainyard.operator.operator import Operator

__all__ = ["Operator"]

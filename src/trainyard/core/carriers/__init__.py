"""The carriers: the types of object that run slots. Only this package depends on the type of the object.

jobs.py          a batch/v1 Job for each slot: JOB_CARRIER, where one Job is one attempt, and RETRYING_JOB_CARRIER,
                 where the Job's controller retries
pods.py          a Pod for each slot
stateful_sets.py a StatefulSet for a whole role
terminations.py  the state of one pod and how it ended; used by all three
"""

from trainyard.core.carriers.jobs import JOB_CARRIER, RETRYING_JOB_CARRIER
from trainyard.core.carriers.pods import POD_CARRIER
from trainyard.core.carriers.stateful_sets import STATEFUL_SET_CARRIER

__all__ = ["JOB_CARRIER", "POD_CARRIER", "RETRYING_JOB_CARRIER", "STATEFUL_SET_CARRIER"]

"""What fills a slot. Each carrier is one value of six functions; this folder alone knows what they are made of.

jobs.py   a batch/v1 Job for each slot: one object is one attempt; or one that tries again by itself
pods.py   a Pod for each slot
sets.py   a StatefulSet for a whole role
ends.py   how one pod ended, and what it does: read by all three
"""

from trainyard.core.carriers.jobs import JOB_CARRIER, RETRYING_JOB_CARRIER
from trainyard.core.carriers.pods import POD_CARRIER
from trainyard.core.carriers.sets import SET_CARRIER

__all__ = ["JOB_CARRIER", "POD_CARRIER", "RETRYING_JOB_CARRIER", "SET_CARRIER"]

"""For your own tests: a local cluster that runs jobs, builders for jobs, and a pytest fixture.

See docs/testing.md. The fixture is in `trainyard.testing.plugin`; nothing else here imports pytest.
"""

from trainyard.testing.builders import elastic_job, tf_job
from trainyard.testing.cluster import ClusterHandle, JobFailed, local_cluster

__all__ = ["ClusterHandle", "JobFailed", "elastic_job", "local_cluster", "tf_job"]

"""The policies of a job, one file each, named as in the API. They take and return times; none of them waits.

managed_by.py        spec.managedBy: which controller the job belongs to
suspend.py           spec.suspend: the start, the suspension and the resumption of a job
success_policy.py    when a job has succeeded
success_doubt.py     what puts the success of a job in doubt: a worker was lost, or none was used
failure_policy.py    which exit of a container fails the job
backoff_limit.py     spec.backoffLimit: how many failed attempts a job may have
deadline.py          spec.activeDeadlineSeconds
restart.py           which replicas restart after a failure, and when
clean_pod_policy.py  spec.cleanPodPolicy: which children of a finished job are deleted
ttl.py               spec.ttlSecondsAfterFinished
node_lost.py         --node-lost-timeout: pods of nodes that do not answer
"""

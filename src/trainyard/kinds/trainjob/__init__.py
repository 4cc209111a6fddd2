"""TrainJob of Kubeflow Trainer (trainer.kubeflow.org/v1alpha1): docs/decisions/0024-trainjob.md.

spec, runtime_spec, definitions: the fields, and the CustomResourceDefinitions with their rules
admission:    what else is refused;  webhooks: the answers of Trainer's webhooks
render:       a TrainJob and its runtime as the document of a JobSet, with the objects beside it
pod_sets:     the replicated jobs while they are rendered; lists that are changed by name
ml_policies:  torch, jax, xgboost and none;  mpi, torchtune: the others
pod_groups:   gangs of coscheduling and Volcano
failure_policy: what follows the failure of a replicated job
expand:       a JobSet as Service, claims and pods
kind:         the `Kind`;  roles: reads a job;  children: its pods and the objects beside them;  status: its status
shipped_runtimes: what an installation of Trainer has
"""

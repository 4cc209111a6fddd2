"""The kinds of `kubeflow.org` as TrainJob of Kubeflow Trainer 2.3 (`trainer.kubeflow.org/v1alpha1`).

job_policies:    runPolicy, of which a part is in the TrainJob and a part in its runtime
pod_references:  host names and labels of the job's own Pods in its templates
replicated_jobs: a replica set as a replicated job of JobSet
single_role:     jobs whose replicas all run one template: a runtime that Trainer ships, or one of their own
several_roles:   jobs with several templates, always with a runtime of their own
One module for each kind: the roles, and the variables that the Training Operator sets and Trainer does not.
"""

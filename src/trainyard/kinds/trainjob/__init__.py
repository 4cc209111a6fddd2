"""TrainJob of Kubeflow Trainer (trainer.kubeflow.org/v1alpha1), not served yet: docs/decisions/0024-trainjob.md.

spec, runtime_spec, definitions: the fields, and the CustomResourceDefinitions with their rules
"""

"""The Python SDK `kubeflow-training` of the Training Operator, unchanged, beside Trainyard.

client_program.py runs in an environment of its own, `.venv/kubeflow-training`, which has the SDK and nothing of ours
(`make .venv/kubeflow-training/ready`, docs/decisions/0017-kubeflow-training-sdk.md).
"""

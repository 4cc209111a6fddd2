"""The Python SDKs of Kubeflow, unchanged, beside Trainyard: `kubeflow-training` of the Training Operator, `kubeflow` of
Kubeflow Trainer.

client_program.py and trainer_program.py run in environments of their own, `.venv/kubeflow-training` and
`.venv/kubeflow`, each of which has its SDK and nothing of ours (docs/decisions/0017-kubeflow-sdks.md).
"""

"""ChainerJob, `kubeflow.org/v1alpha1`."""

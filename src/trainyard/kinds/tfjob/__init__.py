"""TfJob, `tensorflow.org/v1alpha1`."""

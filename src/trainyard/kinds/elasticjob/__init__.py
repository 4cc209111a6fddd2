"""ElasticJob, `elastic.pytorch.org/v1alpha1`."""

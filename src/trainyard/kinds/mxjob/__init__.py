"""MxJob, `mlkube.io/v1beta1` and `mxnet.mlkube.io/v1beta1`."""

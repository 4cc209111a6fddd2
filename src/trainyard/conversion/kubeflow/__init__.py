"""The kinds of 2017 to 2020 as kinds of `kubeflow.org/v1`. One module for each kind, named after the source."""

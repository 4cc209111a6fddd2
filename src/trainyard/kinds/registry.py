"""The kinds of jobs by their names, without the modules that define them."""

from __future__ import annotations

import msgspec

from trainyard.objects import GVK


class KindNames(msgspec.Struct, frozen=True):
    """A kind that need not be imported: its module in this package, and the names by which its jobs are found and
    listed, as in its `Api`.

    The module is named as the kind in lower case, or stands in a package of that name; the value in it is named as the
    kind in upper case. `groups`: further API groups that serve the kind."""

    module: str
    gvk: GVK
    short_names: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    @property
    def singular(self) -> str:
        """The name for one object, as on the command line: tfjob."""
        return self.gvk.kind.lower()


def _kubeflow(kind: str) -> KindNames:
    name = kind.lower()
    return KindNames(f"kubeflow_v1.{name}", GVK("kubeflow.org", "v1", kind, f"{name}s"))


REGISTRY = {
    "TFJOB": KindNames("tfjob.kind", GVK("tensorflow.org", "v1alpha1", "TfJob", "tfjobs")),
    "MXJOB": KindNames("mxjob.kind", GVK("mlkube.io", "v1beta1", "MxJob", "mxjobs"), groups=("mxnet.mlkube.io",)),
    "CHAINERJOB": KindNames(
        "chainerjob.kind",
        GVK("kubeflow.org", "v1alpha1", "ChainerJob", "chainerjobs"),
        ("chj", "chjs", "chjob", "chjobs"),
    ),
    "ELASTICJOB": KindNames("elasticjob.kind", GVK("elastic.pytorch.org", "v1alpha1", "ElasticJob", "elasticjobs")),
    "KUBEFLOW_TFJOB": _kubeflow("TFJob"),
    "PYTORCHJOB": _kubeflow("PyTorchJob"),
    "XGBOOSTJOB": _kubeflow("XGBoostJob"),
    "PADDLEJOB": _kubeflow("PaddleJob"),
    "JAXJOB": _kubeflow("JAXJob"),
    "MPIJOB": _kubeflow("MPIJob"),
    "TRAINJOB": KindNames("trainjob.kind", GVK("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs")),
}
"""The kinds of jobs, by the name of the `Kind` value in the package `kinds`."""

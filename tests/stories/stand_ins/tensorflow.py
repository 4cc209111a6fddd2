"""Stands in for TensorFlow where only the default parameter server's command line matters."""


class GPUOptions:
    def __init__(self, **arguments: object) -> None: ...


class ConfigProto:
    def __init__(self, **arguments: object) -> None: ...


class _Server:
    target = "nobody"

    def __init__(self, spec: object, **arguments: object) -> None: ...


class train:
    ClusterSpec = dict
    Server = _Server

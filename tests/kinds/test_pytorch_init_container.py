"""The init container of a PyTorchJob's workers: the built-in one, and as the flags of the training operator say."""

from __future__ import annotations

from tests.model.simulated_job import simulate
from tests.support.samples import kubeflow_job
from trainyard.core import Config, MasterWait
from trainyard.kinds import PYTORCHJOB
from trainyard.kinds.kubeflow_v1.master_wait import parse_template
from trainyard.objects import Json
from trainyard.objects.structs import replace

# That of the training operator 1.9 (pkg/config/config.go)
TEMPLATE = """
- name: init-pytorch
  image: {{.InitContainerImage}}
  imagePullPolicy: IfNotPresent
  resources:
    limits:
      cpu: 100m
      memory: 20Mi
  command:
  - sh
  - -c
  - err=1;for i in $(seq {{.MaxTries}}); do if nslookup {{.MasterAddr}}; then err=0 && break; fi;done; exit $err
"""


def init_containers(settings: MasterWait, replica: str = "worker-0") -> list[Json]:
    job = kubeflow_job("PyTorchJob")
    for replica_spec in job["spec"]["pytorchReplicaSpecs"].values():
        replica_spec["template"]["spec"]["containers"][0] |= {
            "imagePullPolicy": "Always",
            "securityContext": {"runAsNonRoot": True},
        }
    simulated = simulate(PYTORCHJOB, job, Config(master_wait=settings))
    pod = simulated.get("Pod", f"example-{replica}")
    return list(pod["spec"].get("initContainers") or [])


def test_a_worker_waits_in_its_own_image_and_the_master_does_not_wait() -> None:
    (container,) = init_containers(MasterWait())
    assert (container["image"], container["imagePullPolicy"]) == ("example/train:1", "Always")
    assert "[ $i -lt 100 ]" in container["command"][2] and container["securityContext"] == {"runAsNonRoot": True}
    assert init_containers(MasterWait(), "master-0") == []


def test_the_image_and_the_tries_are_those_of_the_flags() -> None:
    (container,) = init_containers(MasterWait("registry.example/alpine:3", 7))
    assert container["image"] == "registry.example/alpine:3" and "imagePullPolicy" not in container
    assert "[ $i -lt 7 ]" in container["command"][2] and container["securityContext"] == {"runAsNonRoot": True}


def test_a_template_takes_the_place_of_the_container() -> None:
    settings = MasterWait(max_tries=7)
    settings = replace(settings, containers=parse_template(TEMPLATE, "template.yaml", settings))
    (container,) = init_containers(settings)
    assert container["command"][2] == (
        "err=1;for i in $(seq 7); do if nslookup example-master-0; then err=0 && break; fi;done; exit $err"
    )
    assert (container["image"], container["imagePullPolicy"]) == ("example/train:1", "IfNotPresent")
    (container,) = init_containers(replace(settings, image="alpine:3.10"))
    assert container["image"] == "alpine:3.10"
    assert init_containers(settings, "master-0") == []

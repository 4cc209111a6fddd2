"""`kubectl top` at the embedded cluster, which measures its pods itself: a real one needs metrics-server for it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time

import pytest

from tests.kubectl.kubectl_clusters import KubectlCluster, Person
from tests.support.waiting import SLOW_PAUSE, until
from trainyard.objects.usage import peaks_of

pytestmark = pytest.mark.cluster

FIRST_SAMPLE = 4.0  # seconds
BUSY = "sh -c 'while :; do :; done' & exec sleep 600"


STEPS = """
apiVersion: tensorflow.org/v1alpha1
kind: TfJob
metadata: {name: steps}
spec:
  replicaSpecs:
  - replicas: 1
    tfReplicaType: MASTER
    template:
      spec:
        restartPolicy: Never
        containers:
        - name: tensorflow
          image: busybox
          command: [sh, -c, 'n=0; while :; do n=$((n + 1)); echo "step=$n"; sleep 0.1; done']
"""


def run(person: Person, name: str, script: str, labels: str = "app=top") -> None:
    arguments = ("--image=busybox", "--restart=Never", f"--labels={labels}", "--command", "--", "sh", "-c", script)
    person("run", name, *arguments)
    person("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")


def test_pods_have_their_usage_four_seconds_after_their_start(here: Person) -> None:
    run(here, "busy", BUSY)
    started = time.monotonic()
    here.until("top", "pods", says=r"(?m)^busy +\d+m +\d+Mi")
    assert time.monotonic() - started <= FIRST_SAMPLE
    cpu = re.search(r"busy +(\d+)m", here("top", "pods", "-l", "app=top", "--no-headers"))
    assert cpu and int(cpu[1]) > 50  # how much of a core it gets depends on what else runs
    assert re.search(r"(?m)^POD +NAME +CPU\(cores\) +MEMORY\(bytes\)", here("top", "pods", "--containers"))
    assert re.search(r"(?m)^busy +busy +\d+m +\d+Mi", here("top", "pods", "--containers"))
    assert re.search(rf"(?m)^{here.namespace} +busy +\d+m", here("top", "pods", "-A"))
    assert here("top", "pod", "busy", "--no-headers").split()[0] == "busy"
    assert "CPU" in here("get", "podmetrics", "busy") and "busy" in here("get", "podmetrics")


def test_a_pod_without_a_sample_and_one_that_is_not_there(here: Person) -> None:
    assert 'pods "none" not found' in here.refused("top", "pod", "none")
    here("run", "ended", "--image=busybox", "--restart=Never", "--command", "--", "true")
    here("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/ended", "--timeout=60s")
    raw = here.refused("get", "--raw", f"/apis/metrics.k8s.io/v1beta1/namespaces/{here.namespace}/pods/ended")
    assert f'podmetrics.metrics.k8s.io "{here.namespace}/ended" not found' in raw


def test_the_node_has_the_usage_of_the_machine(here: Person) -> None:
    here.until("top", "nodes", says=r"(?m)^local +\d+m +\d+% +\d+Mi +\d+%")


def test_the_group_is_in_discovery(here: Person) -> None:
    assert "metrics.k8s.io/v1beta1" in here("api-versions").split()
    resources = here("api-resources", "--api-group=metrics.k8s.io", "-o", "wide")
    assert re.search(r"(?m)^pods +metrics.k8s.io/v1beta1 +true +PodMetrics +get,list", resources)
    run(here, "plain", "exec sleep 600")
    assert json.loads(here("get", "pod", "plain", "-o", "json"))["kind"] == "Pod"


def test_trainyard_top_at_a_real_cluster_reads_steps_from_logs_and_says_that_metrics_server_is_missing(
    real: KubectlCluster,
) -> None:
    with real.person() as person:
        person("apply", "-f", "-", stdin=STEPS)
        argv = [sys.executable, "-m", "trainyard", "top", "tfjob/steps", "-n", person.namespace]
        env = {**os.environ, "KUBECONFIG": str(real.config)}
        top = until(
            lambda: subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False),
            "the steps of the master",
            accept=lambda done: re.search(rf"master-0 +Running +\d+ +- +- +- +- +{real.node}\n", done.stdout),
            pause=SLOW_PAUSE,
        )
        assert top.returncode == 0
        assert "does not serve metrics.k8s.io; install metrics-server" in " ".join(top.stderr.split())


def test_the_peak_of_a_run_is_in_the_annotation_of_its_pod(person: Person) -> None:
    """A real API server takes it with the status, too."""
    allocates = (sys.executable, "-c", "data = b'x' * (100 << 20)")
    person("run", "large", "--image=busybox", "--restart=Never", "--command", "--", *allocates)
    person("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/large", "--timeout=60s")
    pod = json.loads(person("get", "pod", "large", "-o", "json"))
    assert 100 << 20 <= peaks_of(pod["metadata"]["annotations"])["large/1"] < 150 << 20

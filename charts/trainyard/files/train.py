"""`helm test`: trains a small TfJob, says how it ended, and takes it away. Only Python's own library."""

import http.client
import json
import os
import ssl
import sys
import time
from pathlib import Path

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
NAME, NAMESPACE = os.environ["JOB"], os.environ["MY_POD_NAMESPACE"]
JOBS = f"/apis/tensorflow.org/v1alpha1/namespaces/{NAMESPACE}/tfjobs"

PROGRAM = """
import tensorflow as tf
x = tf.random.normal((256, 4), seed=1)
y = x @ tf.constant([[1.0], [-2.0], [3.0], [0.5]])
w = tf.Variable(tf.zeros((4, 1)))
for step in range(201):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ w - y) ** 2)
    w.assign_sub(0.1 * tape.gradient(loss, w))
    if step % 50 == 0:
        print("step", step, "loss", float(loss), flush=True)
assert float(loss) < 1e-3, float(loss)
"""


def tls_context(ca):
    context = ssl.create_default_context(cadata=ca.decode())
    # Python 3.13 refuses some CAs that all other clients accept: use their checks.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def ask(method, path, body=None):
    """One request as this pod's ServiceAccount: the object of the answer, None when there is none."""
    context = tls_context((ACCOUNT / "ca.crt").read_bytes())
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])
    server = http.client.HTTPSConnection(host, port, timeout=30, context=context)
    token = (ACCOUNT / "token").read_text()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    server.request(method, path, None if body is None else json.dumps(body), headers)
    answer = server.getresponse()
    said = answer.read().decode()
    server.close()
    if answer.status >= 300 and answer.status != 404:
        sys.exit(f"not ok: {method} {path}: {said}")
    return None if answer.status == 404 else json.loads(said)


def job():
    container = {"name": "tensorflow", "image": os.environ["IMAGE"], "command": ["python3", "-c", PROGRAM]}
    # As the Pod Security Standard "restricted" wants it, which the namespace may enforce.
    container["securityContext"] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    template = {"spec": {"containers": [container], "restartPolicy": "OnFailure"}}
    spec = {"replicaSpecs": [{"replicas": 1, "tfReplicaType": "MASTER", "template": template}]}
    return {"apiVersion": "tensorflow.org/v1alpha1", "kind": "TfJob", "metadata": {"name": NAME}, "spec": spec}


def wait(true):
    """The job, or None when there is none, as soon as that holds of it."""
    end = time.time() + float(os.environ["SECONDS"])
    while not true(found := ask("GET", f"{JOBS}/{NAME}")):
        if time.time() > end:
            sys.exit(f"not ok: TfJob {NAME} does not come so far: {json.dumps((found or {}).get('status'))}")
        time.sleep(1)
    return found


def main():
    ask("DELETE", f"{JOBS}/{NAME}")
    wait(lambda found: found is None)
    if ask("POST", JOBS, job()) is None:
        sys.exit("not ok: there is no TfJob here; kubectl apply -f charts/trainyard/crds/")
    status = wait(lambda found: ((found or {}).get("status") or {}).get("state") in ("Succeeded", "Failed"))["status"]
    if status["state"] != "Succeeded":
        sys.exit(f"not ok: TfJob {NAME}: {status['state']} {status.get('reason', '')}")
    ask("DELETE", f"{JOBS}/{NAME}")
    print(f"ok: TfJob {NAME} Succeeded")


if __name__ == "__main__":
    main()

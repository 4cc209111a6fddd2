"""`helm test`: trains a small TfJob, says how it ended, and takes it away. Only Python's own library."""

import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount/"
HOST = os.environ["KUBERNETES_SERVICE_HOST"]
SERVER = "https://[%s]" % HOST if ":" in HOST else "https://%s" % HOST
SERVER += ":" + os.environ["KUBERNETES_SERVICE_PORT"]
NAME, NAMESPACE = os.environ["JOB"], os.environ["MY_POD_NAMESPACE"]
JOBS = "/apis/tensorflow.org/v1alpha1/namespaces/%s/tfjobs" % NAMESPACE

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


def ask(method, path, body=None):
    """One request as this pod's ServiceAccount: the object of the answer, None when there is none."""
    headers = {"Authorization": "Bearer " + open(ACCOUNT + "token").read(), "Content-Type": "application/json"}
    text = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(SERVER + path, text, headers, method=method)
    trusted = ssl.create_default_context(cafile=ACCOUNT + "ca.crt")
    try:
        return json.load(urllib.request.urlopen(request, timeout=30, context=trusted))
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise SystemExit("%s %s: %s" % (method, path, error.read().decode()))


def job():
    container = {"name": "tensorflow", "image": os.environ["IMAGE"], "command": ["python3", "-c", PROGRAM]}
    template = {"spec": {"containers": [container], "restartPolicy": "OnFailure"}}
    spec = {"replicaSpecs": [{"replicas": 1, "tfReplicaType": "MASTER", "template": template}]}
    return {"apiVersion": "tensorflow.org/v1alpha1", "kind": "TfJob", "metadata": {"name": NAME}, "spec": spec}


def wait(true):
    end = time.time() + float(os.environ["SECONDS"])
    while time.time() < end:
        found = ask("GET", JOBS + "/" + NAME)
        if true(found):
            return found
        time.sleep(1)
    raise SystemExit(
        "not ok: TfJob %s has not come so far: %s" % (NAME, json.dumps(found.get("status") if found else None))
    )


def main():
    ask("DELETE", JOBS + "/" + NAME)
    wait(lambda found: found is None)
    ask("POST", JOBS, job())
    ended = wait(lambda found: found and (found.get("status") or {}).get("state") in ("Succeeded", "Failed"))
    status = ended["status"]
    if status["state"] != "Succeeded":
        sys.exit("not ok: TfJob %s: %s %s" % (NAME, status["state"], status.get("reason", "")))
    ask("DELETE", JOBS + "/" + NAME)
    print("ok: TfJob %s Succeeded" % NAME)


main()

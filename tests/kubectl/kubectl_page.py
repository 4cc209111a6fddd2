"""docs/kubectl.md, generated from the stories that run on both clusters."""

from __future__ import annotations

from pathlib import Path

from tests.kubectl.kubectl_stories import STORIES, Line
from trainyard.server.builtin.unsupported_resources import ALTERNATIVES

PAGE = Path(__file__).parents[2] / "docs" / "kubectl.md"

TEXT = """\
# kubectl

Written by `pytest tests/kubectl --update` from the stories in `tests/kubectl/kubectl_stories.py`. A test runs each
command below, with the pinned kubectl, against a cluster of `trainyard up` and a real one (Kubernetes 1.37, with
`trainyard node`), and compares the output after mapping times, uids, addresses and random names. A command without a
remark has the same output with both.

<!-- runs as a test: kubectl -->
```console
$ eval "$(trainyard up)"          # or: export KUBECONFIG=...
$ kubectl apply -f examples/tf_job_dist_train.yaml
tfjob.tensorflow.org/dist-train created
$ kubectl wait --for=condition=Succeeded --timeout=300s tfjob/dist-train
tfjob.tensorflow.org/dist-train condition met
$ kubectl logs job/$(kubectl get jobs -o name | grep master | cut -d/ -f2)
...
master 0: held-out accuracy 0.988, loss 0.0501, after 1504 steps
$ trainyard down --delete
...
```

## Interactive and long-running commands

Also tested with both clusters, in `tests/kubectl/test_kubectl_while_it_runs.py`: `get -w`, `logs -f` and `-p`,
`exec -it` with a terminal that is resized, `exec -i` with piped input, `cp` in both directions (it runs `tar` by
`exec`: the program's image needs `tar`), `wait`, `edit`, `rollout status`, `events --watch`, tokens of
ServiceAccounts, `config`.

## Programs in pods: `kubectl proxy`

<!-- runs in tests/kubectl/test_kubectl_proxy.py -->
```console
$ kubectl proxy
Starting to serve on 127.0.0.1:8001
```

The URLs of programs begin with `http://127.0.0.1:8001/api/v1/namespaces/NAMESPACE/`:

| path | target |
|---|---|
| `services/NAME:PORT/proxy/` | a ready pod of the Service; PORT is its number or its name |
| `services/tensorboard-ID:80/proxy/` | the TensorBoard of a job, ID is its `spec.RuntimeId` |
| `pods/NAME:PORT/proxy/` | a port of the pod, by default the first one it declares, or 80 |

All methods, bodies of up to 3 MB, redirects and WebSockets are proxied; with `https:NAME:PORT` by TLS. The program
does not receive the user's credentials. The required permissions are `pods/proxy` and `services/proxy`, which the
roles `edit` and `admin` have. Unlike a real API server, the embedded one does not rewrite links in HTML pages:
programs with absolute links need an option for their prefix (`--path_prefix` of TensorBoard, whose links are relative
anyway). A real cluster cannot reach pods of a `trainyard node` in this way: their addresses exist on its machine
only.

## Differences of all commands

- `logs --timestamps` prefixes each line with the time of the request, and `--since` omits a container run only if it
  wrote nothing since then: log files have no timestamps.
- `top pods` and `top nodes` need no metrics-server: the node measures its pods itself ([top.md](top.md)).
- `attach` shows output from now on. Containers have no standard input, so `attach -i` and `run -it` are refused;
  `kubectl exec -it POD -- COMMAND` starts a program with one.
- Only objects of a server-side apply have `managedFields`.

## Not served

| | response | alternative |
|---|---|---|
| `port-forward` | port-forward is not served here: run `kubectl proxy` ... | `kubectl proxy`, as above |
| `attach -i`, `run -it` | containers have no standard input to attach to here ... | `kubectl exec -it POD -- COMMAND` |
| `debug` | containers cannot be added to a running pod here ... | `kubectl exec -it POD -- COMMAND` |
| `autoscale` | a message of kubectl | no autoscaler runs here: `kubectl scale` |
| `rollout history`, `undo` of a StatefulSet | controllerrevisions.apps are not served here ... | `kubectl apply` |

`kubectl drain` evicts through the API, without disruption budgets. A pod without a controller needs `--force`, as on
every cluster. After `kubectl uncordon` pods are scheduled again.

For the following types `get` prints `the server doesn't have a resource type`, `apply` prints `no matches for kind`,
and commands such as `create cronjob` print the alternative:

| | alternative |
|---|---|
{types}

"""


def page() -> str:
    """The whole text."""
    parts = [TEXT.replace("{types}", _types()) + "## Line by line\n"]
    for name, lines in STORIES.items():
        rows = [_row(line) for line in lines if not line.quiet]
        parts.append("\n".join([f"\n### {name}\n", "| kubectl | exit code | |", "|---|---|---|", *rows]) + "\n")
    return "".join(parts)


def _types() -> str:
    names = {(group, plural): f"{plural}.{group}" if group else plural for group, plural in ALTERNATIVES}
    return "\n".join(f"| `{names[which]}` | {alternative} |" for which, alternative in ALTERNATIVES.items())


def _row(line: Line) -> str:
    command = (
        line.command_line.replace("{m}/", "")
        .replace("{node}", "NODE")
        .replace("{ns}", "NAMESPACE")
        .replace("{home}/", "")
    )
    command = command.replace("|", "\\|")
    return f"| `{command}` | {line.code} | {f'differs: {line.differs}' if line.differs else ''} |"

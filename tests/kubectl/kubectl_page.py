"""docs/kubectl.md, made of the stories that are told at both clusters."""

from __future__ import annotations

from pathlib import Path

from tests.kubectl.kubectl_stories import STORIES, Line
from trainyard.server.builtin.unsupported_resources import ALTERNATIVES

PAGE = Path(__file__).parents[2] / "docs" / "kubectl.md"

TEXT = """\
# kubectl

Written by `pytest tests/kubectl --update` from the stories in `tests/kubectl/kubectl_stories.py`. Each line below is
typed at a cluster of `trainyard up` and at a real one (Kubernetes 1.37, with a node of ours), with the pinned kubectl,
and what both say is compared after times, uids, addresses and random names have been mapped. So a line without a remark
says the same on both.

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

## What goes on while it runs

Told at both clusters as well, in `tests/kubectl/test_kubectl_while_it_runs.py`: `get -w`, `logs -f` and `-p`,
`exec -it` with a terminal that is resized, `exec -i` with all that is piped into it, `cp` both ways (it is `exec` and
`tar`: the program's image needs `tar`), `wait`, `edit`, `rollout status`, `events --watch`, tokens of ServiceAccounts,
`config`.

## Programs in pods: `kubectl proxy`

<!-- runs in tests/kubectl/test_kubectl_proxy.py -->
```console
$ kubectl proxy
Starting to serve on 127.0.0.1:8001
```

Then a browser finds a program under `http://127.0.0.1:8001/api/v1/namespaces/NAMESPACE/` and

| path | leads to |
|---|---|
| `services/NAME:PORT/proxy/` | a ready pod of the Service; PORT is its number or its name |
| `services/tensorboard-ID:80/proxy/` | the TensorBoard of a job, ID is its `spec.RuntimeId` |
| `pods/NAME:PORT/proxy/` | a port of the pod, by default the first one it declares, or 80 |

All methods, bodies of up to 3 MB, redirects and WebSockets pass; `https:NAME:PORT` speaks TLS to the program. The
program never sees who asks. Who may: `pods/proxy` and `services/proxy`, which are in the roles `edit` and `admin`.
Unlike a real API server this one does not rewrite the links within HTML pages: programs that name their pages by
absolute paths need a setting for their prefix (`--path_prefix` of TensorBoard; its pages are relative anyway). On a
real cluster this reaches no pods of a `trainyard node`: their addresses are known on its machine only.

## What differs for every command

- `logs --timestamps` puts the time of reading before each line, and `--since` leaves out a run only when it wrote
  nothing since then: a log is a file of what was printed, and it has no times.
- `attach` shows what a container prints from now on. Containers here have no standard input, so `attach -i` and
  `run -it` are refused; `kubectl exec -it POD -- COMMAND` starts a program with one.
- Who wrote which field (`managedFields`) is known for objects that are applied by the server alone.

## Not served, and what to do instead

| | the answer | instead |
|---|---|---|
| `port-forward` | port-forward is not served here: run `kubectl proxy` ... | `kubectl proxy`, as above |
| `attach -i`, `run -it` | containers have no standard input to attach to here ... | `kubectl exec -it POD -- COMMAND` |
| `debug` | containers cannot be added to a running pod here ... | `kubectl exec -it POD -- COMMAND` |
| `top` | Metrics API not available (kubectl's own words) | `top`, `ps` on this machine: pods are its processes |
| `autoscale` | kubectl's own words | nobody here measures load: `kubectl scale` |
| `rollout history`, `undo` of a StatefulSet | controllerrevisions.apps are not served here ... | `kubectl apply` |

`kubectl drain` evicts through the API, and stops for nobody: there are no disruption budgets. A pod that no controller
makes again needs `--force`, as everywhere. After `kubectl uncordon` the node takes pods again.

These types are not there. `get` says `the server doesn't have a resource type`, `apply` says `no matches for kind`, and
what is made by words (`create cronjob`) says what to do instead:

| | instead |
|---|---|
{types}

"""


def page() -> str:
    """The whole text."""
    parts = [TEXT.replace("{types}", _types()) + "## Line by line\n"]
    for name, lines in STORIES.items():
        rows = [_row(line) for line in lines if not line.quiet]
        parts.append("\n".join([f"\n### {name}\n", "| kubectl | ends with | |", "|---|---|---|", *rows]) + "\n")
    return "".join(parts)


def _types() -> str:
    names = {(group, plural): f"{plural}.{group}" if group else plural for group, plural in ALTERNATIVES}
    return "\n".join(f"| `{names[which]}` | {words} |" for which, words in ALTERNATIVES.items())


def _row(line: Line) -> str:
    words = line.words.replace("{m}/", "").replace("{node}", "NODE").replace("{ns}", "NAMESPACE").replace("{home}/", "")
    words = words.replace("|", "\\|")
    return f"| `{words}` | {line.code} | {f'differs: {line.differs}' if line.differs else ''} |"

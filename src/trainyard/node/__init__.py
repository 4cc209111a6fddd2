"""The kubelet, network and supervisor of a node that runs pods as processes of this machine.

Structure: `kubelet` watches the pods of this Node. The lifecycle of a pod is a transition table (`kubelet.lifecycle`);
its inputs are computed by pure modules (`kubelet.spec`, `kubelet.status`); `kubelet.pod_worker` performs its actions
for one pod. Only two parts start processes or open ports: `sandbox`, the client of the program `supervisor`, and
`network`. `devices` finds the GPUs and gives them out. `images` turns an image into an environment of this machine.

Rules:
- The node knows pods, not the jobs that own them.
- No isolation is promised: a pod is a process of the user who started the node process.
- When the node process ends, in whatever way, all processes of its pods end (see `supervisor`).
- This file imports nothing: `trainyard run` starts the supervisor before it imports the rest of the node.
"""

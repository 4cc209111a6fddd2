"""The helper program that owns the pods' processes and networks. Started by exec, never imported by the runner.

Its one idea: **who owns the processes dies before they can outlive it.** The runner starts it with
`python -I -S .../hub FD MODE WHOSE`; from then on it is a zygote: small, single-threaded, stdlib only. It forks one
*init* per container, and every init starts one program.

Flow:       runner --fork+exec--> watcher --fork--> hub --fork--> init (one per container) --fork--> program
Guarantees: - When the runner, the watcher or the hub dies, however it dies, every program dies.
            - In namespace mode the hub is PID 1 of a pid namespace: the kernel ends all processes in it, and with the
              last one every mount, link and namespace goes.
            - In shared mode watcher, hub and inits are subreapers, so no descendant gets away, and each one ends what
              is below it when the one above it dies.
Assumption: nobody but the runner holds the other end of the control socket.

`calls` has the system calls Python 3.11 lacks, `netlink` links and addresses, `root` the root folder of a pod, `reaper`
the killing of trees, `memory` the limits of it, `container` the start of a program, `init` what an init does, `loop`
the protocol. The modules
import each other relatively: the program runs without the package around it.
"""

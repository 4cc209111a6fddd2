"""The program that owns the pods' processes and networks. Started by exec, not imported by the node process.

Principle: **no container process outlives the process that owns it.** The node process starts the program with `python
-I -S .../supervisor FD MODE FOLDER`; it is a zygote: small, single-threaded, standard library only. It forks one *init*
per container, and every init starts one program.

Flow:       node process --fork+exec--> watcher --fork--> supervisor --fork--> init (one for each container) --fork-->
            program
Guarantees: - When the node process, the watcher or the supervisor ends, in whatever way, every program is killed.
            - In namespace mode the supervisor is PID 1 of a pid namespace: at its end the kernel kills all processes in
              it, and removes every mount, link and namespace with the last one.
            - In shared mode watcher, supervisor and inits are subreapers, so that every descendant stays below them,
              and each of them kills its descendants when its parent ends. Assumption: only the node process has the
              other end of the control socket.

`syscalls` has the system calls that Python 3.11 lacks, `netlink` links and addresses, `root_filesystem` the root folder
of a container, `reaper` the killing of process trees, `memory` memory limits, `container` the start of a program,
`init` the init of a container, `loop` the protocol. The modules import each other relatively, because the program runs
without the package around it.
"""

"""The kubelet API: logs, exec, attach and sockets of pods over HTTP on loopback."""

"""The kubelet: watches the pods of one Node, runs each as processes through the supervisor, and serves their logs and
exec."""

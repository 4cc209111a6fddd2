"""Our jobs in the queues of a real Kueue, on a real control plane: `make test-kueue`. docs/kueue.md has the rows."""

"""Our gangs beside the schedulers of others, on a real control plane: `make test-gangs`."""

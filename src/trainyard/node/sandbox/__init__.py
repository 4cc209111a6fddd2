"""The sandbox of a container, and the client of the supervisor, which starts its processes."""

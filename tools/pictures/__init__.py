"""The pictures of the documents, made of real jobs on this machine: `make pictures`."""

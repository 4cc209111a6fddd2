"""The storage: a log of revisions, its file on disk, the current objects of each resource, and the watches."""

"""The volumes of a pod: their folders and files, where they are mounted, and what is lost with them."""

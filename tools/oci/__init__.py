"""The operator's container image, built without a container daemon."""

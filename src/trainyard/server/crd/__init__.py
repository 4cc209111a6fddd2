"""CustomResourceDefinitions: their validation and names, and the resources that they add."""

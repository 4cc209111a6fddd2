"""CustomResourceDefinitions: their validation and names, the resources that they add, and their CEL rules."""

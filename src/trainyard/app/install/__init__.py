"""What a cluster needs for the operator: its kinds, its RBAC, its gang scheduler."""

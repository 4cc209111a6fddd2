"""Authentication and authorization: certificates, tokens, users, RBAC, and service accounts of pods."""

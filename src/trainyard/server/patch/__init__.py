"""PATCH: JSON patch, merge patch, strategic merge patch, and server-side apply with its field sets."""

"""Pod templates, their schema, and what the pods of a job need beside them."""

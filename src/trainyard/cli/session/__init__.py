"""Jobs from their submission to their end, as `run`, `submit` and `logs` follow them."""

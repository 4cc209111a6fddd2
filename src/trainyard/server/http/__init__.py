"""HTTP: listeners, connections, parsing, and the responses of the API server. No verb is executed here."""

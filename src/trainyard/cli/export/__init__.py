"""A record of the history as one HTML page."""

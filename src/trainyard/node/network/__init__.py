"""The pod networks: *shared*, *namespace*, the names and addresses of pods and Services, and their forwarders."""

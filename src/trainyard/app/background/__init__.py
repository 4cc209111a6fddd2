"""Clusters in the background (`trainyard up`): their folders, locks, daemon and state."""

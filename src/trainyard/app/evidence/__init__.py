"""What `trainyard why` reads of a cluster and of this machine."""

"""What several commands have in common: options, arguments, exit codes, signals, the cluster they use."""

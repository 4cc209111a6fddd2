"""What containers use and report: CPU time, memory, progress and metrics."""

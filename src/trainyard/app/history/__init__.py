"""The history of jobs on this machine: written while they run, read by commands and the page."""

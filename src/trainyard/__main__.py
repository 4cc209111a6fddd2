"""`python -m trainyard` is `trainyard`."""

from trainyard.cli import main

main(prog_name="trainyard")

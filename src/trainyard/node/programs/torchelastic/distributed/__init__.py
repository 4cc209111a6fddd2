"""See launch.py."""

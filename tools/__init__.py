"""Generators and programs of this repository; none is in the wheel."""

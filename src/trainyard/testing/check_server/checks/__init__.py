"""The checks, a module for each area. Adding a module here is all it takes."""

"""The checks, one module per area. New modules are found automatically."""

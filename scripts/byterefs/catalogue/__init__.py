"""What tells others that a dataset exists: rows, STAC, landing page."""

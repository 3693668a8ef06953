"""What `verify` holds forms against: independent readers of the sources, samples, and what was published."""

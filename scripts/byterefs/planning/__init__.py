"""Where each source's slab sits in the global arrays, and whether the sources are one thing: roles, checks, eras, VRT."""

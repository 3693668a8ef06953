"""Published trees on a disk or in a bucket: versions, conditional swaps, mirrors, release checks."""

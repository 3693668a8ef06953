"""Bytes where they lie: one byte-range layer over files, HTTP and S3, for scanners, oracle and readers alike."""

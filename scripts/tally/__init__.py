"""The census of a folder: every data file scanned, emitted, read back and compared with an oracle of its own."""

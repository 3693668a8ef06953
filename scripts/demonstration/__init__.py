"""What `make demo` is made of: an archive that arrives day by day, a run, a table, a map.

Not part of the library: the demo uses byterefs as a stranger does, by its command and its files.
"""

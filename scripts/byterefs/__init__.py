"""Byte references: where every chunk of every array lies, held once, rendered as what readers want.

Three layers (mdim-refs/0.2): the *physical* one (per source and array, the byte range of each
chunk), the *plan* (where each source's slab sits in the global array) and the *view* (the global
chunk index, computed from the two). Forms are projections of the view.

Imports go one way: ``errors model files`` <- ``urls access grid codecs config`` <- ``discover scanners
store planning`` <- ``view`` <- ``emitters reader`` <- ``proving publishing catalogue``; a stage's own module
(``scan``, ``plan``, ``verify``, …) stands on the folders of its level.
"""

FORMAT = "mdim-refs/0.2"

_READER = ("open", "read")


def __getattr__(name: str) -> object:
    """``open`` and ``read`` of :mod:`byterefs.reader`, which needs zarr; nothing else does."""
    if name in _READER:
        from importlib import import_module

        return getattr(import_module("byterefs.reader"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

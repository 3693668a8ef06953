"""What byterefs refuses, as a small family: each message names the place, the rule and the way out."""


class ByteRefsError(Exception):
    """A refusal. Its text is one sentence for the person who reads the log."""

    def __init__(self, text: str, *, array: str | None = None) -> None:
        super().__init__(text)
        self.array = array
        """the array without which there would be nothing to refuse, where it is one"""


class ConfigError(ByteRefsError):
    """A config that cannot mean what it says: unknown key, wrong type, unknown name."""


class DiscoverError(ByteRefsError):
    """A listing that cannot be an archive: empty, unreadable, shrunken, ambiguous."""


class RangeError(ByteRefsError):
    """Bytes that could not be read whole: no such source, no ranges, cut, changed, or a page in their place."""


class AbsentError(RangeError):
    """There is no such source."""


class DecoderError(ByteRefsError):
    """A chunk of a codec that nothing here decodes, although its bytes are referenced rightly."""


class ScanError(ByteRefsError):
    """A source that cannot be read, or that cannot be referenced without being wrong."""


class StoreError(ByteRefsError):
    """A store that is not what it should be: another format, another dataset, changed underfoot."""


class PlanError(ByteRefsError):
    """Sources that cannot be one array: overlap, drift of codec, packing, grid or calendar."""


class RemapError(ByteRefsError):
    """A remap target that does not cover every source."""


class EmitError(ByteRefsError):
    """An array that a form cannot express; the message says which forms can."""


class VerifyError(ByteRefsError):
    """A form whose rows or values differ from the table or from the source."""


class SyncError(ByteRefsError):
    """A publication that would be half, stale or edited."""


class RegisterError(ByteRefsError):
    """A publication that cannot be announced."""

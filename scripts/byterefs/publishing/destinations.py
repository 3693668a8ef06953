"""The shelf that a config's entry names: a folder, or a prefix of a bucket."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from byterefs.errors import SyncError
from byterefs.publishing.shelf import Directory, Shelf


def shelf(options: Mapping[str, Any]) -> Shelf:
    """The destination that an entry of the config's ``sync`` names; SyncError for one that is neither kind."""
    where = str(options["to"])
    if where.startswith("s3://"):
        # boto3 takes a fifth of a second to import, and a publication to a directory needs none
        from byterefs.publishing.objects import bucket

        return bucket(options)
    if "://" in where and not where.startswith("file://"):
        raise SyncError(
            f"{where}: sync.to is a directory or s3://bucket/prefix; a web server is published to by the "
            f"directory or the bucket that it serves"
        )
    return Directory(where.removeprefix("file://"))

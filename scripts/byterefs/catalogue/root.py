"""All datasets together, as a page for people: one HTML file without script, beside the root STAC catalogue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from byterefs.catalogue.page import asset, environment, policy


class Dataset(NamedTuple):
    """A published dataset, as its own receipt and its rows of sds tell it."""

    name: str
    title: str
    span: str
    """first and last step in words; "" without a time axis"""
    forms: tuple[str, ...]
    version: str
    page: str
    """address of its landing page; a link only where it is one of the web"""
    collection: str


def render(datasets: Sequence[Dataset]) -> str:
    """The page; datasets in the order in which they are given, every text escaped."""
    style = asset("page.css")
    template = environment().get_template("catalogue.html")
    return template.render(datasets=datasets, style=style, style_digest=policy(style))

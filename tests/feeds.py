"""Feeds for tests: of no files, and what has packages of this machine's distribution here."""

from collections.abc import Sequence
from pathlib import Path

from bakehouse import gathering
from bakehouse.aptlock import Deb
from bakehouse.fetching import Fetcher
from bakehouse.mirrors import Hashes, Mirrors
from bakehouse.project import HOME, find
from bakehouse.store import Store
from bakehouse.supplies import Feed
from bakehouse.wanted import wanted


def nothing(folder: Path) -> Feed:
    """A feed of an empty plan, with an empty cache in a folder."""
    local = Mirrors((), Hashes(folder / "hashes.json"))
    return Feed(wanted([]), Fetcher(Store(folder / "cache", print), local))


def get(packages: Sequence[Deb], folder: Path) -> None:
    """Put locked packages into a folder, as builds on this machine get them."""
    with gathering.fetcher(find(HOME), print) as fetcher:
        gathering.put(Feed(wanted([]), fetcher), packages, folder)

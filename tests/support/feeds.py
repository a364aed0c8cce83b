"""Feeds for tests: of no files, and what has packages of this machine's distribution here."""

from collections.abc import Sequence
from pathlib import Path

from bakehouse.build import prefetch
from bakehouse.build.build_inputs import Feed
from bakehouse.catalog.apt_lock import Deb
from bakehouse.catalog.project import HOME, find
from bakehouse.fetch.cache import Store
from bakehouse.fetch.downloader import Fetcher
from bakehouse.fetch.local_mirror import Hashes, Mirrors
from bakehouse.fetch.required_files import wanted


def nothing(folder: Path) -> Feed:
    """A feed of an empty plan, with an empty cache in a folder."""
    local = Mirrors((), Hashes(folder / "hashes.json"))
    return Feed(wanted([]), Fetcher(Store(folder / "cache", print), local))


def get(packages: Sequence[Deb], folder: Path) -> None:
    """Put locked packages into a folder, as builds on this machine get them."""
    with prefetch.fetcher(find(HOME), print) as fetcher:
        prefetch.put(Feed(wanted([]), fetcher), packages, folder)

"""Feeds for tests: of no files, and what has packages of this machine's distribution here."""

from collections.abc import Sequence
from pathlib import Path

from bakehouse.builder import prefetch
from bakehouse.builder.build_inputs import Downloads
from bakehouse.catalog.apt_lock import Deb
from bakehouse.catalog.project import HOME, find
from bakehouse.fetch.cache import FileCache
from bakehouse.fetch.downloader import Fetcher
from bakehouse.fetch.local_mirror import HashCache, LocalMirrors
from bakehouse.fetch.project_fetcher import open_fetcher
from bakehouse.fetch.required_files import required_files


def nothing(directory: Path) -> Downloads:
    """A feed of an empty plan, with an empty cache in a directory."""
    local = LocalMirrors((), HashCache(directory / "hashes.json"))
    return Downloads(required_files([]), Fetcher(FileCache(directory / "cache", print), local))


def get(packages: Sequence[Deb], directory: Path) -> None:
    """Put locked packages into a directory, as builds on this machine get them."""
    with open_fetcher(find(HOME), print) as fetcher:
        prefetch.download_packages(Downloads(required_files([]), fetcher), packages, directory)

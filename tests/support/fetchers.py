"""Fetchers of a file that a local server has."""

from pathlib import Path

from bakehouse.fetch import retry as bounds
from bakehouse.fetch.cache import FileCache
from bakehouse.fetch.downloader import Fetcher
from bakehouse.fetch.local_mirror import HashCache, LocalMirrors
from bakehouse.fetch.pip_config import PipConfig
from bakehouse.fetch.sources import DownloadConfig

CONTENT = bytes(range(256)) * 1800


class Fetching:
    """A machine with mirrors, and a store that fetchers of several runs share."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.messages = directory, list[str]()

    def run(self, *mirrors: str, patience: float = bounds.IDLE_SECONDS) -> Fetcher:
        machine = DownloadConfig(mirrors, PipConfig(no_index=True), None, {"HOME": str(self.directory)})
        store = FileCache(self.directory / "store", self.messages.append)
        local = LocalMirrors(machine.folders, HashCache(self.directory / "hashes.json"))
        return Fetcher(store, local, offers=machine.offers, here=machine.here, patience=patience)

"""Recorder of the pages that list releases of components, for tests without a network.

`python -m tests.commands.update.page_recorder DIRECTORY` asks the pages that `upstream` of a component names.
Read a record before you commit it: keep the lines with versions, dates and checksums.
"""

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from bakehouse.catalog.catalog import load_catalog
from bakehouse.catalog.component import Component
from bakehouse.commands.update.new_releases import plain
from bakehouse.fetch import pip_config
from bakehouse.fetch.connection import bundle_of
from bakehouse.fetch.faults import SourceError
from bakehouse.fetch.sources import DownloadConfig

_MOST = 4 * 10**6


def addresses(component: Component) -> dict[str, str]:
    """Return the URLs of the pages of a component, by the names of their records."""
    upstream, pages = component.upstream, dict[str, str]()
    if upstream and upstream.kind == "page":
        pages[f"{component.name}.txt"] = upstream.address
        if upstream.checksums:
            pages[f"{component.name}.checksums.txt"] = upstream.checksums.address
    return pages


def record(components: Iterable[Component], sources: DownloadConfig, directory: Path) -> None:
    """Write the texts of the pages of components. A page that cannot be read keeps its record."""
    for component in components:
        for name, url in addresses(component).items():
            try:
                text = plain(sources.page(url, _MOST))
            except SourceError as error:
                print(f"{url}: {error.reason}", file=sys.stderr, flush=True)
                continue
            (directory / name).write_text(f"From {url}\n{text}")


def downloads() -> DownloadConfig:
    """Return the connection settings of this machine."""
    pip = pip_config.read()
    return DownloadConfig((), pip, bundle_of(None, pip), os.environ)


if __name__ == "__main__":
    record(load_catalog([Path("recipes")]).components.values(), downloads(), Path(sys.argv[1]))

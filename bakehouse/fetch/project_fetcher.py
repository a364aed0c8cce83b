"""Downloads with the settings of a project and of this machine."""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from bakehouse.catalog.project import ProjectSettings
from bakehouse.fetch import pip_config
from bakehouse.fetch.cache import FileCache
from bakehouse.fetch.connection import bundle_of, redacted
from bakehouse.fetch.downloader import Fetcher
from bakehouse.fetch.local_mirror import HashCache, LocalMirrors
from bakehouse.fetch.sources import DownloadConfig, is_mirror
from bakehouse.util.format import format_bytes, format_count, format_seconds
from bakehouse.util.terminal import Reporter


@contextlib.contextmanager
def open_fetcher(
    project: ProjectSettings,
    report: Reporter,
    *,
    source: str = "",
    to: Path | None = None,
    offline: bool = False,
    environment: Mapping[str, str] = os.environ,
) -> Iterator[Fetcher]:
    """Open a fetcher with the settings of this machine.

    `to` is a directory that replaces the cache and gets a copy of each file. `offline` disables the network.
    """
    project.require_consent("mirrors")
    pip = pip_config.read(environment)
    mirrors = [*filter(None, [source]), *project.mirrors]
    for mirror in mirrors:
        if not is_mirror(mirror):
            report(f"mirror `{redacted(mirror)}` is not a directory or a mirror URL; skipped")
    mirrors = [mirror for mirror in mirrors if is_mirror(mirror)]
    bundle = bundle_of(project.ca, pip, environment)
    machine = DownloadConfig(tuple(mirrors), pip, bundle, environment, project.debian_mirrors)
    hashes = HashCache(project.state / "hashes.json")
    directories = [*machine.folders, *([project.cache] if to else [])]
    fetcher = Fetcher(
        FileCache(to or project.cache, report, state=project.cache),
        LocalMirrors(directories, hashes),
        offers=(lambda _: ()) if offline else machine.offers,
        here=machine.here,
        copies=bool(to),
    )
    began = time.monotonic()
    with fetcher:
        try:
            yield fetcher
        finally:
            fetched = [transfer.fetched for transfer in fetcher.transfers if transfer.fetched]
            if fetched:
                spent = f"{format_bytes(sum(fetched))} in {format_seconds(time.monotonic() - began)}"
                report(f"fetched {format_count(len(fetched), 'file')}: {spent}")
            with contextlib.suppress(OSError):
                hashes.save()

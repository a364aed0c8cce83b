"""Record of the inputs of each image's last lock, so that unchanged images are not resolved again."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from bakehouse import __version__
from bakehouse.catalog.python_lock import Package
from bakehouse.catalog.requirements_file import Requirements
from bakehouse.fetch.pip_config import PipConfig
from bakehouse.resolve.resolver import Resolution
from bakehouse.util.files import read_bytes, write_whole
from bakehouse.util.hashing import key_of
from bakehouse.util.json_reader import decode, parse_json


def inputs_key(
    resolution: Resolution,
    requirements: Requirements,
    contained: Iterable[Package],
    pip: PipConfig,
    lines: Sequence[str],
) -> str | None:
    """Return the key of all inputs of a lock and of its `lines`; None if some inputs are not known.

    The contents of local files, repositories and locks of other tools are not part of the key, except the
    list of the files of a `find-links` directory.
    """
    is_plain = not requirements.locks and not requirements.options
    if any(place and not _is_remote(place) for place in (pip.index_url, *pip.extra_index_urls)):
        return None
    listings = [_listing(place) for place in pip.find_links if not _is_remote(place)]
    if None in listings:
        return None
    if not is_plain or any(package.git or " @ " in package.text for package in requirements.packages):
        return None
    files = {choice.candidate.component.location.path for choice in resolution.all_choices}
    owned = (package for packages in resolution.owners.values() for package in packages)
    return key_of(
        __version__,
        requirements.digest,
        [_hash_of(path) for path in (resolution.recipe.location.path, *sorted(files))],
        [str(choice.candidate) for choice in resolution.all_choices],
        [package.requirement for package in (*owned, *contained)],
        repr(pip),
        listings,
        list(lines),
    )


def _is_remote(place: str) -> bool:
    return place.startswith(("https://", "http://"))


def _listing(directory: str) -> list[tuple[str, int, int]] | None:
    """Return the names, sizes and times of the files of a local directory; None if it cannot be listed."""
    try:
        with os.scandir(directory.removeprefix("file://")) as entries:
            files = [(entry.name, entry.stat()) for entry in entries]
    except OSError:
        return None
    return sorted((name, status.st_size, status.st_mtime_ns) for name, status in files)


def _hash_of(path: Path) -> str:
    return sha256(read_bytes(path)).hexdigest()


def load_keys(state: Path) -> dict[str, str]:
    """Return the recorded keys by image; none if the record is missing or damaged."""
    try:
        return decode(parse_json(read_bytes(_path(state))), dict[str, str])
    except (OSError, ValueError):
        return {}


def save_keys(keys: Mapping[str, str], state: Path) -> None:
    """Record the keys of images."""
    write_whole(_path(state), json.dumps(keys, indent=1, sort_keys=True) + "\n")


def _path(state: Path) -> Path:
    return state / "locks" / "inputs.json"

"""Recorder of what the package index answers about some releases, for tests without a network.

`python -m tests.commands.update.index_recorder FILE` asks the index of this machine's pip.
The record has no URLs. Of the metadata of a wheel only the fields of `_FIELDS` are kept, and one wheel stands
for all of a version.
"""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import Version

from bakehouse.catalog.catalog import Catalog, load_catalog
from bakehouse.commands.update.new_releases import file_version
from bakehouse.fetch import pip_config
from bakehouse.fetch.connection import bundle_of
from bakehouse.fetch.simple_index import IndexFile
from bakehouse.fetch.sources import DownloadConfig

REPLAYED = {
    "open-mpi": ("5.0.11",),
    "pytorch": ("2.15.0", "2.14.1", "2.13.0", "2.12.1"),
    "torchvision": ("0.29.2", "0.28.0", "0.27.1"),
}
"""The releases of the six months before the record was made, of components that had an older one."""
_FIELDS = ("Metadata-Version", "Name", "Version", "Requires-Python", "Requires-Dist", "Provides-Extra")

Record = dict[str, dict[str, Any]]
"""By project: `files` as on the page of the index, and `metadata` by version."""


def record(catalog: Catalog, downloads: DownloadConfig) -> Record:
    """Ask the index about all releases of the replayed components, and about the packages of their locks."""
    needed: dict[str, set[Version]] = {}
    upstream: set[str] = set()
    for name, versions in REPLAYED.items():
        component = catalog.components[name]
        assert component.upstream
        upstream.update(component.upstream.projects)
        for release in component.releases:
            for variant in release.variants if release.version in versions else ():
                if any(artifact.file.endswith(".whl") for artifact in variant.spec.artifacts):
                    continue
                for package in variant.spec.packages:
                    needed.setdefault(canonicalize_name(package.name), set()).add(Version(package.version))
    oldest = {
        project: max(
            Version(each.version) for each in component.releases if each.version not in REPLAYED[name]
        )
        for name, component in catalog.components.items()
        if name in REPLAYED and component.upstream
        for project in component.upstream.projects
    }
    # PyTorch recommends it, and has no new release of it
    oldest["torchaudio"], needed["torchaudio"] = Version("2.10.0"), set()
    with ThreadPoolExecutor(8) as pool:
        recorded = pool.map(
            lambda item: _project(item[0], item[1], oldest.get(item[0]), downloads), sorted(needed.items())
        )
        return dict(zip(sorted(needed), recorded, strict=True))


def _project(
    project: str, versions: set[Version], oldest: Version | None, downloads: DownloadConfig
) -> dict[str, Any]:
    files, wheels = [], dict[Version, IndexFile]()
    for link in downloads.project(project):
        version = file_version(link.file, project)
        is_of_interest = version in versions or (oldest and version and version > oldest)
        if not version or not is_of_interest or version.is_prerelease or not _is_for_linux(link.file):
            continue
        files.append(
            {
                "filename": link.file,
                "hashes": {"sha256": link.sha256},
                "size": link.size,
                "upload-time": link.uploaded,
                "yanked": link.yanked if link.yanked else link.yanked is not None,
                "requires-python": link.requires_python or None,
            }
        )
        if link.file.endswith(".whl"):
            wheels.setdefault(version, link)
    print(project, len(files), file=sys.stderr, flush=True)
    metadata = {str(version): _headers(downloads.wheel_metadata(link)) for version, link in wheels.items()}
    return {"files": files, "metadata": metadata}


def _is_for_linux(file: str) -> bool:
    return (
        not file.endswith(".whl")
        or file.endswith("none-any.whl")
        or ("manylinux" in file and "x86_64" in file)
    )


def _headers(text: str) -> str:
    parsed: Message = HeaderParser().parsestr(text)
    return "".join(f"{name}: {value}\n" for name in _FIELDS for value in parsed.get_all(name, []))


def main(path: Path) -> None:
    """Write the record."""
    pip = pip_config.read()
    downloads = DownloadConfig((), pip, bundle_of(None, pip), os.environ)
    recorded = record(load_catalog([Path("recipes")]), downloads)
    path.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

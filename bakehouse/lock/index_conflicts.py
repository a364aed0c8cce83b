"""Detection of projects of the same name on several package indexes that have different files.

pip and uv take the newest version of all indexes. So a higher version on one of them can replace the package
of another one, although only the name is the same (dependency confusion).
"""

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from bakehouse.errors import BuildError, Diagnostic, Problems
from bakehouse.fetch.connection import redacted
from bakehouse.fetch.faults import SourceError
from bakehouse.fetch.simple_index import IndexFile
from bakehouse.fetch.sources import DownloadConfig

_MAX_CONCURRENT_REQUESTS = 8


@dataclass(frozen=True, slots=True)
class ChosenFile:
    """The file that was chosen for a package."""

    name: str
    version: str
    url: str
    sha256: str

    def is_at(self, link: IndexFile) -> bool:
        """Return whether a page of an index links to the file; some pages have no sha256."""
        return link.sha256 == self.sha256 or link.url.partition("#")[0] == self.url.partition("#")[0]


def refuse_conflicts(
    files: Iterable[ChosenFile],
    requirements: Iterable[str],
    locked: Collection[str],
    downloads: DownloadConfig,
) -> None:
    """Raise BuildError if another index has a project of the same name without any common file.

    A package may come from the index that has the files of the present lock, whose sha256 sums are `locked`.
    A requirement for one exact version selects the index that has it.
    """
    if len(downloads.web_indexes) < 2:
        return
    files = [file for file in files if file.sha256 not in locked]
    exact = _exact(requirements)
    try:
        with ThreadPoolExecutor(_MAX_CONCURRENT_REQUESTS) as pool:
            pages = [*pool.map(lambda file: downloads.pages(file.name), files)]
    except SourceError as error:
        raise BuildError(f"cannot compare the package indexes: {error.reason}") from error
    problems = Problems()
    for file, links in zip(files, pages, strict=True):
        if others := _others(file, links, locked, is_exact=canonicalize_name(file.name) in exact):
            problems.add(_diagnostic(file, links, others))
    problems.raise_as(BuildError)


def _exact(requirements: Iterable[str]) -> set[str]:
    """Return the names that requirements ask for in one exact version."""
    names: set[str] = set()
    for text in requirements:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            # A URL or a path has no version
            continue
        specifiers = [*requirement.specifier]
        if any(
            specifier.operator in ("==", "===") and not specifier.version.endswith("*")
            for specifier in specifiers
        ):
            names.add(canonicalize_name(requirement.name))
    return names


def _others(
    file: ChosenFile, pages: Mapping[str, tuple[IndexFile, ...]], locked: Collection[str], *, is_exact: bool
) -> tuple[str, ...]:
    """Return the indexes that have another project of this name. Copies of an index share files with it."""
    owners = [index for index, links in pages.items() if any(map(file.is_at, links))]
    own = {link.sha256 for index in owners for link in pages[index] if link.sha256}
    if not owners or not own.isdisjoint(locked):
        # Without an owner, the file is from a page of `find-links`
        return ()
    others = tuple(
        index
        for index, links in pages.items()
        if links and index not in owners and own.isdisjoint(link.sha256 for link in links)
    )
    if is_exact:
        name = unquote(urlsplit(file.url).path.rpartition("/")[2])
        return tuple(index for index in others if any(link.file == name for link in pages[index]))
    return others


def _diagnostic(
    file: ChosenFile, pages: Mapping[str, tuple[IndexFile, ...]], others: tuple[str, ...]
) -> Diagnostic:
    facts = [("chosen", f"{file.name} {file.version}")]
    facts += [("from", redacted(index)) for index in pages if index not in others and pages[index]]
    facts += [("also in", redacted(index)) for index in others]
    hint = f"require the version that you want, such as `{file.name}==1.0`, or remove one of the indexes"
    return Diagnostic(
        f"package indexes have different projects called `{file.name}`", facts=tuple(facts), hint=hint
    )

"""Pending updates of locked Debian packages, with the vulnerabilities that their changelogs name."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from bakehouse.catalog.apt_lock import Deb, deb_of, lock_name
from bakehouse.commands.security.changelog import (
    ChangelogEntry,
    is_newer,
    newer_entries,
    read_changelog,
    source_of,
    without_rebuild,
)
from bakehouse.commands.security.contents import deb_usages
from bakehouse.fetch.downloader import Fetcher, MissingError
from bakehouse.fetch.project_fetcher import open_fetcher
from bakehouse.fetch.required_files import debs
from bakehouse.lock import apt_suite
from bakehouse.lock.apt import Resolved
from bakehouse.plan.model import BootstrappedBase, Image
from bakehouse.plan.workspace import Workspace
from bakehouse.trust.findings import NotScanned, PackageFinding, Usage, Vulnerability
from bakehouse.util.format import format_count
from bakehouse.util.terminal import Reporter


class _NotComparedError(Exception):
    """An update whose vulnerabilities are unknown, with the reason."""


_Update = tuple[tuple[Deb, Mapping[str, str]], ...]
"""Locked packages of one source package, each with the index fields of another version."""


def pending_updates(
    workspace: Workspace, images: Sequence[Image], report: Reporter
) -> tuple[tuple[PackageFinding, ...], tuple[NotScanned, ...]]:
    """Return the packages of bootstrapped bases that have newer versions on the mirrors.

    Bakehouse downloads one package of each source that has an update, for its changelog. `bake build` uses
    the same files after an upgrade.
    """
    recipes = [workspace.recipes[image.name] for image in images]
    findings: list[PackageFinding] = []
    not_scanned: list[NotScanned] = []
    newest = apt_suite.resolve_newest(workspace, recipes, report)
    with open_fetcher(workspace.project, report) as fetcher:
        for suite, resolved in newest.items():
            own = [image for image in images if _is_on(image, suite)]
            not_scanned += _not_compared(suite, resolved, own)
            updates = _by_source(resolved, {deb.name: deb for image in own for deb in image.debs})
            if updates:
                report(f"reading the changelogs of {format_count(len(updates), 'source package')} of {suite}")
            for source, update in updates.items():
                usages = deb_usages(own, {deb for deb, _ in update}.__contains__)
                try:
                    findings.append(_finding(source, suite, update, usages, fetcher))
                # ValueError: the changelog names an invalid version
                except (_NotComparedError, ValueError) as error:
                    (before, fields), *_ = update
                    what = f"update of {source} {before.version} -> {fields['Version']}"
                    not_scanned.append(NotScanned("Debian", what, str(error), _names(usages)))
    return tuple(findings), tuple(not_scanned)


def _is_on(image: Image, suite: str) -> bool:
    base = image.base
    return isinstance(base, BootstrappedBase) and lock_name(base.suite, base.platform) == suite


def _not_compared(suite: str, resolved: Resolved, images: Sequence[Image]) -> Iterator[NotScanned]:
    """Yield the locked packages that cannot be compared with the mirrors."""
    if not resolved.has_security_mirror:
        reason = "no mirror has them"
        names = tuple(image.name for image in images)
        yield NotScanned("Debian", f"security updates of {suite}", reason, names)
    dropped = {deb for image in images for deb in image.debs if deb.name not in resolved.packages}
    if dropped:
        packages = sorted(deb.name for deb in dropped)
        what = f"{format_count(len(packages), 'package')} of {suite}: {', '.join(packages)}"
        reason = "the newest packages on the mirrors no longer need them"
        yield NotScanned("Debian", what, reason, _names(deb_usages(images, dropped.__contains__)))


def _by_source(resolved: Resolved, locked: Mapping[str, Deb]) -> dict[str, _Update]:
    """Return the locked packages with another version on the mirrors, by source, with their index fields."""
    names = [change.name for change in resolved.newer if change.name in locked]
    updates = sorted((source_of(resolved.packages[name])[0], name) for name in names)
    return {
        source: tuple((locked[name], resolved.packages[name]) for _, name in group)
        for source, group in groupby(updates, key=lambda update: update[0])
    }


def _finding(
    source: str, suite: str, update: _Update, usages: tuple[Usage, ...], fetcher: Fetcher
) -> PackageFinding:
    """Return the update of a source package. Raises _NotComparedError."""
    if not any(is_newer(fields["Version"], deb.version) for deb, fields in update):
        message = "the mirrors do not have a newer version"
        raise _NotComparedError(message)
    # Other packages of the source, such as bsdutils of util-linux, have versions of their own
    comparable = [
        (deb, fields) for deb, fields in update if source_of(fields)[1] == without_rebuild(fields["Version"])
    ]
    if not comparable:
        message = "its version differs from that of its source package"
        raise _NotComparedError(message)
    entries = _changelog([fields for _, fields in update], fetcher)
    (before, newest), *_ = comparable
    version = without_rebuild(newest["Version"])
    if entries[0].version != version:
        message = f"its changelog ends at {entries[0].version}"
        raise _NotComparedError(message)
    # Packages of one source can be locked in several versions
    fixes = max((newer_entries(entries, without_rebuild(deb.version)) for deb, _ in comparable), key=len)
    return PackageFinding(
        kind="Debian",
        name=source,
        version=before.version,
        newer=newest["Version"],
        source=_suite(fixes) or suite,
        packages=tuple(deb.name for deb, _ in update),
        vulnerabilities=_vulnerabilities(fixes),
        usages=usages,
    )


def _names(usages: Iterable[Usage]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(usage.image for usage in usages))


def _changelog(packages: Sequence[Mapping[str, str]], fetcher: Fetcher) -> tuple[ChangelogEntry, ...]:
    """Return the changelog in the smallest package of a source that has one."""
    files = [deb for fields in packages if (deb := deb_of(fields))]
    for file in debs(sorted(files, key=lambda deb: deb.bytes)):
        try:
            entries = read_changelog(fetcher.get(file))
        except MissingError as error:
            reasons = ", ".join(f"{source}: {reason}" for source, reason in error.failures)
            message = f"`{file.file}` could not be downloaded: {reasons or 'no mirror has it'}"
            raise _NotComparedError(message) from error
        if entries:
            return entries
    message = "none of its packages contains a changelog"
    raise _NotComparedError(message)


def _vulnerabilities(entries: Sequence[ChangelogEntry]) -> tuple[Vulnerability, ...]:
    """Return the CVE numbers of entries; the newest entry that names one counts as the complete fix."""
    fixed = {cve: entry.version for entry in reversed(entries) for cve in entry.cves}
    return tuple(sorted(Vulnerability(*item) for item in fixed.items()))


def _suite(entries: Sequence[ChangelogEntry]) -> str:
    """Return the suite of the newest security update, or of the newest entry."""
    suites = [entry.suite for entry in entries]
    return next((suite for suite in suites if suite.endswith("-security")), "".join(suites[:1]))

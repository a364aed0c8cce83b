"""Pending updates of locked Debian packages, with the vulnerabilities that their changelogs name."""

from collections.abc import Mapping, Sequence
from itertools import groupby

from bakehouse.build.prefetch import open_fetcher
from bakehouse.catalog.apt_lock import Deb, deb_of
from bakehouse.fetch.downloader import Fetcher, MissingError
from bakehouse.fetch.required_files import debs
from bakehouse.lock import apt_suite
from bakehouse.lock.apt import Resolved
from bakehouse.lock.changelog import (
    ChangelogEntry,
    newer_entries,
    read_changelog,
    source_of,
    without_rebuild,
)
from bakehouse.plan.model import Image
from bakehouse.plan.workspace import Workspace
from bakehouse.security.findings import Finding, NotScanned, Vulnerability, deb_usages
from bakehouse.util.format import format_count
from bakehouse.util.terminal import Reporter


class _NoChangelogError(Exception):
    """The changelog of an update cannot be read."""


def pending_updates(
    workspace: Workspace, images: Sequence[Image], report: Reporter
) -> tuple[tuple[Finding, ...], tuple[NotScanned, ...]]:
    """Return the packages of bootstrapped bases that have newer versions on the mirrors.

    The mirrors are those of the machine's apt. Bakehouse downloads one package of each source that has an
    update, for its changelog; `bake build` uses the same files after an upgrade.
    """
    recipes = [workspace.recipes[image.name] for image in images]
    findings: list[Finding] = []
    not_scanned: list[NotScanned] = []
    newest = apt_suite.resolve_newest(workspace, recipes, report)
    with open_fetcher(workspace.project, report) as fetcher:
        for suite, resolved in newest.items():
            lock = workspace.apt_locks.suites.get(suite)
            locked = {deb.name: deb for deb in lock.debs} if lock else {}
            updates = _by_source(resolved, locked)
            if updates:
                report(f"reading the changelogs of {format_count(len(updates), 'source package')} of {suite}")
            for source, packages in updates.items():
                before = tuple(locked[fields["Package"]] for fields in packages)
                usages = deb_usages(images, set(before).__contains__)
                try:
                    entries = _new_entries(before[0], packages, fetcher)
                except _NoChangelogError as error:
                    names = tuple(dict.fromkeys(usage.image for usage in usages))
                    what = f"update of {source} {before[0].version} -> {packages[0]['Version']}"
                    not_scanned.append(NotScanned(what, str(error), names))
                    continue
                findings.append(
                    Finding(
                        kind="Debian",
                        name=source,
                        version=before[0].version,
                        newer=packages[0]["Version"],
                        source=_suite(entries) or suite,
                        packages=tuple(deb.name for deb in before),
                        vulnerabilities=_vulnerabilities(entries),
                        usages=usages,
                    )
                )
    return tuple(findings), tuple(not_scanned)


def _by_source(resolved: Resolved, locked: Mapping[str, Deb]) -> dict[str, tuple[Mapping[str, str], ...]]:
    """Return by source package the index fields of the locked packages that have another version."""
    names = [change.name for change in resolved.newer if change.name in locked]
    updates = sorted((source_of(resolved.packages[name])[0], name) for name in names)
    return {
        source: tuple(resolved.packages[name] for _, name in group)
        for source, group in groupby(updates, key=lambda update: update[0])
    }


def _new_entries(
    before: Deb, packages: Sequence[Mapping[str, str]], fetcher: Fetcher
) -> tuple[ChangelogEntry, ...]:
    """Return the entries of a changelog above the locked version. Raises _NoChangelogError."""
    fields = packages[0]
    if source_of(fields)[1] != without_rebuild(fields["Version"]):
        message = "its version differs from that of its source package"
        raise _NoChangelogError(message)
    return newer_entries(_changelog(packages, fetcher), without_rebuild(before.version))


def _changelog(packages: Sequence[Mapping[str, str]], fetcher: Fetcher) -> tuple[ChangelogEntry, ...]:
    """Return the changelog in the smallest package of a source that has one."""
    files = [deb for fields in packages if (deb := deb_of(fields))]
    for file in debs(sorted(files, key=lambda deb: deb.bytes)):
        try:
            entries = read_changelog(fetcher.get(file))
        except MissingError as error:
            reasons = ", ".join(f"{source}: {reason}" for source, reason in error.failures)
            message = f"`{file.file}` could not be downloaded: {reasons or 'apt has no mirror'}"
            raise _NoChangelogError(message) from error
        if entries:
            return entries
    message = "none of its packages contains a changelog"
    raise _NoChangelogError(message)


def _vulnerabilities(entries: Sequence[ChangelogEntry]) -> tuple[Vulnerability, ...]:
    """Return the CVE numbers of entries; the newest entry that names one counts as the complete fix."""
    fixed = {cve: entry.version for entry in reversed(entries) for cve in entry.cves}
    return tuple(sorted(Vulnerability(*item) for item in fixed.items()))


def _suite(entries: Sequence[ChangelogEntry]) -> str:
    """Return the suite of the newest security update, or of the newest entry."""
    suites = [entry.suite for entry in entries]
    return next((suite for suite in suites if suite.endswith("-security")), "".join(suites[:1]))

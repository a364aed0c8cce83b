"""Fixes of open findings: locks of the fixed versions, and the text of the pull request."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from packaging.version import Version

from bakehouse.catalog.python_lock import normal_name
from bakehouse.commands.security.contents import is_newer, python_packages, stage_packages
from bakehouse.commands.security.findings import PackageFinding, SecurityReport
from bakehouse.lock import locking
from bakehouse.plan.model import Image
from bakehouse.plan.workspace import Workspace, is_own, open_workspace, select
from bakehouse.util.format import format_count, format_names
from bakehouse.util.terminal import Reporter


@dataclass(frozen=True, slots=True)
class LockChange:
    """An image before and after its locks changed."""

    before: Image
    after: Image

    @property
    def changed_steps(self) -> tuple[str, ...]:
        """Titles of the base and the stages to build again."""
        base = (f"base {self.after.base_part.title}",) if self.before.base != self.after.base else ()
        system = ("packages of the image",) if self.before.apt_debs != self.after.apt_debs else ()
        keys = {stage.key for stage in self.before.stages}
        return (*base, *system, *(stage.title for stage in self.after.stages if stage.key not in keys))


def changed_images(before: Iterable[Image], after: Iterable[Image]) -> tuple[LockChange, ...]:
    """Return the images whose build key changed."""
    earlier = {image.name: image for image in before}
    pairs = (LockChange(earlier[image.name], image) for image in after if image.name in earlier)
    return tuple(change for change in pairs if change.before.key != change.after.key)


@dataclass(frozen=True, slots=True)
class Fix:
    """Result of locking fixed versions."""

    report: SecurityReport
    """The findings before the fix."""
    fixed: tuple[PackageFinding, ...]
    left: tuple[tuple[PackageFinding, str], ...]
    """Open findings that remain, each with the reason."""
    changes: tuple[LockChange, ...]

    @property
    def remaining(self) -> SecurityReport:
        """The report with the findings that remain; what was not scanned is in the text of the fix."""
        return replace(self.report, findings=tuple(finding for finding, _ in self.left), not_scanned=())


def fix(
    workspace: Workspace,
    patterns: Sequence[str],
    before: Sequence[Image],
    report: SecurityReport,
    progress: Reporter,
) -> Fix:
    """Lock the fixed versions of open findings; other packages keep their versions where these fit.

    `before` are the planned images that `patterns` select.
    """
    names, unfixable = _names(workspace, before, report.open_findings)
    after = before
    if names:
        progress(f"locking {', '.join(names)}")
        root = workspace.project.root
        python = {finding.name for finding in report.open_findings if finding.kind == "Python"}
        failures = workspace.failures
        scope = locking.LockScope(upgrade=True, only_python=python)
        for line in locking.run(root, names, progress, failures=failures, scope=scope):
            progress(line)
        after = select(open_workspace(root), patterns).plan.images
    locked = _locked(before, after)
    fixed, left = [], []
    for finding in report.open_findings:
        if reason := unfixable.get(finding, "") or _problem(finding, locked):
            left.append((finding, reason))
        else:
            fixed.append(finding)
    return Fix(report, tuple(fixed), tuple(left), changed_images(before, after))


def _names(
    workspace: Workspace, images: Sequence[Image], findings: Iterable[PackageFinding]
) -> tuple[list[str], dict[PackageFinding, str]]:
    """Return the names to lock again, and the reason for each finding that a lock cannot fix."""
    locked = {deb.name for deb in workspace.apt_locks.debs}
    all_owners = _owners(images)
    names: dict[str, None] = {}
    unfixable: dict[PackageFinding, str] = {}
    for finding in findings:
        if not finding.newer:
            unfixable[finding] = "no fixed version is known"
        elif finding.kind == "Debian" and locked.intersection(finding.packages):
            names |= dict.fromkeys(sorted(locked.intersection(finding.packages)))
        elif finding.kind == "Python" and (owners := all_owners.get((finding.name, finding.version))):
            foreign = [name for name in owners if not _can_lock(workspace, name)]
            if foreign:
                unfixable[finding] = f"Bakehouse's catalogue locks it in {format_names(foreign)}"
            names |= dict.fromkeys(name for name in owners if name not in foreign)
        else:
            unfixable[finding] = "no lock of the project contains it"
    return list(names), unfixable


def _owners(images: Iterable[Image]) -> dict[tuple[str, str], dict[str, None]]:
    """Return the images and components whose locks contain a Python package, by its name and version."""
    owners: dict[tuple[str, str], dict[str, None]] = {}
    for image in images:
        # The lock of a recipe also replaces packages in the stages of components
        own = {(normal_name(package.name), package.version) for package in image.content.packages}
        for identity in own:
            owners.setdefault(identity, {})[image.name] = None
        for stage in image.stages:
            for package in stage_packages(stage):
                if (identity := (package.name, package.version)) not in own:
                    owners.setdefault(identity, {})[stage.part.component] = None
    return owners


def _can_lock(workspace: Workspace, name: str) -> bool:
    """Return whether the project locks an image or a component."""
    recipe = workspace.recipes.get(name)
    location = recipe.location if recipe else workspace.catalog.components[name].location
    return is_own(workspace, location.path)


@dataclass(frozen=True, slots=True)
class _Locked:
    """Packages of one image before and after the lock."""

    earlier: Mapping[str, str]
    """Versions of Debian packages before the lock."""
    debs: Mapping[str, str]
    """Versions of Debian packages after the lock."""
    python: Mapping[str, Collection[str]]
    """Versions of Python packages after the lock, by name."""


def _locked(before: Iterable[Image], after: Iterable[Image]) -> dict[str, _Locked]:
    """Return the packages by image. Images of different Debian suites have different versions."""
    earlier = {image.name: _versions(image) for image in before}
    locked = {}
    for image in after:
        python: dict[str, set[str]] = {}
        for package in python_packages([image]):
            python.setdefault(package.name, set()).add(package.version)
        locked[image.name] = _Locked(earlier.get(image.name, {}), _versions(image), python)
    return locked


def _versions(image: Image) -> dict[str, str]:
    return {deb.name: deb.version for deb in image.debs}


def _problem(finding: PackageFinding, locked: Mapping[str, _Locked]) -> str:
    """Return why a package is still vulnerable after the lock; empty if it is not."""
    users = {usage.image for usage in finding.usages} or locked.keys()
    older = dict.fromkeys(
        package
        for image, packages in locked.items()
        if image in users
        for package in _older_packages(finding, packages)
    )
    return f"the lock still has {', '.join(older)}" if older else ""


def _older_packages(finding: PackageFinding, locked: _Locked) -> list[str]:
    """Return the packages of an image that lack the fix."""
    if finding.kind == "Debian":
        return [
            f"{name} {locked.debs[name]}"
            for name in sorted({*finding.packages} & locked.debs.keys())
            if _is_older(finding, locked.debs[name], locked.earlier.get(name, ""))
        ]
    newer = Version(finding.newer)
    versions = sorted(locked.python.get(finding.name, ()))
    return [version for version in versions if Version(Version(version).public) < newer]


def _is_older(finding: PackageFinding, version: str, earlier: str) -> bool:
    """Return whether a Debian package lacks the fix; some packages of a source have versions of their own."""
    return is_newer(finding.newer, version) if earlier == finding.version else version == earlier


def message(fix: Fix) -> str:
    """Return the text of the pull request, in Markdown; its first line is the title."""
    blocks = [_title(fix)]
    if fix.fixed:
        rows = [
            f"| {' | '.join(map(_cell, cells))} |\n"
            for finding in fix.fixed
            for cells in [(finding.name, finding.version, finding.newer, _vulnerabilities(finding))]
        ]
        blocks.append(
            f"| package | locked | fixed in | vulnerabilities |\n|---|---|---|---|\n{''.join(rows)}"
        )
    if fix.changes:
        steps: dict[str, list[str]] = {}
        for change in fix.changes:
            for step in change.changed_steps:
                steps.setdefault(step, []).append(change.after.name)
        lines = "".join(f"- {step}: {', '.join(images)}\n" for step, images in steps.items())
        blocks.append(f"To build again:\n\n{lines}")
        images = " ".join(change.after.name for change in fix.changes)
        commands = (f"    bake {task}\n" for task in ("render", *(f"{name} {images}" for name in _TASKS)))
        blocks.append(f"To release:\n\n{''.join(commands)}")
    if fix.left:
        lines = "".join(
            f"- {_cell(f'{finding.name} {finding.version}, {_vulnerabilities(finding)}')}: {reason}\n"
            for finding, reason in fix.left
        )
        blocks.append(f"Still open:\n\n{lines}")
    if fix.report.not_scanned:
        lines = "".join(f"- {item.what}: {item.reason}\n" for item in fix.report.not_scanned)
        blocks.append(f"Not scanned:\n\n{lines}")
    return "\n".join(blocks)


_TASKS = ("build", "smoke", "push")


def _cell(text: str) -> str:
    """Escape Markdown in a text of a scanner."""
    return re.sub(r"([|<>`\[\]*_@#\\])", r"\\\1", text)


def _title(fix: Fix) -> str:
    if not fix.fixed:
        return "No open finding was fixed\n"
    ids = {vulnerability.id for finding in fix.fixed for vulnerability in finding.open_vulnerabilities}
    names = ", ".join(finding.name for finding in fix.fixed[:3])
    rest = f" and {len(fix.fixed) - 3} more" if len(fix.fixed) > 3 else ""
    count = format_count(len(ids), "vulnerability", "vulnerabilities")
    return f"Fix {count} of {names}{rest}\n"


def _vulnerabilities(finding: PackageFinding) -> str:
    return ", ".join(vulnerability.id for vulnerability in finding.open_vulnerabilities)

"""The task `update`: entries for new upstream releases, with the evidence for each value.

An entry is made from the one of the release before. Everything is written into a copy of the component first:
the catalogue is read with it, and its images are resolved and rendered. The component itself changes only at
the end, so an unusable answer changes nothing.
"""

import contextlib
import difflib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from bakehouse.catalog.catalog import Catalog, load_catalog, read_directory
from bakehouse.catalog.component import Component, Requirement
from bakehouse.catalog.recipe import read_recipes
from bakehouse.catalog.upstream import VERSION
from bakehouse.commands.update.new_releases import UpstreamError, UpstreamRelease, new_releases
from bakehouse.commands.update.release_draft import FILE, Evidence, ReleaseDrafter, read_copy
from bakehouse.errors import (
    BakehouseError,
    BuildError,
    Diagnostic,
    Problems,
    RecipeError,
    UsageError,
)
from bakehouse.fetch import pip_config
from bakehouse.fetch.connection import bundle_of
from bakehouse.fetch.faults import SourceError
from bakehouse.fetch.sources import DownloadConfig
from bakehouse.lock import build_backend
from bakehouse.lock import python as pylock
from bakehouse.plan import dockerfile
from bakehouse.plan.workspace import Workspace, conflict_text, is_own, nearest_name, plan_resolutions
from bakehouse.resolve import what_if
from bakehouse.resolve.resolver import Resolution, Unsatisfiable, resolve
from bakehouse.util.files import files_below, make_directory, read_bytes, remove_file, write_whole
from bakehouse.util.format import format_count, format_names, format_table
from bakehouse.util.tempdir import scratch_directory
from bakehouse.util.terminal import Reporter

_MAX_NAMES = 4


@dataclass(frozen=True, slots=True)
class ReleaseProposal:
    """The entry of a new release."""

    component: str
    version: str
    day: str
    """Day of the release; empty if upstream does not state it."""
    before: str
    """The release whose entry it is made from."""
    evidence: tuple[Evidence, ...]
    checks: tuple[str, ...]
    """Values that upstream does not state in a machine-readable form."""
    diff: str
    moved: tuple[str, ...]
    """Images that would contain the release."""
    bases: tuple[str, ...]
    """Bases on which the release resolves."""


@dataclass
class ComponentUpdate:
    """The result of `update` for one component."""

    component: Component
    proposals: list[ReleaseProposal] = field(default_factory=list)
    by_hand: tuple[UpstreamRelease, ...] = ()
    """New releases of a component whose entries are written by hand."""
    remarks: tuple[str, ...] = ()
    failures: list[BakehouseError] = field(default_factory=list)


def run(
    workspace: Workspace, names: Sequence[str], report: Reporter, *, write: bool = False
) -> list[ComponentUpdate]:
    """Find new releases of components, and return the proposed entries; `write` adds them to the files.

    Without names, only the upstreams of the project's own components are asked. Failures are part of the
    result.
    """
    components = select(workspace, names, write=write)
    pip = pip_config.read()
    certificates = bundle_of(workspace.project.ca, pip)
    downloads = DownloadConfig((), pip, certificates, os.environ)
    updates = []
    index = pylock.Index(pip, certificates)
    index = build_backend.index_with_backends(index, workspace, report, lambda _: None)
    with scratch_directory() as directory:
        root = directory / "recipes"
        make_directory(root / "components")
        updater = _Updater(workspace, root, downloads, index)
        for component in components:
            update = ComponentUpdate(component)
            updates.append(update)
            if not component.has_upstream:
                continue
            report(f"checking {component.name}")
            try:
                state = new_releases(component, downloads)
            except BakehouseError as error:
                update.failures.append(error)
                continue
            update.remarks = state.remarks
            if component.upstream and component.upstream.by_hand:
                update.by_hand = state.releases
                continue
            for release in state.releases:
                report(f"{component.name} {release.version}: reading its metadata and making its locks")
                try:
                    update.proposals.append(updater.add(component, release))
                except BakehouseError as error:
                    update.failures.append(error)
            if write and update.proposals:
                try:
                    updater.write(component)
                except BakehouseError as error:
                    update.failures.append(error)
    return updates


def raise_failures(updates: Iterable[ComponentUpdate]) -> None:
    """Raise the errors of components that could not be checked or updated, as one error."""
    diagnostics = [
        diagnostic for update in updates for failure in update.failures for diagnostic in failure.diagnostics
    ]
    if diagnostics:
        raise BuildError.of(*diagnostics)


def select(workspace: Workspace, names: Sequence[str], *, write: bool) -> list[Component]:
    """Return the components with names or globs, those first that others are compiled against.

    Without names, those that the project can write are selected.
    """
    components = workspace.catalog.components
    patterns = names or [*components]
    problems = Problems()
    for pattern in names:
        if not any(fnmatchcase(name, pattern) for name in components):
            hint = nearest_name(pattern, components)
            problems.add(Diagnostic(f"unknown component `{pattern}`", hint=hint))
    selected = [
        component
        for name, component in components.items()
        if any(fnmatchcase(name, pattern) for pattern in patterns)
    ]
    for component in selected:
        if write and names and not is_own(workspace, component.location.path):
            message = f"`{component.name}` is a component of Bakehouse, which is not changed from a project"
            hint = f"copy its directory to `components/{component.name}` of your recipes to update it there"
            problems.add(Diagnostic(message, hint=hint))
    problems.raise_as(UsageError)
    if write or not names:
        selected = [item for item in selected if is_own(workspace, item.location.path)]
        if not selected:
            raise UsageError(
                "this project has no components of its own to update",
                hint="name components of Bakehouse without `--write` to list their new releases",
            )
    return sorted(selected, key=lambda component: (component.stage_order, component.name))


def _files(directory: Path) -> dict[Path, bytes]:
    """Return the content of files by relative path."""
    return {path.relative_to(directory): read_bytes(path) for path in files_below(directory)}


class _Updater:
    """Adds releases to copies of components, which later ones see."""

    def __init__(
        self, workspace: Workspace, root: Path, downloads: DownloadConfig, index: pylock.Index
    ) -> None:
        self._root, self._downloads, self._index = root, downloads, index
        self._workspace = workspace
        self._resolutions = _resolutions(workspace)
        components = workspace.catalog.components.values()
        # Bases get the conflicts of their contents each time
        self._components = {
            component.directory: component for component in components if not component.is_base
        }
        """Components that have not changed since they were read, by directory."""
        self._originals: dict[str, dict[Path, bytes]] = {}
        """The files of components when they were copied."""

    def _copy(self, component: Component) -> Path:
        return self._root / "components" / component.name

    def write(self, component: Component) -> None:
        """Write new locks, and then the entries, so that an entry never lacks its locks.

        Raises UpstreamError if one of these files has changed since the component was copied.
        """
        original, now = self._originals[component.name], _files(component.directory)
        copy = _files(self._copy(component))
        changed = sorted(path for path in copy if copy[path] != original.get(path))
        if edited := [path for path in changed if now.get(path) != original.get(path)]:
            reason = f"`{edited[0]}` has changed in the meantime"
            raise UpstreamError(component.name, reason, hint="run `bake update` again")
        for path in sorted(changed, key=lambda path: path == Path(FILE)):
            write_whole(component.directory / path, copy[path])

    def add(self, component: Component, release: UpstreamRelease) -> ReleaseProposal:
        """Add a release to the copy of a component. If that fails, the copy is as it was."""
        directory = self._copy(component)
        if not directory.exists():
            # Unlike copytree, this raises the error of a full disk as it is
            files = self._originals[component.name] = _files(component.directory)
            for path, content in files.items():
                write_whole(directory / path, content)
        before = _files(directory)
        self._components.pop(directory, None)
        try:
            return self._added(component.name, release, directory)
        except BaseException as error:
            self._components.pop(directory, None)
            now = _files(directory)
            for path in now.keys() - before.keys():
                remove_file(directory / path)
            for path in (path for path, content in before.items() if now.get(path) != content):
                write_whole(directory / path, before[path])
            if isinstance(error, SourceError):
                reason = f"{release.version}: the package index: {error.reason}"
                raise UpstreamError(component.name, reason) from error
            if isinstance(error, BakehouseError) and not isinstance(error, UpstreamError):
                raise UpstreamError(component.name, *_reasons(release.version, error)) from error
            raise

    def _added(self, name: str, release: UpstreamRelease, directory: Path) -> ReleaseProposal:
        component = read_copy(directory)
        drafter = ReleaseDrafter(component, release, self._workspace.catalog, self._downloads)
        draft, before, after = drafter.write(self._index)
        workspace, resolutions = self._with_copy()
        moved = self._check(name, release.version, workspace, resolutions)
        assumptions = what_if.parse_assumptions([f"{name}=={release.version}"], workspace.catalog)
        fits = what_if.fitting(assumptions, workspace.catalog)
        if not fits.resolutions and not fits.undecided:
            # What it recommends, such as torchvision, often has its release some days later
            catalog = _without_recommendations(name, workspace.catalog)
            fits = what_if.resolve_on_bases(assumptions, catalog)
            draft.check("no known release of a component that it recommends fits it")
        bases = list(dict.fromkeys(resolution.base.name for resolution in fits.resolutions))
        earlier_bases = self._bases_of(name, drafter.before)
        if lost := [base for base in earlier_bases if base not in (*bases, *fits.undecided)]:
            draft.check(f"it does not resolve on {format_names(lost)}, where {drafter.before} does")
        if fits.undecided:
            draft.check(f"it is not known whether it resolves on {format_names(fits.undecided)}")
        earlier = set(_concerning(name, drafter.before, workspace.catalog))
        for line in _concerning(name, release.version, workspace.catalog):
            if line not in earlier:
                draft.check(line)
        if component.upstream and component.upstream.notes:
            address = component.upstream.notes.replace(VERSION, release.version)
            draft.check(f"read its release notes: {address}")
        self._workspace, self._resolutions = workspace, resolutions
        return ReleaseProposal(
            name,
            release.version,
            release.date,
            drafter.before,
            tuple(draft.evidence),
            tuple(draft.checks),
            _changed_lines(before, after),
            moved,
            tuple(bases),
        )

    def _bases_of(self, name: str, version: str) -> list[str]:
        """Return the bases on which a known release resolves."""
        assumptions = what_if.parse_assumptions([f"{name}=={version}"], self._workspace.catalog)
        fits = what_if.fitting(assumptions, self._workspace.catalog)
        return list(dict.fromkeys(resolution.base.name for resolution in fits.resolutions))

    def _with_copy(self) -> tuple[Workspace, dict[str, Resolution]]:
        """Return the workspace with the copies in place of the components. Raises RecipeError."""
        roots = (*(root for root in self._workspace.project.recipe_roots if root != self._root), self._root)
        project = replace(self._workspace.project, recipe_roots=roots)
        catalog = load_catalog(roots, Problems(), self._read)
        known = {broken.name for broken in self._workspace.catalog.broken}
        if mistakes := [
            mistake for broken in catalog.broken if broken.name not in known for mistake in broken.mistakes
        ]:
            raise RecipeError.of(*mistakes)
        recipes = read_recipes(roots, catalog, project=project.root, refusal_of=conflict_text)
        workspace = replace(self._workspace, project=project, catalog=catalog, recipes=recipes.by_name)
        return workspace, _resolutions(workspace)

    def _read(self, directory: Path, problems: Problems) -> Component:
        """Read a component, unless it has not changed since it was read."""
        if component := self._components.get(directory):
            return component
        component = read_directory(directory, problems)
        if not problems:
            self._components[directory] = component
        return component

    def _check(
        self, name: str, version: str, workspace: Workspace, resolutions: dict[str, Resolution]
    ) -> tuple[str, ...]:
        """Return the images that contain the release now, after rendering them. Raises RecipeError."""
        # The others left a window, in which the release is
        families = {recipe.family for recipe in workspace.recipes.values()}
        if lost := sorted(
            image
            for image in self._resolutions.keys() - resolutions.keys()
            if image in workspace.recipes or self._workspace.recipes[image].family not in families
        ):
            raise UpstreamError(name, f"with {version} these images cannot be resolved: {format_names(lost)}")
        moved = [
            resolution
            for resolution in resolutions.values()
            if any((choice.name, choice.version) == (name, version) for choice in resolution.all_choices)
        ]
        if moved:
            dockerfile.render(plan_resolutions(workspace, moved), workspace.templates)
        return tuple(resolution.recipe.name for resolution in moved)


def _reasons(version: str, error: BakehouseError) -> Iterator[str]:
    for diagnostic in error.diagnostics:
        yield f"{version}: {diagnostic.message}"
        yield from (reason.text for reason in diagnostic.reasons)
        yield from diagnostic.tail


def _resolutions(workspace: Workspace) -> dict[str, Resolution]:
    """Return the resolutions of all images that can be resolved."""
    resolutions = {}
    for name, recipe in workspace.recipes.items():
        # Also a lock of another component that is missing must not stop the update
        with contextlib.suppress(Unsatisfiable, RecipeError):
            resolutions[name] = resolve(recipe, workspace.catalog)
    return resolutions


def _without_recommendations(name: str, catalog: Catalog) -> Catalog:
    component = catalog.components[name]
    releases = tuple(
        replace(
            release,
            variants=tuple(
                replace(variant, spec=replace(variant.spec, recommends=())) for variant in release.variants
            ),
        )
        for release in component.releases
    )
    return Catalog({**catalog.components, name: replace(component, releases=releases)})


def _concerning(name: str, version: str, catalog: Catalog) -> Iterator[str]:
    """Yield the known conflicts that a release takes part in, and the components that exclude it."""
    [release] = [release for release in catalog.components[name].releases if release.version == version]
    provided: dict[str, set[str]] = {name: {version}}
    for variant in release.variants:
        for own, value in variant.spec.provides.items():
            provided.setdefault(own, set()).add(value)
    for own, versions in provided.items():
        other = catalog.components.get(own)
        if own != name and other and other.upstream:
            for skipped in versions & other.upstream.skip.keys():
                reason = other.upstream.skip[skipped]
                yield f"it provides {own} {skipped}, which the catalogue leaves out: {reason}"
    for component in (other for other in catalog.components.values() if other.name != name):
        newest = component.releases[0]
        owner = f"{component.name} {newest.version}"
        for spec in (variant.spec for variant in newest.variants):
            for conflict in spec.conflicts:
                concerned = [part for part in conflict.parts if part.name in provided]
                if (
                    concerned
                    and not conflict.content
                    and all(_allows_any(requirement, provided) for requirement in concerned)
                ):
                    parts = " and ".join(f"{part.name} {part.specifier or '*'}" for part in conflict.parts)
                    yield f"known conflict of {owner} with {parts}: {conflict.reason}"
            for requirement in (*spec.requires, *spec.constraints):
                if requirement.name == name and not requirement.allows(version):
                    yield f"{owner} excludes it: it needs {name} {requirement.specifier}"


def _allows_any(requirement: Requirement, provided: Mapping[str, set[str]]) -> bool:
    return any(requirement.allows(version) for version in provided[requirement.name])


def _changed_lines(before: str, after: str) -> str:
    lines = difflib.ndiff(before.splitlines(keepends=True), after.splitlines(keepends=True))
    return "".join(line for line in lines if line.startswith(("+ ", "- ")))


def text(updates: Iterable[ComponentUpdate], *, written: bool) -> str:
    """Format the proposals, and the state of the other components."""
    updates = tuple(updates)
    blocks = [_proposal_text(proposal) for update in updates for proposal in update.proposals]
    if not written and blocks:
        blocks.append("nothing was written; add `--write` to write these entries\n")
    blocks += [_by_hand_text(update) for update in updates if update.by_hand]
    remarks = [f"{update.component.name}: {remark}\n" for update in updates for remark in update.remarks]
    current = [
        update.component.name
        for update in updates
        if not (update.proposals or update.by_hand or update.failures) and update.component.has_upstream
    ]
    if current:
        remarks.append(f"no new release: {', '.join(current)}\n")
    unchecked: dict[str, list[str]] = {}
    for update in updates:
        if not update.component.has_upstream:
            unchecked.setdefault(_why_unchecked(update.component), []).append(update.component.name)
    rows = [("not checked", ", ".join(names), reason) for reason, names in unchecked.items()]
    if rows or remarks:
        blocks.append("".join(remarks) + format_table(rows, max_width=40))
    return "\n".join(blocks)


def as_json(components: Iterable[ComponentUpdate]) -> list[dict[str, Any]]:
    """Return for each component its proposed releases, or the reason why it was not checked."""
    return [
        {
            "component": update.component.name,
            "upstream": update.component.upstream.kind if update.component.upstream else None,
            "remarks": list(update.remarks),
            "failures": [
                text
                for failure in update.failures
                for diagnostic in failure.diagnostics
                for text in [reason.text for reason in diagnostic.reasons] or [diagnostic.message]
            ],
            "by_hand": [
                {"version": release.version, "day": release.date or None, "provides": dict(release.provides)}
                for release in update.by_hand
            ],
            "releases": [
                {
                    "version": proposal.version,
                    "day": proposal.day or None,
                    "before": proposal.before,
                    "evidence": [asdict(fact) for fact in proposal.evidence],
                    "checks": list(proposal.checks),
                    "diff": proposal.diff,
                    "images": list(proposal.moved),
                    "bases": list(proposal.bases),
                }
                for proposal in update.proposals
            ],
        }
        for update in components
    ]


def _why_unchecked(component: Component) -> str:
    return component.upstream.address if component.upstream else "it has no `upstream`"


def _proposal_text(proposal: ReleaseProposal) -> str:
    """Return a release with its entry, its evidence and what is left to check."""
    day = f", released on {proposal.day}" if proposal.day else ""
    moved = _shortened(proposal.moved) or "none would change"
    evidence = format_table(
        ((evidence.field, evidence.value, evidence.source) for evidence in proposal.evidence),
        indent="  ",
        max_width=40,
    )
    checks = "".join(f"  check: {line}\n" for line in proposal.checks)
    heading = f"{proposal.component} {proposal.version}{day}; made from {proposal.before}\n"
    images = f"  resolves on: {', '.join(proposal.bases)}\n  images: {moved}\n"
    return f"{heading}{proposal.diff}{evidence}{checks}{images}"


def _by_hand_text(update: ComponentUpdate) -> str:
    """Return the new releases of a component without entries, and what upstream states about them."""
    assert update.component.upstream
    lines = []
    for release in update.by_hand:
        day = f", released on {release.date}" if release.date else ""
        lines.append(f"{update.component.name} {release.version}{day}; write its entry by hand\n")
        stated = (
            (name, version, update.component.upstream.address) for name, version in release.provides.items()
        )
        lines.append(format_table(stated, indent="  ", max_width=40))
    return "".join([*lines, f"  reason: {update.component.upstream.by_hand}\n"])


def _shortened(names: Sequence[str]) -> str:
    rest = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {format_count(rest, 'other')}" if rest > 0 else "")

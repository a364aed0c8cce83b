"""The tasks `lock` and `lock --check`: checksums, Python packages and Debian packages of images."""

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TypeVar

from bakehouse.catalog import cache, project
from bakehouse.catalog.base_contents import read_contents
from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.component import Artifact, Component, VariantSpec
from bakehouse.catalog.pins import PinsFile
from bakehouse.catalog.python_lock import (
    Lock,
    Package,
    load_lock,
    locked_sums,
    normal_name,
    preferred_packages,
)
from bakehouse.catalog.recipe import Recipe, read_recipes
from bakehouse.engine import daemon_info
from bakehouse.engine.buildkit_events import Event
from bakehouse.errors import BakehouseError, BuildError, Diagnostic, Problems, RecipeError, StaleError
from bakehouse.fetch import pip_config
from bakehouse.fetch.connection import bundle_of
from bakehouse.lock import (
    apt_base_image,
    apt_suite,
    base_contents,
    build_backend,
    checksums,
    drift,
    index_check,
    vendor_images,
)
from bakehouse.lock import python as pylock
from bakehouse.lock.checksums import Pinned, PinSources
from bakehouse.lock.drift import Drift, DriftKind
from bakehouse.lock.recipe_lock import questionable_packages
from bakehouse.lock.requirements_locks import RequirementsScope, lock_requirements
from bakehouse.lock.selection import LockSelection, select_locked
from bakehouse.plan.workspace import (
    Workspace,
    conflict_text,
    is_own,
    leave_out,
    own_recipes,
    resolve_all,
    without_affected,
)
from bakehouse.resolve.candidate import Candidate
from bakehouse.resolve.resolver import Resolution, Unsatisfiable, resolve
from bakehouse.util.file_lock import exclusive
from bakehouse.util.files import write_whole
from bakehouse.util.format import format_count, version_change
from bakehouse.util.terminal import Reporter

OnEvent = Callable[[Event], None]
T = TypeVar("T")


def _ignore(event: Event) -> None:
    """Ignore an event of a build."""


@dataclass(frozen=True, slots=True)
class LockScope:
    """Locked versions that may change although they fit."""

    upgrade: bool = False
    """Lock the whole selection again, at the newest versions that fit. Names may also be Debian packages."""
    only_python: Collection[str] | None = None
    """Limit an upgrade to Python packages with these normalized names and to the named Debian packages.

    All others keep their versions where these fit. None does not limit an upgrade.
    """

    @property
    def is_all(self) -> bool:
        """Return whether the whole selection is locked again."""
        return self.upgrade and self.only_python is None

    @property
    def python(self) -> Collection[str] | None:
        """Names of the Python packages to lock again; None means all."""
        return self.only_python if self.upgrade else ()


_NOTHING = ("everything is locked",)
_MISSING = LockScope()
"""Only missing and outdated locks."""


def run(
    start: Path,
    patterns: Sequence[str],
    report: Reporter,
    on_event: OnEvent = _ignore,
    failures: list[BakehouseError] | None = None,
    changes: list[str] | None = None,
    scope: LockScope = _MISSING,
) -> tuple[str, ...]:
    """Lock the images and components that names or globs select; return a line for each change.

    Missing locks and locks of changed requirements are made, and missing digests of vendor bases, checksums
    and sizes of files are recorded. `scope` selects the versions to lock again. `changes` also receives the
    lines, including those before an error. `on_event` receives the build events of vendor bases, `failures`
    the errors of images that are left out. Raises BuildError at the end for digests and files that vendors do
    not provide.
    """
    settings = project.find(start)
    # Two concurrent runs would overwrite each other's results
    waiting = "waiting for another `bake lock` to end"
    with exclusive(settings.state / "locks" / "lock", lambda: report(waiting)):

        def lock() -> tuple[str, ...]:
            workspace = unlocked_workspace(start, failures)
            return _run(workspace, patterns, report, on_event, [] if changes is None else changes, scope)

        loaded = cache.load(settings.recipe_roots, settings.root, conflict_text)
        # Without an engine, some files are not locked, which each run says
        has_engine = isinstance(daemon_info.probe(), daemon_info.Daemon)
        if scope != _MISSING or not loaded.kept or not has_engine:
            return lock()
        of = (loaded.kept.digest, *patterns, repr(pip_config.read()))
        return cache.derived("locked", of, lock, (), is_kept=lambda lines: lines == _NOTHING and not failures)


def _run(
    workspace: Workspace,
    patterns: Sequence[str],
    report: Reporter,
    on_event: OnEvent,
    changes: list[str],
    scope: LockScope,
) -> tuple[str, ...]:
    settings = workspace.project
    unchanged = len(changes)
    errors: list[BakehouseError] = []
    selection = select_locked(workspace, patterns, upgrade=scope.upgrade)
    existing = {*workspace.recipes, *(name for broken in workspace.broken for name in broken.names)}
    changes += _lock_variants(
        drift.candidates(selection.components), workspace, report, on_event, errors, upgrade=scope.python
    )
    workspace, selection = _satisfiable(workspace, selection, selection.recipes)
    chosen = (
        candidate
        for candidate in drift.chosen(workspace, selection.recipes)
        if candidate.component not in selection.components
        and is_own(workspace, candidate.component.location.path)
    )
    changes += _lock_variants(chosen, workspace, report, on_event, errors)
    problems = Problems()
    changes += pin(workspace, selection.recipes, report, problems, selection.components, upgrade=scope.is_all)
    if problems:
        errors.append(BuildError.of(*problems.all))
    if len(changes) > unchanged or errors:
        # Packages on a base are recorded for one digest of it
        workspace = replace(workspace, catalog=cache.read_catalog(settings.recipe_roots))
        # A new lock can contradict the locks of other components
        workspace, selection = _satisfiable(workspace, selection, workspace.recipes.values())
    named = selection.recipes if patterns else ()
    with _collected(errors):
        changes += base_contents.record(workspace, selection.recipes, named, report, on_event)
    outcome = lock_requirements(
        workspace,
        RequirementsScope(selection.recipes, existing, scope.python),
        _index(workspace, "3.11", report, on_event),
        partial(_contained, workspace),
        report,
    )
    changes += outcome.lines
    errors += outcome.failures
    is_whole = scope.is_all and selection.is_all
    upgraded = None if is_whole else selection.packages if scope.upgrade else ()
    recipes = selection.recipes
    if upgraded is None or upgraded:
        recipes = tuple(workspace.recipes.values())
    # A name of a package selects no images
    suites = apt_suite.suites_of(workspace, selection.recipes or own_recipes(workspace) or recipes)
    with _collected(errors):
        changes += apt_suite.lock(workspace, recipes, report, suites=suites, upgrade=upgraded)
    with _collected(errors):
        changes += apt_base_image.lock(workspace, recipes, report, on_event, named=named, upgrade=upgraded)
    if errors:
        diagnostics = dict.fromkeys(diagnostic for error in errors for diagnostic in error.diagnostics)
        raise type(min(errors, key=lambda error: error.exit_code)).of(*diagnostics)
    return tuple(changes) or _NOTHING


@contextlib.contextmanager
def _collected(errors: list[BakehouseError]) -> Iterator[None]:
    """Collect the error of a step, so that the others go on."""
    try:
        yield
    except BakehouseError as error:
        errors.append(error)


def _contained(workspace: Workspace, recipe: Recipe) -> tuple[Package, ...] | None:
    """Return the recorded Python packages of an image's base; None if they are not known."""
    base = resolve(recipe, workspace.catalog).base
    if not base.spec.base or "python" not in base.candidate.provided:
        return ()
    digest = base.spec.base.digest
    contents = read_contents(workspace.project.recipe_roots, digest) if digest else None
    return contents.packages if contents else None


def pin(
    workspace: Workspace,
    recipes: Sequence[Recipe],
    report: Reporter,
    problems: Problems,
    components: Iterable[Component] = (),
    *,
    upgrade: bool = False,
) -> Iterator[str]:
    """Record unknown digests of vendor bases and checksums of files; yield a line for each.

    The files are those of images, and of all variants of `components`. Those of Bakehouse's components are
    written to the pins of the project. `upgrade` also records the digests of tags that have moved.
    Digests and files that vendors do not provide are added to `problems`.
    """
    settings = workspace.project
    pins = PinsFile(settings.recipe_roots[-1])
    images = vendor_images.vendor_images(workspace, recipes)
    yield from vendor_images.pin(images, settings, pins, problems, report, upgrade=upgrade)

    shared_locations = _shared(workspace.catalog, lambda artifact: artifact.location)

    def write(pinned: Pinned, shift: int) -> bool:
        location = pinned.artifact.location
        if is_own(workspace, location.path) and location not in shared_locations:
            return checksums.write_pin(pinned, shift)
        pins.record_file(pinned.artifact, pinned.sha256, pinned.bytes)
        return False

    try:
        pinned = checksums.pin(
            list(_open_artifacts([*_chosen(recipes, workspace), *drift.candidates(components)], workspace)),
            PinSources(
                mirrors=[Path(mirror) for mirror in settings.mirrors if Path(mirror).is_dir()],
                cache=settings.cache,
                state=settings.state,
                index=_index(workspace, "3.11", report, _ignore),
                shared_names=_shared(workspace.catalog, lambda artifact: artifact.file),
            ),
            write,
            report,
        )
        yield from (artifact.line for artifact in pinned)
    except BuildError as error:
        problems.extend(error.diagnostics)


def _shared(catalog: Catalog, key: Callable[[Artifact], T]) -> frozenset[T]:
    """Return the keys that several artifacts have, such as a file name, or `unknown` in a matrix."""
    names: dict[T, set[str]] = {}
    for component in catalog.components.values():
        for artifact in (artifact for spec in component.specs for artifact in spec.artifacts):
            names.setdefault(key(artifact), set()).add(artifact.pin_name)
    return frozenset(name for name, sources in names.items() if len(sources) > 1)


def check_locks(
    start: Path,
    patterns: Sequence[str],
    report: Reporter,
    on_event: OnEvent = _ignore,
    failures: list[BakehouseError] | None = None,
) -> tuple[Drift, ...]:
    """Compare locks of images and components with their requirements, the mirrors and the package index.

    `failures` receives the errors of images that are left out.
    """
    workspace = unlocked_workspace(start, failures)
    selection = select_locked(workspace, patterns)
    drifts = [*drift.open_locks(drift.candidates(selection.components))]
    if _has_unlocked(drifts):
        # Images cannot be resolved without these locks
        return tuple(drifts)
    workspace, selection = _satisfiable(workspace, selection, selection.recipes)
    files = drift.unknown_checksums(drift.candidates(selection.components))
    points = chain(drift.open_points(workspace, selection.recipes), files)
    drifts += (point for point in dict.fromkeys(points) if point not in drifts)
    drifts += _questionable_packages(workspace, selection.recipes, drifts)
    images = vendor_images.vendor_images(workspace, selection.recipes)
    drifts += vendor_images.drift(images, workspace.project, report)
    if not _has_unlocked(drifts):
        drifts += drift.newer_packages(workspace, selection.recipes, report, on_event)
    chosen = [*drift.chosen(workspace, selection.recipes)]
    # A project cannot update the locks of Bakehouse's components
    own = (candidate for candidate in chosen if is_own(workspace, candidate.component.location.path))
    candidates = (*own, *drift.candidates(selection.components))
    drifts += index_check.pinned_files((*chosen, *candidates), workspace.project.ca)
    # Locks that are open fail anyway, and may be those of other requirements
    is_open = {item.where for item in drifts if item.kind.is_open}
    compared = [recipe for recipe in selection.recipes if recipe.name not in is_open]
    locks = locked_files(workspace, (resolve(recipe, workspace.catalog) for recipe in compared), candidates)
    pip = pip_config.read()
    if locks:
        drifts += index_check.differences(locks, bundle_of(workspace.project.ca, pip), report)
    drifts += drift.newer_wheels(candidates, partial(_resolve_now, workspace, report, on_event), report)
    return tuple(drifts)


def locked_files(
    workspace: Workspace, resolutions: Iterable[Resolution], candidates: Iterable[Candidate]
) -> tuple[index_check.LockedFiles, ...]:
    """Return the Python files in the locks of requirements, and in those of the project's components."""
    pip = pip_config.read()
    locks = []
    for resolution in resolutions:
        requirements = resolution.recipe.requirements
        if requirements and requirements.lock.is_file():
            locks.append(index_check.of_requirements(resolution, requirements.read(), pip))
    own = (item for item in candidates if is_own(workspace, item.component.location.path))
    components = {item.spec.lock.path: item for item in own if item.spec.lock}
    locks += filter(None, (index_check.of_component(item, pip) for item in components.values()))
    return tuple(lock for lock in locks if lock.packages)


def require_known_hosts(workspace: Workspace, resolutions: Sequence[Resolution]) -> None:
    """Raise RecipeError for locked files from hosts that neither the project's sources nor indexes name."""
    chosen = (choice.candidate for resolution in resolutions for choice in resolution.all_choices)
    problems = Problems()
    problems.extend(index_check.foreign_hosts(locked_files(workspace, resolutions, chosen)))
    problems.extend(index_check.foreign_sites(workspace))
    problems.raise_as(RecipeError)


def _questionable_packages(
    workspace: Workspace, recipes: Iterable[Recipe], drifts: Iterable[Drift]
) -> list[Drift]:
    """Return locked packages that images probably do not need.

    A lock that contradicts what the components of its recipe install is a failure.
    """
    open_names = {item.where for item in drifts if item.kind.is_open}
    problems = Problems()
    locked = []
    for recipe in recipes:
        if recipe.requirements and recipe.name not in open_names:
            packages = load_lock(recipe.requirements.lock, recipe.location, problems, recipe.name)
            content = replace(recipe.content, packages=packages)
            locked.append(replace(recipe, content=content))
    problems.raise_as(RecipeError)
    return [
        Drift(DriftKind.QUESTIONABLE, resolution.recipe.name, text)
        for resolution in resolve_all(workspace, locked)
        for text in questionable_packages(
            resolution,
            [package for package in resolution.recipe.content.packages if package.file],
            # The lock does not record which package requires which
            lambda _: True,
        )
    ]


def _has_unlocked(drifts: Iterable[Drift]) -> bool:
    return any(item.kind is DriftKind.NOT_LOCKED for item in drifts)


def require_locked(drifts: Sequence[Drift]) -> None:
    """Raise StaleError for differences that a release must not have, and for tags that have moved.

    Raises BuildError if there are only tags that cannot be read.
    """
    errors = [item.error for item in drifts if item.error]
    if count := sum(item.kind.is_open for item in drifts):
        message = f"{count} {'item is' if count == 1 else 'items are'} not locked"
        errors.append(Diagnostic(message, hint="run `bake lock` and commit the result"))
    if errors:
        is_stale = count or any(item.kind in (DriftKind.MOVED, DriftKind.FOREIGN) for item in drifts)
        raise (StaleError if is_stale else BuildError).of(*errors)


def _satisfiable(
    workspace: Workspace, selection: LockSelection, recipes: Iterable[Recipe]
) -> tuple[Workspace, LockSelection]:
    """Leave unsatisfiable images out of the workspace and the selection; those of `recipes` are failures."""
    selected_names = {recipe.name for recipe in selection.recipes}
    known = _known_to_fit(workspace) - selected_names
    fitting: dict[str, Recipe] = {}
    unlocked: dict[str, RecipeError] = {}
    for name, recipe in workspace.recipes.items():
        try:
            if name not in known:
                resolve(recipe, workspace.catalog)
        except Unsatisfiable:
            continue
        except RecipeError as error:
            # A component that it needs could not be locked
            unlocked[name] = error
            continue
        fitting[name] = recipe
    for name in selected_names & unlocked.keys():
        leave_out(workspace, unlocked[name])
    skipped = known | unlocked.keys()
    resolve_all(workspace, [recipe for recipe in recipes if recipe.name not in skipped])
    selected = tuple(recipe for recipe in selection.recipes if recipe.name in fitting)
    return replace(workspace, recipes=fitting), replace(selection, recipes=selected)


def _known_to_fit(workspace: Workspace) -> frozenset[str]:
    """Return the names of Bakehouse's images, unless the project has components that can change them."""
    if any(is_own(workspace, item.location.path) for item in workspace.catalog.components.values()):
        return frozenset()
    recipes = workspace.recipes.items()
    return frozenset(name for name, recipe in recipes if not is_own(workspace, recipe.location.path))


def _resolve_now(
    workspace: Workspace,
    report: Reporter,
    on_event: OnEvent,
    lock: Lock,
    spec: VariantSpec,
    preferred: Iterable[Package] = (),
) -> tuple[Package, ...]:
    """Resolve requirements without wheels of the component, and without what it requires.

    A requirement such as `accelerate` would add another PyTorch to the one that the component requires.
    Wheels of build tools, such as setuptools, are not in the image.
    """
    index = _index(workspace, drift.python_of(spec) or "3.11", report, on_event)
    index = replace(index, locked=locked_sums(lock.path), platform=lock.platform)
    components = workspace.catalog.components
    required = (components[item.name] for item in spec.requires if item.name in components)
    specs = (candidate.spec for candidate in drift.candidates(required))
    artifacts = chain(spec.artifacts, *(other.artifacts for other in specs))
    wheels = {artifact.file.split("-")[0] for artifact in artifacts if artifact.name == "wheel"}
    # Components provide some under the name of their package, such as `triton`
    others = wheels.union(item.name for item in spec.requires if item.name not in components)
    return pylock.resolve(lock.requirements, (), index, without=sorted(others), preferred=preferred)


def unlocked_workspace(start: Path, failures: list[BakehouseError] | None = None) -> Workspace:
    """Return a project whose requirements may have a missing or outdated lock."""
    settings = project.find(start)
    catalog = cache.read_catalog(settings.recipe_roots)
    roots, root = settings.recipe_roots, settings.root
    recipes = read_recipes(roots, catalog, locked=False, project=root, refusal_of=conflict_text)
    recipes = without_affected(recipes, catalog)
    left_out = [] if failures is None else failures
    return Workspace(settings, catalog, recipes.by_name, {}, recipes.broken, left_out)


def _lock_variants(
    candidates: Iterable[Candidate],
    workspace: Workspace,
    report: Reporter,
    on_event: OnEvent,
    errors: list[BakehouseError],
    *,
    upgrade: Collection[str] | None = (),
) -> Iterator[str]:
    """Make the missing and outdated locks of variants, from versions that other components lock.

    `upgrade` names packages to lock again; None means all. `errors` receives the failures.
    """
    seen = set()
    for candidate in candidates:
        lock = candidate.spec.lock
        if lock is None or not lock.requirements or lock.path in seen:
            continue
        seen.add(lock.path)
        with _collected(errors):
            yield from _lock_variant(candidate, lock, workspace, report, on_event, upgrade=upgrade)


def _lock_variant(
    candidate: Candidate,
    lock: Lock,
    workspace: Workspace,
    report: Reporter,
    on_event: OnEvent,
    *,
    upgrade: Collection[str] | None,
) -> Iterator[str]:
    name, python = candidate.component.name, drift.python_of(candidate.spec)
    if python is None:
        raise RecipeError(
            f"{name} {candidate.release.version} has requirements but does not pin a Python version",
            lock.named_at,
            hint='pin one, such as `requires: {python: "3.12"}`',
        )
    heading = lock.heading(python)
    is_older = lock.first_line != heading or not lock.is_readable
    is_conflict = is_older and lock.is_conflicted
    locked = preferred_packages(lock.path)
    has_upgrade = upgrade is None or any(normal_name(package.name) in upgrade for package in locked)
    if is_older or has_upgrade:
        report(f"{name}: locking {lock.path.name} for Python {python}")
        preferred: Iterable[Package] = ()
        if upgrade is not None:
            kept = (package for package in locked if normal_name(package.name) not in upgrade)
            is_kept = has_upgrade or is_conflict
            preferred = kept if is_kept else drift.locked_packages(workspace.catalog, python)
        files = _resolve_now(workspace, report, on_event, lock, candidate.spec, preferred)
        write_whole(lock.path, pylock.lock_text(heading, files))
        yield f"{lock.path.name}: {format_count(len(files), 'package')}"
        before = {normal_name(package.name): package.version for package in locked}
        after = {normal_name(file.name): file.version for file in files}
        for changed in sorted({*before, *after}) if before else ():
            if text := version_change(changed, before.get(changed), after.get(changed)):
                yield f"{lock.path.name}: {text}"


def _chosen(recipes: Iterable[Recipe], workspace: Workspace) -> Iterator[Candidate]:
    """Yield the parts of images, also their bases."""
    for recipe in recipes:
        yield from (choice.candidate for choice in resolve(recipe, workspace.catalog).all_choices)


def _open_artifacts(candidates: Iterable[Candidate], workspace: Workspace) -> Iterator[Artifact]:
    seen = set()
    for candidate in candidates:
        for artifact in candidate.spec.artifacts:
            is_owned = is_own(workspace, artifact.location.path)
            # Only a component of the project gets a missing size, in each place that describes the file
            is_open = artifact.sha256 is None or (is_owned and artifact.bytes is None)
            key = artifact.pin_name, artifact.location if is_owned else None
            if is_open and key not in seen:
                seen.add(key)
                yield artifact


def _index(workspace: Workspace, python: str, report: Reporter, on_event: OnEvent) -> pylock.Index:
    pip = pip_config.read()
    certificates = bundle_of(workspace.project.ca, pip)
    index = pylock.Index(pip, certificates, python, downloads=workspace.project.cache)
    return build_backend.index_with_backends(index, workspace, report, on_event)

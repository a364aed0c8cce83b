"""The task `lock` for requirements: one lock for all images that use a requirements file."""

import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from packaging.requirements import Requirement as Parsed

from bakehouse import __version__
from bakehouse.catalog.component import Requirement
from bakehouse.catalog.python_lock import Package, normal_name, preferred_packages
from bakehouse.catalog.recipe import Recipe
from bakehouse.catalog.requirements_file import Requirements
from bakehouse.catalog.requirements_lock import FOREIGN, LockState, RequirementsLock, read_lock, state_of
from bakehouse.errors import (
    BakehouseError,
    ConflictError,
    Diagnostic,
    Location,
    Problems,
    Reason,
    RecipeError,
    UndecidedError,
)
from bakehouse.fetch.pip_config import PipConfig
from bakehouse.fetch.sources import directory_of
from bakehouse.lock import drift
from bakehouse.lock import python as pylock
from bakehouse.lock.project_locks import check_python
from bakehouse.lock.recipe_lock import LockedImage, lock_image
from bakehouse.plan.workspace import Workspace, is_own
from bakehouse.resolve.resolver import Resolution, Unsatisfiable, resolve
from bakehouse.util.files import is_file, read_bytes, read_text, write_whole
from bakehouse.util.format import format_count, in_images, version_change
from bakehouse.util.hashing import bytes_digest, key_of
from bakehouse.util.json_reader import decode, parse_json
from bakehouse.util.terminal import Reporter


def inputs_key(
    resolution: Resolution,
    requirements: Requirements,
    contained: Iterable[Package],
    pip: PipConfig,
    lines: Sequence[str],
) -> str | None:
    """Return the key of all inputs of a lock and of its `lines`; None if some inputs are not known.

    The contents of local files, repositories and locks of other tools are not part of the key, except the
    list of the files of a `find-links` directory and the pages of locked packages in a local index.
    """
    if requirements.locks or requirements.options:
        return None
    if any(package.git or " @ " in package.text for package in requirements.packages):
        return None
    indexes = filter(None, (pip.index_url, *pip.extra_index_urls))
    listings = [
        *(_listing(place) for place in pip.find_links if not _is_remote(place)),
        *(_pages(index, _versions(lines)) for index in indexes if not _is_remote(index)),
    ]
    if None in listings:
        return None
    files = {choice.candidate.component.location.path for choice in resolution.all_choices}
    owned = (package for packages in resolution.owners.values() for package in packages)
    return key_of(
        __version__,
        requirements.digest,
        [bytes_digest(read_bytes(path)) for path in (resolution.recipe.location.path, *sorted(files))],
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


def _pages(index: str, names: Iterable[str]) -> list[str] | None:
    """Return the pages of packages in a local index; None if a link has no checksum of its file."""
    paths = (Path(directory_of(index) or index, name, "index.html") for name in names)
    pages = [read_text(path, errors="replace") if is_file(path) else "" for path in paths]
    return pages if all(page.lower().count("<a") == page.count("#sha256=") for page in pages) else None


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


_VERSION = re.compile(r"(?P<name>[^=\s]+)==(?P<version>\S+) --hash")
_MAX_NAMES = 2
_PYTORCH = "pytorch"

Contained = Callable[[Recipe], Iterable[Package] | None]
"""Returns the Python packages that the base of an image contains; None if they are not known."""


@dataclass(frozen=True)
class RequirementsScope:
    """The images to lock, and what may change."""

    recipes: Sequence[Recipe]
    """The selected images; others with the same requirements file are locked if their lock is outdated."""
    existing: Collection[str]
    """Names of all images, also of those with mistakes, whose locked packages stay."""
    upgrade: Collection[str] | None = ()
    """Packages to lock again in the selected images; None means all."""


@dataclass
class LockOutcome:
    """Lines about what changed, and the failures of images."""

    lines: list[str] = field(default_factory=list)
    failures: list[BakehouseError] = field(default_factory=list)


def lock_requirements(
    workspace: Workspace,
    scope: RequirementsScope,
    index: pylock.Index,
    contained: Contained,
    report: Reporter,
) -> LockOutcome:
    """Lock the requirements of images. The failure of an image does not stop the others."""
    outcome = LockOutcome()
    failures: dict[str, BakehouseError] = {}
    versions: list[tuple[str, str, str]] = []
    selected = {recipe.name for recipe in scope.recipes}
    recorded = load_keys(workspace.project.state)
    keys = dict(recorded)
    for path, recipes in _by_lock(workspace).items():
        if selected.isdisjoint(recipe.name for recipe in recipes):
            continue
        old = read_lock(path, [recipe.name for recipe in recipes])
        sums = {name: digest for name, digest in old.sums.items() if name in scope.existing}
        lines = {name: old.lines[name] for name in sums}
        locked: dict[str, LockedImage] = {}
        for recipe in recipes:
            assert recipe.requirements
            name = recipe.name
            try:
                requirements = recipe.requirements.read()
                state = state_of(path, name, *requirements.digests)
                if hint := FOREIGN.get(state):
                    raise RecipeError(f"`{path.name}` {state.value}", Location(path, 1, 1), hint=hint)
                is_current = state is LockState.CURRENT
                if name not in selected and is_current:
                    continue
                resolution = resolve(recipe, workspace.catalog)
                python = resolution.version_of("python")
                if python:
                    check_python(recipe.requirements.files, python, name)
                known = contained(recipe)
                packages = tuple(known or ())
                inputs = partial(inputs_key, resolution, requirements, packages, index.pip)
                upgrade = scope.upgrade if name in selected else ()
                key = inputs(old.lines[name]) if upgrade == () and is_current and name in lines else None
                if key and recorded.get(name) == key:
                    continue
                before = () if upgrade is None else _kept(preferred_packages(path, name), upgrade)
                image = lock_image(
                    resolution,
                    requirements,
                    index,
                    report,
                    before=before,
                    contained=packages,
                    catalog=workspace.catalog,
                )
                _refuse_other_builds(recipe, requirements, image, workspace)
            except ConflictError as error:
                # The base may contain what no index has
                failures[name] = error if known is not None else _undecided(recipe, resolution)
                continue
            except BakehouseError as error:
                failures[name] = error
                continue
            locked[name], sums[name], lines[name] = image, requirements.digest, image.lines
            if key := inputs(image.lines):
                keys[name] = key
        text = RequirementsLock(old.name, sums, lines).text
        if not locked or (is_file(path) and read_bytes(path) == text.encode()):
            continue
        write_whole(path, text)
        changes = [change for name in locked if name in old.lines for change in _changes(name, old, lines)]
        versions += changes
        new = {name: image for name, image in locked.items() if name not in old.lines}
        outcome.lines += _summary(path, new, is_shared=len(sums) > 1)
        if not new and not changes:
            outcome.lines.append(f"{path.name}: the same versions")
        outcome.lines += dict.fromkeys(
            f"{path.name}: {note}" for image in locked.values() for note in image.replacements
        )
        outcome.lines += _notes(locked)
    if keys != recorded:
        save_keys(keys, workspace.project.state)
    outcome.lines += _version_lines(versions)
    outcome.failures = list(merged_failures(failures))
    return outcome


def _undecided(recipe: Recipe, resolution: Resolution) -> UndecidedError:
    """Return the answer about requirements of which a base may contain the missing versions."""
    assert recipe.requirements
    base = resolution.base
    reason = Reason(f"the Python packages of {base.candidate} are not known", base.candidate.variant.location)
    return UndecidedError(
        f"it is not known whether the requirements of image `{recipe.name}` fit its base",
        recipe.requirements.files[0].location,
        reasons=(reason,),
        hint=f"run `bake lock {recipe.name}` where the base can be read",
    )


def _refuse_other_builds(
    recipe: Recipe, requirements: Requirements, image: LockedImage, workspace: Workspace
) -> None:
    """Raise ConflictError for packages that a component compiles against the image's PyTorch.

    The package index has one build of them, for one CUDA.
    """
    assert recipe.requirements
    problems = Problems()
    present = {choice.name for choice in resolve(recipe, workspace.catalog).all_choices}
    for name in image.names:
        component = workspace.catalog.components.get(name)
        if component is None or name in present or name in image.shared_names or _PYTORCH not in present:
            continue
        candidates = drift.candidates([component])
        if not any(item.name == _PYTORCH for each in candidates for item in each.spec.requires):
            continue
        lines = [line for line in requirements.packages if line.name == name]
        added = Requirement(name, "", recipe.location)
        try:
            resolution = resolve(replace(recipe, components=(*recipe.components, added)), workspace.catalog)
        except Unsatisfiable:
            continue
        version = resolution.version_of(name) or ""
        if not all(Parsed(line.text).specifier.contains(version, prereleases=True) for line in lines):
            continue
        place = lines[0].location if lines else recipe.requirements.files[0].location
        message = f"`{name}` of the package index may be built for another PyTorch than image `{recipe.name}`"
        reason = Reason(f"component `{name}` {version} is built for the PyTorch of the image")
        hint = f'add `{name}: "{version}"` to `components` of {recipe.location.path.name}'
        problems.add(Diagnostic(message, place, reasons=(reason,), hint=hint))
    problems.raise_as(ConflictError)


def _by_lock(workspace: Workspace) -> Mapping[Path, list[Recipe]]:
    """Return the images with requirements of the project, by lock."""
    recipes: dict[Path, list[Recipe]] = {}
    for _, recipe in sorted(workspace.recipes.items()):
        if recipe.requirements and is_own(workspace, recipe.requirements.path):
            recipes.setdefault(Path(os.path.normpath(recipe.requirements.lock)), []).append(recipe)
    return recipes


def _kept(packages: Iterable[Package], upgrade: Collection[str]) -> tuple[Package, ...]:
    return tuple(package for package in packages if normal_name(package.name) not in upgrade)


def _changes(
    image: str, old: RequirementsLock, lines: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[str, str, str]]:
    """Yield the image with each package whose version changed: name, and a text without the image."""
    before, after = _versions(old.lines[image]), _versions(lines[image])
    for name in sorted({*before, *after}):
        if text := version_change(name, before.get(name), after.get(name)):
            yield name, text, image


def _versions(lines: Iterable[str]) -> dict[str, str]:
    matches = filter(None, map(_VERSION.match, lines))
    return {match["name"]: match["version"] for match in matches}


def _version_lines(changes: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    """Yield one line for each change, with the images that have it."""
    images: dict[tuple[str, str], list[str]] = {}
    for name, text, image in changes:
        images.setdefault((name, text), []).append(image)
    for (_, text), names in sorted(images.items()):
        yield f"{text}{in_images(names)}"


def _summary(path: Path, new: Mapping[str, LockedImage], *, is_shared: bool) -> Iterator[str]:
    """Yield a line about images that had no lock."""
    if not new:
        return
    names = {name for image in new.values() for name in image.names}
    shared = {name for image in new.values() for name in image.shared_names}
    source = f", {len(shared)} of them from components of the image" if shared else ""
    where = ""
    if is_shared:
        where = f" for {next(iter(new)) if len(new) == 1 else format_count(len(new), 'image')}"
    yield f"{path.name}: {format_count(len(names), 'package')}{where}{source}"


def _notes(locked: Mapping[str, LockedImage]) -> Iterator[str]:
    """Yield each note once, with the images that it is about."""
    images: dict[str, list[str]] = {}
    for name, image in locked.items():
        for note in image.notes:
            images.setdefault(note, []).append(name)
    for note, names in images.items():
        yield f"{_subject(names)}: {note}"


def _subject(names: Sequence[str]) -> str:
    if len(names) <= _MAX_NAMES:
        return " and ".join(names)
    return f"{names[0]} and {len(names) - 1} more images"


def merged_failures(failures: Mapping[str, BakehouseError]) -> Iterator[BakehouseError]:
    """Yield the failures of images, by name. Images with the same mistake share one diagnostic."""
    images: dict[tuple[type[BakehouseError], str, Location | None], list[str]] = {}
    first: dict[tuple[type[BakehouseError], str, Location | None], Diagnostic] = {}
    for name, error in failures.items():
        for diagnostic in error.diagnostics:
            key = type(error), diagnostic.message.replace(f"image `{name}`", "image"), diagnostic.location
            images.setdefault(key, []).append(name)
            first.setdefault(key, diagnostic)
    for key, diagnostic in first.items():
        name, *others = images[key]
        message = diagnostic.message
        if others:
            more = format_count(len(others), "more image")
            message = message.replace(f"image `{name}`", f"image `{name}` and {more}")
        yield key[0].of(replace(diagnostic, message=message))

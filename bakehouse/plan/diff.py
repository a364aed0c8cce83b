"""Comparison of two resolutions: components, packages and all other values of the recipes."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Protocol

from bakehouse.catalog import git_history
from bakehouse.catalog.apt_lock import Deb
from bakehouse.catalog.base_image_lock import AptLocks
from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.project import ProjectSettings
from bakehouse.catalog.python_lock import Package, normal_name
from bakehouse.catalog.recipe import Recipe, RefusalOf
from bakehouse.errors import Problems, UsageError
from bakehouse.plan.apt_packages import apt_steps
from bakehouse.plan.recipe_diff import RecipeDifference, recipe_differences
from bakehouse.resolve.resolver import Choice, Resolution, Unsatisfiable, resolve
from bakehouse.util.format import format_bytes, format_count
from bakehouse.util.suggest import suggestion
from bakehouse.util.value_change import ValueChange

PYTHON = "Python"
_KINDS = (PYTHON, "distribution", "build-stage")
"""Kinds of packages. `build-stage` packages are distribution packages that only build stages install."""
Locks = tuple[AptLocks, AptLocks]
"""Locks of distribution packages for each of two resolutions."""
NO_LOCKS: Locks = (AptLocks({}, {}), AptLocks({}, {}))
_MAX_PACKAGES = 12
_MAX_IMAGES = 10
_VERBS = {"+": "added", "-": "removed", "~": ""}
_SHORT = len("sha256:") + 12
"""Length of a digest in texts."""


@dataclass(frozen=True, slots=True)
class ComponentDifference:
    """One component in two images; None for an image that lacks it."""

    name: str
    before: Choice | None
    after: Choice | None

    @property
    def version(self) -> ValueChange:
        """The version and variant of both."""
        return ValueChange(self.name, _version_text(self.before), _version_text(self.after))

    @property
    def is_any(self) -> bool:
        """Return whether the component differs."""
        return self.version.before != self.version.after or any(self.provided)

    @property
    def provided(self) -> Iterator[str]:
        """The provided versions that differ, if both images have the component."""
        if not (self.before and self.after):
            return
        first, second = self.before.spec.provides, self.after.spec.provides
        for name in dict.fromkeys([*first, *second]):
            if first.get(name) != second.get(name):
                yield f"{name} {first.get(name, 'none')} → {second.get(name, 'none')}"


@dataclass(frozen=True, slots=True)
class PackageChanges:
    """The packages of one kind that differ."""

    kind: str
    """`Python`, `distribution` or `build-stage`."""
    changes: tuple[ValueChange, ...]
    bytes_before: int
    """Download size of all packages of the kind."""
    bytes_after: int


def differences(before: Resolution, after: Resolution) -> tuple[ComponentDifference, ...]:
    """Return the components that differ, in layer order; removed ones come last."""
    first, second = _by_name(before), _by_name(after)
    names = [*second, *(name for name in first if name not in second)]
    compared = (ComponentDifference(name, first.get(name), second.get(name)) for name in names)
    return tuple(difference for difference in compared if difference.is_any)


def recipe_changes(before: Resolution, after: Resolution) -> tuple[RecipeDifference, ...]:
    """Return the differences of the recipes, and of the pins of components that both have.

    Differences that concern a differing component are left out.
    """
    names = {difference.name for difference in differences(before, after)}
    changes = (
        change
        for change in recipe_differences(before.recipe, after.recipe)
        if change.key not in ("base", "components", "variants") or change.name not in names
    )
    first, second = _pins(before, names), _pins(after, names)
    moved = [name for name in {**first, **second} if first.get(name) != second.get(name)]
    pins = (
        RecipeDifference("pin", name, _short(first.get(name)), _short(second.get(name))) for name in moved
    )
    return (*changes, *pins)


def _short(digest: str | None) -> str | None:
    return digest and digest[:_SHORT]


def _pins(resolution: Resolution, without: Collection[str]) -> dict[str, str]:
    """Return the digests of vendor bases and the checksums of files, except those of some components."""
    pins: dict[str, str] = {}
    for choice in (choice for choice in resolution.all_choices if choice.name not in without):
        if (source := choice.spec.base) and source.reference:
            name, _, digest = source.build_reference.partition("@")
            pins |= {source.reference: source.digest or "", name: digest}
        pins |= {file.file: f"sha256:{file.sha256}" for file in choice.spec.artifacts if file.sha256}
    return {name: value for name, value in pins.items() if value}


def compare(before: Resolution, after: Resolution, locks: Locks = NO_LOCKS, unread: str = "") -> str:
    """Return the differences as text; empty if there are none. `locks` are those of each resolution.

    `unread` says why the requirements of one side cannot be read. Their packages are not known then.
    """
    sizes, new_sizes = _wheel_bytes(before), _wheel_bytes(after)
    rows = [
        (
            _difference_text(difference),
            tuple(difference.provided),
            _size_change(sizes.get(difference.name, 0), new_sizes.get(difference.name, 0)),
        )
        for difference in differences(before, after)
    ]
    width = max((len(text) for text, _, _ in rows), default=0)
    lines = []
    for text, provided, size in rows:
        lines.append(f"  {text.ljust(width)}  {size}".rstrip())
        lines += [f"      provides {change}" for change in provided]
    for changes in package_changes(before, after, locks):
        if not unread or changes.kind != PYTHON:
            lines += _package_lines(changes)
    lines += [f"  Python packages: not known, because {unread}"] * bool(unread)
    lines += [f"  {difference.text}" for difference in recipe_changes(before, after)]
    return "".join(f"{line}\n" for line in lines)


class ProjectState(Protocol):
    """A project at a commit, or in its current state."""

    @property
    def recipes(self) -> Mapping[str, Recipe]: ...
    @property
    def catalog(self) -> Catalog: ...
    @property
    def apt_locks(self) -> AptLocks: ...


@dataclass(frozen=True, slots=True)
class ImageDiff:
    """An image that differs between two commits; without resolutions if one of them fails."""

    image: str
    before: Resolution | None = None
    after: Resolution | None = None
    locks: Locks = NO_LOCKS
    unread: str = ""
    """Why the requirements of one side cannot be read."""

    @property
    def title(self) -> str:
        """Return the name of the image, with its former name if it was renamed."""
        former = self.before.recipe.name if self.before else self.image
        return self.image if former == self.image else f"{self.image}, renamed from {former}"


@dataclass(frozen=True, slots=True)
class History:
    """Images at two commits."""

    changed: tuple[ImageDiff, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    same: int
    """The number of images with the same recipe and components."""


def names_at(old: ProjectState, new: ProjectState, pattern: str) -> tuple[str, ...]:
    """Return the images of a name, family or glob at two commits. Raises UsageError if there are none."""
    names = {
        recipe.name
        for recipe in (*old.recipes.values(), *new.recipes.values())
        if fnmatchcase(recipe.name, pattern) or recipe.family == pattern
    }
    if not names:
        raise UsageError(
            f"image `{pattern}` does not exist at either commit",
            hint=suggestion(pattern, {**old.recipes, **new.recipes}),
        )
    return tuple(sorted(names))


def history(old: ProjectState, new: ProjectState, names: Sequence[str], unread: Mapping[str, str]) -> History:
    """Compare images at two commits. A renamed image is compared with its former recipe.

    `unread` says for some images why the requirements of one side cannot be read.
    """
    after, locks = new.recipes, (old.apt_locks, new.apt_locks)
    former = {
        name.text: recipe.name
        for recipe in after.values()
        for name in recipe.renamed_from
        if name.text in old.recipes and recipe.name not in old.recipes
    }
    before = {former.get(name, name): recipe for name, recipe in old.recipes.items()}
    names = tuple(dict.fromkeys(former.get(name, name) for name in names))
    changed, same = [], 0
    for name in names:
        if name not in before or name not in after:
            continue
        first, second = _resolved(before[name], old.catalog), _resolved(after[name], new.catalog)
        reason = unread.get(before[name].name) or unread.get(name, "")
        if not first or not second:
            changed.append(ImageDiff(name))
        elif compare(first, second, locks, reason) or first.recipe.name != name:
            changed.append(ImageDiff(name, first, second, locks, reason))
        else:
            same += 1
    return History(
        changed=tuple(changed),
        added=tuple(name for name in names if name not in before),
        removed=tuple(name for name in names if name not in after),
        same=same,
    )


def history_text(history: History) -> str:
    """Format the changes of images between two commits."""
    blocks = []
    for change in history.changed:
        lines = "  cannot be resolved at both commits\n"
        if change.before and change.after:
            lines = compare(change.before, change.after, change.locks, change.unread)
        blocks.append(f"{change.title}\n{lines}")
    blocks += _image_lines("+", history.added)
    blocks += _image_lines("-", history.removed)
    if history.same:
        blocks.append(f"{format_count(history.same, 'image')} with the same recipe and components\n")
    return "\n".join(blocks)


def changes_between(
    project: ProjectSettings, refusal_of: RefusalOf, image: str, first: str, second: str
) -> Iterator[str]:
    """Yield the packages, code and other values of an image that differ between two commits.

    Components are left out. Raises BakehouseError if one of the commits cannot be read.
    """
    past = partial(git_history.past, project, image=image, refusal_of=refusal_of)
    with past(first) as old, past(second) as new:
        [change] = history(old, new, [image], {**old.unread, **new.unread}).changed or [None]
        if image not in old.recipes or image not in new.recipes:
            raise UsageError(f"image `{image}` does not exist at both commits")
        if change is None:
            return
        if change.unread or not (change.before and change.after):
            raise UsageError(change.unread or "no versions satisfy it at one of the commits")
        for group in package_changes(change.before, change.after, change.locks):
            yield from (f"{group.kind} package {package.words}" for package in group.changes[:_MAX_PACKAGES])
            if rest := group.changes[_MAX_PACKAGES:]:
                yield f"{format_count(len(rest), f'more {group.kind} package')}"
        for item in recipe_changes(change.before, change.after):
            sign, text = item.text.split(" ", 1)
            is_content = sign == "~" and item.key in ("code", "files")
            yield f"{item.key} {item.name} changed" if is_content else f"{text} {_VERBS[sign]}".rstrip()


def _image_lines(sign: str, names: tuple[str, ...]) -> list[str]:
    """Return added or removed images as one block."""
    if not names:
        return []
    rest = f"  and {len(names) - _MAX_IMAGES} more\n" if len(names) > _MAX_IMAGES else ""
    return ["".join(f"{sign} image {name}\n" for name in names[:_MAX_IMAGES]) + rest]


def _resolved(recipe: Recipe, catalog: Catalog) -> Resolution | None:
    try:
        return resolve(recipe, catalog)
    except Unsatisfiable:
        return None


def _difference_text(difference: ComponentDifference) -> str:
    version = difference.version
    if version.before == version.after:
        return f"~ {difference.name} {version.after}"
    return version.text if None in (version.before, version.after) else f"~ {version.text}"


def _version_text(choice: Choice | None) -> str | None:
    return str(choice.candidate).removeprefix(f"{choice.name} ") if choice else None


def _by_name(resolution: Resolution) -> dict[str, Choice]:
    """Return the components by name, the base included."""
    return {choice.name: choice for choice in resolution.all_choices}


def _wheel_bytes(resolution: Resolution) -> dict[str, int]:
    """Return the download size of each component's Python packages."""
    return {name: sum(package.bytes for package in owned) for name, owned in resolution.owners.items()}


def _size_change(before: int, after: int) -> str:
    if before == after:
        return ""
    return f"{format_bytes(before)} → {format_bytes(after)} of Python packages"


def package_changes(before: Resolution, after: Resolution, locks: Locks) -> Iterator[PackageChanges]:
    """Yield the packages that differ, by kind. Distribution packages of different bases are not compared."""
    first, second = _packages(before, locks[0]), _packages(after, locks[1])
    kinds = _KINDS if before.base.name == after.base.name else _KINDS[:1]
    for kind in kinds:
        old, new = first[kind], second[kind]
        # A package of only the build stages of one image may be in the other image itself
        elsewhere = first[_KINDS[1]].keys() | second[_KINDS[1]].keys() if kind == _KINDS[2] else set()
        changes = tuple(
            ValueChange((new.get(name) or old[name]).name, _version_in(old, name), _version_in(new, name))
            for name in sorted((old.keys() | new.keys()) - elsewhere)
            if _version_in(old, name) != _version_in(new, name)
        )
        if changes:
            sizes = [sum(package.bytes for package in packages.values()) for packages in (old, new)]
            yield PackageChanges(kind, changes, sizes[0], sizes[1])


def _packages(resolution: Resolution, locks: AptLocks) -> Mapping[str, Mapping[str, Package | Deb]]:
    """Return the locked packages by kind and name."""
    owned = (package for packages in resolution.owners.values() for package in packages)
    steps = apt_steps(resolution, locks, Problems())
    in_image, build = ({deb.name: deb for deb in debs} for debs in (steps.in_image, steps.in_build_stages))
    python = {normal_name(package.name): package for package in (*owned, *resolution.user_packages)}
    return dict(zip(_KINDS, (python, in_image, build), strict=True))


def _version_in(packages: Mapping[str, Package | Deb], name: str) -> str | None:
    return packages[name].version if name in packages else None


def _package_lines(changes: PackageChanges) -> Iterator[str]:
    texts = [change.text for change in changes.changes]
    verb = "differs" if len(texts) == 1 else "differ"
    count = format_count(len(texts), f"{changes.kind} package")
    sizes = f"{format_bytes(changes.bytes_before)} → {format_bytes(changes.bytes_after)}"
    yield f"  {count} {verb}; download size: {sizes}"
    yield from (f"      {text}" for text in texts[:_MAX_PACKAGES])
    if rest := texts[_MAX_PACKAGES:]:
        yield f"      and {len(rest)} more"

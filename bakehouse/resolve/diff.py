"""Comparison of two resolutions: components, Python packages and everything else that the recipes say."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.python_lock import Package, normal_name
from bakehouse.catalog.recipe import Recipe
from bakehouse.errors import Diagnostic, UsageError
from bakehouse.resolve.recipe_diff import RecipeDifference, recipe_differences
from bakehouse.resolve.resolver import Choice, Resolution, Unsatisfiable, resolve
from bakehouse.util.format import format_bytes, format_count
from bakehouse.util.suggest import suggestion

_MOST_PACKAGES = 12
_MOST_IMAGES = 10
_SHORT = len("sha256:") + 12
"""Length of a digest in texts."""


@dataclass(frozen=True, slots=True)
class ComponentDifference:
    """One component in two images; None where an image lacks it."""

    name: str
    before: Choice | None
    after: Choice | None

    @property
    def is_any(self) -> bool:
        """Return whether the component differs."""
        return _version(self.before) != _version(self.after) or any(self.provided)

    @property
    def provided(self) -> Iterator[str]:
        """The provided versions that differ, if both images have the component."""
        if not (self.before and self.after):
            return
        first, second = self.before.spec.provides, self.after.spec.provides
        for name in dict.fromkeys([*first, *second]):
            if first.get(name) != second.get(name):
                yield f"{name} {first.get(name, 'none')} → {second.get(name, 'none')}"


def differences(before: Resolution, after: Resolution) -> tuple[ComponentDifference, ...]:
    """Return the components that differ, in layer order; removed ones come last."""
    first, second = _by_name(before), _by_name(after)
    names = [*second, *(name for name in first if name not in second)]
    compared = (ComponentDifference(name, first.get(name), second.get(name)) for name in names)
    return tuple(difference for difference in compared if difference.is_any)


def recipe_changes(before: Resolution, after: Resolution) -> tuple[RecipeDifference, ...]:
    """Return the differences of the recipes and of the pins of components that both have.

    Those that explain a differing component are left out.
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
    """Return the digests of vendor bases and the checksums of files, but for some components."""
    pins: dict[str, str] = {}
    for choice in (choice for choice in resolution.all_choices if choice.name not in without):
        if (source := choice.spec.base) and source.reference:
            name, _, digest = source.build_reference.partition("@")
            pins |= {source.reference: source.digest or "", name: digest}
        pins |= {file.file: f"sha256:{file.sha256}" for file in choice.spec.artifacts if file.sha256}
    return {name: value for name, value in pins.items() if value}


def compare(before: Resolution, after: Resolution) -> str:
    """Return the differences as text; empty if there are none."""
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
    lines += _package_lines(before, after)
    lines += [f"  {difference.text}" for difference in recipe_changes(before, after)]
    return "".join(f"{line}\n" for line in lines)


@dataclass(frozen=True, slots=True)
class ImageChange:
    """An image that differs between two commits; no resolutions if one of them fails."""

    image: str
    before: Resolution | None = None
    after: Resolution | None = None


@dataclass(frozen=True, slots=True)
class History:
    """Images at two commits."""

    changed: tuple[ImageChange, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    same: int
    """The number of images with the same recipe and components."""


def history(
    before: Mapping[str, Recipe], old: Catalog, after: Mapping[str, Recipe], new: Catalog, pattern: str
) -> History:
    """Compare the images of a name, family or glob at two commits. Raises UsageError if there are none."""
    names = sorted(
        {
            recipe.name
            for recipe in (*before.values(), *after.values())
            if fnmatchcase(recipe.name, pattern) or recipe.family == pattern
        }
    )
    if not names:
        hint = suggestion(pattern, {**before, **after})
        raise UsageError(Diagnostic(f"there is no image `{pattern}` at either commit", hint=hint))
    changed, same = [], 0
    for name in names:
        if name not in before or name not in after:
            continue
        first, second = _resolved(before[name], old), _resolved(after[name], new)
        if not first or not second:
            changed.append(ImageChange(name))
        elif compare(first, second):
            changed.append(ImageChange(name, first, second))
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
            lines = compare(change.before, change.after)
        blocks.append(f"{change.image}\n{lines}")
    blocks += _image_lines("+", history.added)
    blocks += _image_lines("-", history.removed)
    if history.same:
        blocks.append(f"{format_count(history.same, 'image')} with the same recipe and components\n")
    return "\n".join(blocks)


def _image_lines(sign: str, names: tuple[str, ...]) -> list[str]:
    """Return added or removed images as one block."""
    if not names:
        return []
    rest = f"  and {len(names) - _MOST_IMAGES} more\n" if len(names) > _MOST_IMAGES else ""
    return ["".join(f"{sign} image {name}\n" for name in names[:_MOST_IMAGES]) + rest]


def _resolved(recipe: Recipe, catalog: Catalog) -> Resolution | None:
    try:
        return resolve(recipe, catalog)
    except Unsatisfiable:
        return None


def _difference_text(difference: ComponentDifference) -> str:
    before, after = _version(difference.before), _version(difference.after)
    if difference.before is None:
        return f"+ {difference.name} {after}"
    if difference.after is None:
        return f"- {difference.name} {before}"
    if before == after:
        return f"~ {difference.name} {after}"
    return f"~ {difference.name} {before} → {after}"


def _version(choice: Choice | None) -> str:
    if choice is None:
        return ""
    variant = choice.candidate.variant.name
    return f"{choice.version} ({variant})" if variant else choice.version


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


def _package_lines(before: Resolution, after: Resolution) -> Iterator[str]:
    first, second = _installed(before), _installed(after)
    changes = [
        f"{second[name].name} {first[name].version} → {second[name].version}"
        for name in first.keys() & second.keys()
        if first[name].version != second[name].version
    ]
    changes += [f"+ {second[name].name} {second[name].version}" for name in second.keys() - first.keys()]
    changes += [f"- {first[name].name} {first[name].version}" for name in first.keys() - second.keys()]
    if changes:
        sizes = [
            format_bytes(sum(package.bytes for package in packages.values())) for packages in (first, second)
        ]
        verb = "differs" if len(changes) == 1 else "differ"
        count = format_count(len(changes), "Python package")
        yield f"  {count} {verb}; download size: {sizes[0]} → {sizes[1]}"
        changes.sort(key=lambda text: text.lstrip("+- ").lower())
        yield from (f"      {change}" for change in changes[:_MOST_PACKAGES])
        if rest := changes[_MOST_PACKAGES:]:
            yield f"      and {len(rest)} more"


def _installed(resolution: Resolution) -> Mapping[str, Package]:
    packages = [package for owned in resolution.owners.values() for package in owned]
    return {normal_name(package.name): package for package in (*packages, *resolution.user_packages)}

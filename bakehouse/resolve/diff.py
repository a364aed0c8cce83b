"""Compares two resolutions: parts that came, went or changed, and what of Python packages that means."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from packaging.utils import canonicalize_name

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.python_lock import Package
from bakehouse.catalog.recipe import Recipe
from bakehouse.errors import Diagnostic, UsageError
from bakehouse.resolve.resolver import Choice, Resolution, Unsatisfiable, resolve
from bakehouse.util.format import format_bytes, format_count
from bakehouse.util.suggest import suggestion

_MOST_PACKAGES = 12
_MOST_IMAGES = 10


@dataclass(frozen=True, slots=True)
class ComponentDifference:
    """One part in two images; None where an image does not have it."""

    name: str
    before: Choice | None
    after: Choice | None

    @property
    def is_any(self) -> bool:
        return _version(self.before) != _version(self.after) or any(self.brought)

    @property
    def brought(self) -> Iterator[str]:
        """What the part brings, where that changed though the part is in both."""
        if not (self.before and self.after):
            return
        first, second = self.before.spec.provides, self.after.spec.provides
        for name in dict.fromkeys([*first, *second]):
            if first.get(name) != second.get(name):
                yield f"{name} {first.get(name, 'none')} → {second.get(name, 'none')}"


def differences(before: Resolution, after: Resolution) -> tuple[ComponentDifference, ...]:
    """What differs, in the order of layers; parts that went come last."""
    first, second = _by_name(before), _by_name(after)
    names = [*second, *(name for name in first if name not in second)]
    found = (ComponentDifference(name, first.get(name), second.get(name)) for name in names)
    return tuple(one for one in found if one.is_any)


def compare(before: Resolution, after: Resolution) -> str:
    """The differences in words; empty where there are none."""
    found = differences(before, after)
    sizes, other = _bytes(before), _bytes(after)
    rows = [(*_told(one), _change(sizes.get(one.name, 0), other.get(one.name, 0))) for one in found]
    width = max((len(text) for text, _, _ in rows), default=0)
    lines = []
    for text, brought, size in rows:
        lines.append(f"  {text.ljust(width)}  {size}".rstrip())
        lines += [f"      brings {one}" for one in brought]
    lines += _packages(before, after)
    return "".join(f"{line}\n" for line in lines)


@dataclass(frozen=True, slots=True)
class ImageChange:
    """An image whose components differ between two commits; no resolutions if it fails to resolve at one."""

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
    """The number of images whose components are the same."""


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
    blocks += _images("+", history.added)
    blocks += _images("-", history.removed)
    if history.same:
        blocks.append(f"{history.same} image{'s' if history.same > 1 else ''} with the same components\n")
    return "\n".join(blocks)


def _images(sign: str, names: tuple[str, ...]) -> list[str]:
    """Images that came, or went."""
    if not names:
        return []
    rest = f"  and {len(names) - _MOST_IMAGES} more\n" if len(names) > _MOST_IMAGES else ""
    return ["".join(f"{sign} image {name}\n" for name in names[:_MOST_IMAGES]) + rest]


def _resolved(recipe: Recipe, catalog: Catalog) -> Resolution | None:
    try:
        return resolve(recipe, catalog)
    except Unsatisfiable:
        return None


def _told(one: ComponentDifference) -> tuple[str, tuple[str, ...]]:
    if one.before is None:
        return f"+ {one.name} {_version(one.after)}", ()
    if one.after is None:
        return f"- {one.name} {_version(one.before)}", ()
    if _version(one.before) == _version(one.after):
        return f"~ {one.name} {_version(one.after)}", tuple(one.brought)
    return f"~ {one.name} {_version(one.before)} → {_version(one.after)}", tuple(one.brought)


def _version(choice: Choice | None) -> str:
    if choice is None:
        return ""
    variant = choice.candidate.variant.name
    return f"{choice.version} ({variant})" if variant else choice.version


def _by_name(resolution: Resolution) -> dict[str, Choice]:
    """Parts by name; the base stands under its own."""
    return {choice.name: choice for choice in (resolution.base, *resolution.choices)}


def _bytes(resolution: Resolution) -> dict[str, int]:
    """The wheels that each part installs, as they are fetched."""
    return {name: sum(one.bytes for one in packages) for name, packages in resolution.owners.items()}


def _change(before: int, after: int) -> str:
    if before == after:
        return ""
    return f"{format_bytes(before)} → {format_bytes(after)} of Python packages"


def _packages(before: Resolution, after: Resolution) -> Iterator[str]:
    first, second = _installed(before), _installed(after)
    changed = [
        f"{second[name].name} {first[name].version} → {second[name].version}"
        for name in first.keys() & second.keys()
        if first[name].version != second[name].version
    ]
    changed += [f"+ {second[name].name} {second[name].version}" for name in second.keys() - first.keys()]
    changed += [f"- {first[name].name} {first[name].version}" for name in first.keys() - second.keys()]
    if changed:
        sizes = [sum(one.bytes for one in found.values()) for found in (first, second)]
        packages = format_count(len(changed), "Python package differs", "Python packages differ")
        yield f"  {packages}; to fetch: {format_bytes(sizes[0])} → {format_bytes(sizes[1])}"
        changed.sort(key=lambda text: text.lstrip("+- ").lower())
        yield from (f"      {one}" for one in changed[:_MOST_PACKAGES])
        if rest := changed[_MOST_PACKAGES:]:
            yield f"      and {len(rest)} more"


def _installed(resolution: Resolution) -> Mapping[str, Package]:
    packages = [one for owned in resolution.owners.values() for one in owned]
    return {canonicalize_name(one.name): one for one in (*packages, *resolution.user_packages)}

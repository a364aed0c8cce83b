"""Comparison of the images with their state at a commit: components, packages, recipes, tests and bytes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from bakehouse.catalog import git_history
from bakehouse.catalog.git_history import Past
from bakehouse.catalog.recipe import Recipe
from bakehouse.ledger.releases import ReleaseRecord
from bakehouse.plan import affected
from bakehouse.plan.diff import PackageChanges, differences, package_changes, recipe_changes
from bakehouse.plan.model import Image, ImageKey, key_with_code
from bakehouse.plan.workspace import Workspace, conflict_text
from bakehouse.resolve.resolver import Resolution, Unsatisfiable, resolve
from bakehouse.util.value_change import ValueChange, value_changes


@dataclass(frozen=True, slots=True)
class PresentImage:
    """An image of the page, with its records."""

    resolution: Resolution
    image: Image
    checks: Mapping[str, str]
    """Results by name, of the current build key."""
    bytes: int | None
    """Size as pushed; None if it is not recorded."""
    records: Sequence[ReleaseRecord]
    """Its records of all build keys, newest first."""


@dataclass(frozen=True, slots=True)
class ChangedImage:
    """An image that differs from its state at the commit."""

    image: str
    problem: str = ""
    """Why it cannot be compared."""
    components: tuple[ValueChange, ...] = ()
    packages: tuple[PackageChanges, ...] = ()
    recipe: tuple[str, ...] = ()
    """Other differences of the recipe, of pins, and of what components provide."""
    tests: tuple[ValueChange, ...] | None = ()
    """Checks with another result; None if those of one side are not recorded."""
    bytes_before: int | None = None
    """Size as pushed; None if it is not recorded."""
    bytes_after: int | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The images of the page, compared with a commit."""

    revision: str
    """The commit, as the user names it."""
    commit: str
    changed: tuple[ChangedImage, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    same: int


def compare_commit(
    workspace: Workspace,
    revision: str,
    patterns: Sequence[str],
    recipes: Sequence[Recipe],
    images: Mapping[str, PresentImage],
) -> Comparison:
    """Compare images with their state at a commit.

    `recipes` are those of the page, which `patterns` select; `images` are those that can be planned. Raises
    UsageError.
    """
    project = workspace.project
    keys = affected.keys_at(project, revision)
    names = [recipe.name for recipe in recipes]
    pattern = patterns[0] if len(patterns) == 1 else "*"
    with git_history.past(project, revision, pattern, conflict_text) as past:
        common = [name for name in names if name in past.recipes]
        compared = (_change(workspace, past, name, images.get(name), keys.get(name)) for name in common)
        changed = tuple(filter(None, compared))
        return Comparison(
            revision=revision,
            commit=git_history.commit_of(project.root, revision),
            changed=changed,
            added=tuple(name for name in names if name not in past.recipes),
            removed=tuple(_removed(past.recipes, workspace.recipes, patterns)),
            same=len(common) - len(changed),
        )


def _removed(
    before: Mapping[str, Recipe], after: Mapping[str, Recipe], patterns: Sequence[str]
) -> Iterator[str]:
    for name, recipe in sorted(before.items()):
        is_selected = not patterns or any(
            fnmatchcase(name, pattern) or recipe.family == pattern for pattern in patterns
        )
        if is_selected and name not in after:
            yield name


def _change(
    workspace: Workspace, past: Past, name: str, present: PresentImage | None, old_key: object
) -> ChangedImage | None:
    """Return the differences of an image; None without one."""
    if present is None:
        return ChangedImage(name, "it cannot be planned now")
    if name in past.unread:
        return ChangedImage(name, f"not known, because {past.unread[name]}")
    try:
        before = resolve(past.recipes[name], past.catalog)
    except Unsatisfiable:
        return ChangedImage(name, "no versions satisfied it at the commit")
    after = present.resolution
    compared = differences(before, after)
    versions = (difference.version for difference in compared)
    components = tuple(version for version in versions if version.before != version.after)
    packages = tuple(package_changes(before, after, (past.apt_locks, workspace.apt_locks)))
    recipe = (
        *(f"{item.name} provides {change}" for item in compared for change in item.provided),
        *(difference.text for difference in recipe_changes(before, after)),
    )
    if isinstance(old_key, str):
        old_key = key_with_code(ImageKey(old_key), past.recipes[name].content)
    has_new_key = old_key != present.image.key
    if not (components or packages or recipe or (has_new_key and old_key)):
        return None
    old_records = [record for record in present.records if record.key == old_key]
    return ChangedImage(
        name,
        components=components,
        packages=packages,
        recipe=recipe,
        tests=_tests(old_records, present.checks) if has_new_key else (),
        bytes_before=size_of(old_records),
        bytes_after=present.bytes,
    )


def _tests(
    old_records: Iterable[ReleaseRecord], present: Mapping[str, str]
) -> tuple[ValueChange, ...] | None:
    old = next((record.checks for record in old_records if record.checks), None)
    if not old or not present:
        return None
    before = {check.name: str(check.outcome) for check in old}
    return value_changes(before, present)


def size_of(records: Iterable[ReleaseRecord]) -> int | None:
    """Return the size of a build as pushed, by its records; None if they do not have it."""
    return next((record.bytes for record in records if record.bytes), None)

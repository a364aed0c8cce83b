"""Locks the packages of distributions that images on bootstrapped bases are made of, suite by suite."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from bakehouse.catalog.apt_lock import FOLDER, SUFFIX, AptLock, Deb, NotLocked, apt_locks, stanzas, written
from bakehouse.catalog.recipe import Recipe
from bakehouse.lock import apt
from bakehouse.lock.apt import PackageChange
from bakehouse.plan.apt_packages import wanted_lists
from bakehouse.plan.workspace import Workspace
from bakehouse.resolve.resolver import Resolution, resolve
from bakehouse.util.files import write_whole
from bakehouse.util.terminal import Reporter


def lock(
    workspace: Workspace, recipes: Sequence[Recipe], say: Reporter, *, upgrade: Collection[str] | None = ()
) -> Iterator[str]:
    """Write down what images need that is not locked yet; a line for each package and suite that changed.

    `upgrade` names packages to be taken from what the mirrors have now; None is all of them. It takes all
    images: packages that need each other in one version change together, whoever asked for them.
    """
    for suite, wanted in _wanted(workspace, recipes).items():
        locked = workspace.apt_locks.suites.get(suite)
        if locked and not apt.concerns(upgrade, locked.debs) and _has_all(locked, wanted):
            continue
        say(f"asking this machine's apt for the packages of {suite}")
        found = apt.resolve(suite, wanted, locked, workspace.project.state, upgrade=upgrade)
        is_whole = {*wanted} == {*_wanted(workspace, workspace.recipes.values())[suite]}
        path = workspace.project.recipe_roots[-1] / FOLDER / f"{suite}{SUFFIX}"
        earlier = apt_locks(workspace.project.recipe_roots[:-1]).get(suite)
        kept = {} if is_whole else _own(path)
        write_whole(path, _text(suite, {**kept, **found.packages}, earlier.debs if earlier else ()))
        changes = [one for one in found.changes if one.after or (is_whole and one.name not in kept)]
        yield from (f"{suite}: {one.text}" for one in changes)
        yield f"{path.name}: {len({**kept, **found.packages})} packages, {len(changes)} of them changed"


def drift(
    workspace: Workspace, recipes: Sequence[Recipe], say: Reporter
) -> dict[str, tuple[PackageChange, ...]]:
    """For each suite, what is locked in another version than its mirrors have now, or is not locked."""
    found = {}
    for suite, wanted in _wanted(workspace, recipes).items():
        say(f"asking this machine's apt for the packages of {suite}")
        locked = workspace.apt_locks.suites.get(suite)
        now = apt.resolve(suite, wanted, locked, workspace.project.state, upgrade=None)
        found[suite] = tuple(one for one in now.changes if one.after)
    return found


def _wanted(workspace: Workspace, recipes: Iterable[Recipe]) -> dict[str, list[tuple[str, ...]]]:
    """What is installed together in the images' steps, by suite."""
    found: dict[str, dict[tuple[str, ...], None]] = {}
    for recipe in recipes:
        resolution = resolve(recipe, workspace.catalog)
        source = resolution.base.spec.base
        if source and source.suite:
            found.setdefault(source.suite, {}).update(dict.fromkeys(wanted_of(resolution)))
    return {suite: sorted(lists) for suite, lists in sorted(found.items())}


def wanted_of(resolution: Resolution) -> list[tuple[str, ...]]:
    """What is installed together in the steps of one image."""
    return [tuple(sorted({*one})) for one in wanted_lists(resolution)]


def _has_all(locked: AptLock, wanted: Iterable[Sequence[str]]) -> bool:
    try:
        for names in wanted:
            locked.base(names)
    except NotLocked:
        return False
    return True


def _own(path: Path) -> dict[str, Mapping[str, str]]:
    """The packages of a lock, by name; none where there is no such file."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return {fields["Package"]: fields for _, fields in stanzas(text)}


def _text(suite: str, packages: Mapping[str, Mapping[str, str]], earlier: Iterable[Deb]) -> str:
    """A lock without what an earlier folder of recipes has in the same version."""
    known = {deb.name: deb.sha256 for deb in earlier}
    own = [one for name, one in packages.items() if known.get(name) != one["SHA256"]]
    heading = f"# Debian {suite}: each package as the one file that is installed; made by `./bake lock`\n"
    return f"{heading}\n{written(own)}"

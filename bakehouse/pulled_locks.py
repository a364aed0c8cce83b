"""Locks what steps add to bases that are pulled, base by base."""

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from bakehouse import aptlocking, base_logins, baselock, baselocking, daemon, provision
from bakehouse.aptlocking import Change
from bakehouse.aptsteps import pulled_lists
from bakehouse.baselock import BaseLock, step_of
from bakehouse.baselocking import Locked, PulledBase, Runner
from bakehouse.buildevents import Event
from bakehouse.errors import Problems, RecipeError
from bakehouse.files import write_whole
from bakehouse.planning import registry_host
from bakehouse.recipe import Recipe
from bakehouse.resolution import Resolution, resolve
from bakehouse.supplies import apt_supplies
from bakehouse.workspace import Say, Workspace


def lock(
    workspace: Workspace,
    recipes: Sequence[Recipe],
    say: Say,
    on_event: Callable[[Event], None],
    *,
    named: Sequence[Recipe] = (),
    upgrade: Collection[str] | None = (),
) -> Iterator[str]:
    """Write down what images' steps add to their bases; a line for each change, and what can't be locked.

    A base is pulled for that: a first lock is made of those that images of `named` are on. `upgrade` names
    packages to be taken from what the mirrors have now; None is all of them.
    """
    for reference in _without_digest(workspace, named):
        yield f"packages on {reference} can't be locked: nobody has written down its digest"
    asked = {base.pinned for base in _bases(workspace, named)}
    found = {}
    for base in _bases(workspace, [*recipes, *named]):
        locked = _fitting(workspace, base)
        if locked and not aptlocking.concerns(upgrade, locked.debs) and {*base.steps} <= {*locked.steps}:
            continue
        if base.pinned in asked or _lock_of(workspace, base):
            found[base] = locked
    if not found:
        return
    # One lock is made for all images of the project that are on a base
    whole = {one.reference: one for one in _bases(workspace, workspace.recipes.values())}
    with _running(workspace, [base.reference for base in found], say, on_event) as run:
        for base, locked in found.items():
            say(f"asking the apt of {base.name} what steps add to it")
            now = baselocking.resolve(whole[base.reference], locked, run, upgrade=upgrade)
            yield from _write(workspace, base, now)


def drift(
    workspace: Workspace, recipes: Sequence[Recipe], say: Say, on_event: Callable[[Event], None]
) -> dict[str, tuple[Change, ...]]:
    """For each base that has a lock, what mirrors have in another version than is locked."""
    found = {base: locked for base in _bases(workspace, recipes) if (locked := _fitting(workspace, base))}
    if not found:
        return {}
    changes = {}
    with _running(workspace, [base.reference for base in found], say, on_event) as run:
        for base, locked in found.items():
            say(f"asking the apt of {base.name} what steps add to it")
            now = baselocking.resolve(base, locked, run, upgrade=None)
            changes[base.name] = tuple(one for one in now.changes if one.after)
    return changes


def _bases(workspace: Workspace, recipes: Iterable[Recipe]) -> tuple[PulledBase, ...]:
    """The bases with a digest on which steps of images install something; each once, with all its steps."""
    problems = Problems()
    steps: dict[tuple[str, str, str], dict[baselock.Step, None]] = {}
    for recipe in recipes:
        resolution = resolve(recipe, workspace.catalog)
        for lists in pulled_lists(resolution):
            if lists.pinned and lists.lists:
                host = registry_host(resolution, workspace.project.region, problems)
                place = f"{host}{lists.pinned}", lists.pinned, _stale_sources(resolution)
                steps.setdefault(place, {}).update(dict.fromkeys(map(step_of, lists.lists)))
    problems.raise_as(RecipeError)
    return tuple(
        PulledBase(reference, pinned, tuple(sorted(found)), stale)
        for (reference, pinned, stale), found in sorted(steps.items())
    )


def _without_digest(workspace: Workspace, recipes: Iterable[Recipe]) -> tuple[str, ...]:
    """The bases on which steps install something that nobody could pull a second time."""
    lists = (one for recipe in recipes for one in pulled_lists(resolve(recipe, workspace.catalog)))
    return tuple(dict.fromkeys(one.reference for one in lists if one.lists and not one.pinned))


def _stale_sources(resolution: Resolution) -> str:
    return resolution.base.face.facts.get("stale_sources", "")


def _fitting(workspace: Workspace, base: PulledBase) -> BaseLock | None:
    found = _lock_of(workspace, base)
    return found if found and found.pinned == base.pinned else None


def _lock_of(workspace: Workspace, base: PulledBase) -> BaseLock | None:
    """The base's lock, of whatever digest."""
    return workspace.apt_locks.bases.get(base.pinned.partition("@")[0])


@contextlib.contextmanager
def _running(
    workspace: Workspace, references: Sequence[str], say: Say, on_event: Callable[[Event], None]
) -> Iterator[Runner]:
    project = workspace.project
    with contextlib.ExitStack() as stack:
        daemon.require(provision.ensure(provision.ask_at_terminal, say))
        given = stack.enter_context(apt_supplies(state=project.state, ca=project.ca, say=say))
        logged_in = stack.enter_context(base_logins.of_bases(references, project, say))
        yield Runner(project.state, given, on_event, logged_in)


def _write(workspace: Workspace, base: PulledBase, now: Locked) -> Iterator[str]:
    name = baselock.file_of(base.pinned)
    path = workspace.project.recipe_roots[-1] / baselock.FOLDER / name
    write_whole(path, baselocking.text(base.pinned, now.steps, now.packages.values()))
    yield from (f"{base.name}: {one.text}" for one in now.changes)
    yield f"{name}: {len(now.packages)} packages, {len(now.changes)} of them changed"

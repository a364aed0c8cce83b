"""Locks what steps add to bases that are pulled, base by base."""

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from bakehouse.build import registry_auth
from bakehouse.build.build_inputs import apt_inputs
from bakehouse.catalog import base_image_lock
from bakehouse.catalog.base_image_lock import step_of
from bakehouse.catalog.recipe import Recipe
from bakehouse.engine import daemon_info, provision
from bakehouse.engine.buildkit_events import Event
from bakehouse.errors import Problems, RecipeError
from bakehouse.lock import apt, apt_base_image
from bakehouse.lock.apt import PackageChange
from bakehouse.lock.apt_base_image import Locked, Runner, VendorBase
from bakehouse.plan.apt_packages import pulled_lists
from bakehouse.plan.planner import registry_host
from bakehouse.plan.workspace import Workspace
from bakehouse.resolve.resolver import resolve
from bakehouse.util.files import write_whole
from bakehouse.util.terminal import Reporter


def lock(
    workspace: Workspace,
    recipes: Sequence[Recipe],
    say: Reporter,
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
    locks = workspace.apt_locks
    found = {}
    for base in _bases(workspace, [*recipes, *named]):
        locked = locks.bases.get(base.pinned)
        if locked and not apt.concerns(upgrade, locked.debs) and {*base.steps} <= {*locked.steps}:
            continue
        if base.pinned in asked or locks.of_reference(base.pinned.partition("@")[0]):
            found[base] = locked
    if not found:
        return
    # One lock is made for all images of the project that are on a base
    whole = {one.pinned: one for one in _bases(workspace, workspace.recipes.values())}
    with _running(workspace, [base.reference for base in found], say, on_event) as run:
        for base, locked in found.items():
            say(f"asking the apt of {base.name} what steps add to it")
            now = apt_base_image.resolve(whole[base.pinned], locked, run, upgrade=upgrade)
            yield from _write(workspace, base, now)
    _remove_others(workspace, found, whole)


def drift(
    workspace: Workspace, recipes: Sequence[Recipe], say: Reporter, on_event: Callable[[Event], None]
) -> dict[str, tuple[PackageChange, ...]]:
    """For each base that has a lock, what mirrors have in another version than is locked."""
    locks = workspace.apt_locks.bases
    found = {base: locks[base.pinned] for base in _bases(workspace, recipes) if base.pinned in locks}
    if not found:
        return {}
    changes = {}
    with _running(workspace, [base.reference for base in found], say, on_event) as run:
        for base, locked in found.items():
            say(f"asking the apt of {base.name} what steps add to it")
            now = apt_base_image.resolve(base, locked, run, upgrade=None)
            changes[base.name] = tuple(one for one in now.changes if one.after)
    return changes


def _bases(workspace: Workspace, recipes: Iterable[Recipe]) -> tuple[VendorBase, ...]:
    """The bases with a digest on which steps of images install something; each once, with all its steps."""
    problems = Problems()
    steps: dict[str, dict[base_image_lock.Step, None]] = {}
    references: dict[str, str] = {}
    stale: dict[str, set[str]] = {}
    for recipe in recipes:
        resolution = resolve(recipe, workspace.catalog)
        for lists in pulled_lists(resolution):
            if lists.pinned and lists.lists:
                host = registry_host(resolution, workspace.project.region, problems)
                references.setdefault(lists.pinned, f"{host}{lists.pinned}")
                steps.setdefault(lists.pinned, {}).update(dict.fromkeys(map(step_of, lists.lists)))
                facts = resolution.base.spec.facts
                stale.setdefault(lists.pinned, set()).update(facts.get("stale_sources", "").split())
    problems.raise_as(RecipeError)
    return tuple(
        VendorBase(references[pinned], pinned, tuple(sorted(found)), " ".join(sorted(stale[pinned])))
        for pinned, found in sorted(steps.items())
    )


def _without_digest(workspace: Workspace, recipes: Iterable[Recipe]) -> tuple[str, ...]:
    """The bases on which steps install something that nobody could pull a second time."""
    lists = (one for recipe in recipes for one in pulled_lists(resolve(recipe, workspace.catalog)))
    return tuple(dict.fromkeys(one.reference for one in lists if one.lists and not one.pinned))


@contextlib.contextmanager
def _running(
    workspace: Workspace, references: Sequence[str], say: Reporter, on_event: Callable[[Event], None]
) -> Iterator[Runner]:
    project = workspace.project
    with contextlib.ExitStack() as stack:
        daemon_info.require(provision.ensure(provision.ask_at_terminal, say))
        given = stack.enter_context(apt_inputs(state=project.state, ca=project.ca, report=say))
        logged_in = stack.enter_context(registry_auth.base_logins(references, project, say))
        yield Runner(project.state, given, on_event, logged_in)


def _write(workspace: Workspace, base: VendorBase, now: Locked) -> Iterator[str]:
    name = base_image_lock.file_of(base.pinned)
    path = workspace.project.recipe_roots[-1] / base_image_lock.FOLDER / name
    write_whole(path, apt_base_image.text(base.pinned, now.steps, now.packages.values()))
    yield from (f"{base.name}: {one.text}" for one in now.changes)
    yield f"{name}: {len(now.packages)} packages, {len(now.changes)} of them changed"


def _remove_others(
    workspace: Workspace, locked: Iterable[VendorBase], whole: Mapping[str, VendorBase]
) -> None:
    """Remove locks that were made of those bases' former digests, where no image is on them any more."""
    references = {base.pinned.partition("@")[0] for base in locked}
    folder = workspace.project.recipe_roots[-1] / base_image_lock.FOLDER
    for one in workspace.apt_locks.bases.values():
        if one.reference in references and one.pinned not in whole and one.path.parent == folder:
            one.path.unlink(missing_ok=True)

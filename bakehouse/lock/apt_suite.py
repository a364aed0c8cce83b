"""Locks of the Debian packages of images on bootstrapped bases, one for each suite."""

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from bakehouse.builder.build_inputs import BuildInputs
from bakehouse.catalog.apt_lock import (
    DIRECTORY,
    SUFFIX,
    AptLock,
    Deb,
    NotLocked,
    apt_locks,
    stanzas,
    suite_and_platform,
    written,
)
from bakehouse.catalog.project import HOME
from bakehouse.catalog.recipe import Recipe
from bakehouse.engine import daemon_info, provision
from bakehouse.fetch.debian_mirrors import debian_mirrors
from bakehouse.lock import apt, locked_base
from bakehouse.lock.apt import RESOLVE, AptChange, AptMachine, RunApt
from bakehouse.lock.base_step import BuildSettings, run_step
from bakehouse.plan.apt_packages import suite_lists
from bakehouse.plan.dockerfile import filled
from bakehouse.plan.workspace import Workspace, own_recipes
from bakehouse.registry import registry_image
from bakehouse.resolve.resolver import resolve
from bakehouse.util.files import read_text
from bakehouse.util.format import in_images
from bakehouse.util.heartbeat import Heartbeat
from bakehouse.util.terminal import Reporter

_DOCKERFILE = f"""\
FROM {{{{ base }}}} AS base
RUN --network=none --mount=type=bind,target=/input sh /input/{RESOLVE.name} /input /output

FROM scratch
COPY --from=base /output/ /
"""


def apt_machine(workspace: Workspace, name: str, report: Reporter) -> AptMachine:
    """Return the mirrors of a project and the base whose apt resolves the packages of a lock."""
    project = workspace.project

    def open_base() -> RunApt:
        base = locked_base.base_with_apt(workspace, suite_and_platform(name)[0])
        daemon_info.require(provision.ensure(provision.ask_at_terminal, report))
        locked_base.ensure(workspace, base, report)

        def run(files: Mapping[str, str | bytes]) -> Mapping[str, str]:
            beat = Heartbeat(report, f"running: apt of {base.reference}")
            settings = BuildSettings(project.state, BuildInputs(), lambda _: beat.tick())
            return run_step(name, filled(_DOCKERFILE, base=base.reference), settings, files)

        return run

    return AptMachine(debian_mirrors(project), open_base, project.state)


def lock(
    workspace: Workspace,
    recipes: Sequence[Recipe],
    report: Reporter,
    *,
    suites: Collection[str],
    upgrade: Collection[str] | None = (),
) -> Iterator[str]:
    """Lock the packages of suites that images need and that are not locked yet; yield a line for each change.

    `upgrade` names packages that take the version of the mirrors; None means all. An upgrade needs the
    recipes of all images, because packages that depend on each other change together.
    """
    all_lists: dict[str, list[tuple[str, ...]]] = {}
    for suite, lists in (recipe_lists := _package_lists(workspace, recipes)).items():
        if suite not in suites:
            continue
        locked = workspace.apt_locks.suites.get(suite)
        if locked and not apt.affects(upgrade, locked.debs) and _has_all(locked, lists):
            continue
        report(f"resolving the packages of {suite} with apt")
        with _located(suite, workspace, recipes):
            machine = apt_machine(workspace, suite, report)
            resolved = apt.resolve(suite, lists, locked, machine, upgrade=upgrade)
        if not all_lists:
            has_all = {recipe.name for recipe in recipes} >= workspace.recipes.keys()
            all_lists = recipe_lists if has_all else _package_lists(workspace, workspace.recipes.values())
        is_complete = {*lists} == {*all_lists[suite]}
        path = workspace.project.recipe_roots[-1] / DIRECTORY / f"{suite}{SUFFIX}"
        earlier = apt_locks(workspace.project.recipe_roots[:-1]).get(suite)
        before = _own_packages(path)
        packages = {**({} if is_complete else before), **resolved.packages}
        own = _own(packages, earlier.debs if earlier else ())
        is_written = bool(own or path.is_file()) and apt.write_lock(path, _text(suite, own))
        # Packages of earlier recipe directories stay locked there
        changes = [
            change
            for change in resolved.changes
            if is_written and (change.after or (is_complete and change.name in before))
        ]
        images = _images_with(workspace, suite) if changes else {}
        yield from (f"{suite}: {change.text}{in_images(images.get(change.name, ()))}" for change in changes)
        yield f"{path.name}: {len(packages)} packages, {len(changes)} changed"


def _images_with(workspace: Workspace, suite: str) -> dict[str, list[str]]:
    """Return the images of the project that install each package of a suite, by package."""
    locked = apt_locks(workspace.project.recipe_roots)[suite]
    images: dict[str, list[str]] = {}
    for recipe in own_recipes(workspace):
        resolution = resolve(recipe, workspace.catalog)
        source = resolution.base.spec.base
        if source and source.suite and source.lock_name == suite:
            names: set[str] = set()
            for packages in suite_lists(resolution):
                with contextlib.suppress(NotLocked):
                    names.update(deb.name for deb in locked.base(packages))
            for name in names:
                images.setdefault(name, []).append(recipe.name)
    return images


def suites_of(workspace: Workspace, recipes: Iterable[Recipe]) -> frozenset[str]:
    """Return the suites of the bootstrapped bases of images."""
    return frozenset(_package_lists(workspace, recipes))


def _located(suite: str, workspace: Workspace, recipes: Iterable[Recipe]) -> AbstractContextManager[None]:
    components = workspace.catalog.components.values()
    return apt.locate_unknown_packages(f"Debian `{suite}`", recipes, components)


def drift(
    workspace: Workspace, recipes: Sequence[Recipe], report: Reporter
) -> dict[str, tuple[AptChange, ...]]:
    """Return by suite the packages that are not locked, or have another version on the mirrors."""
    newest = {}
    for suite, lists in _package_lists(workspace, recipes).items():
        report(f"resolving the packages of {suite} with apt")
        locked = workspace.apt_locks.suites.get(suite)
        with _located(suite, workspace, recipes):
            machine = apt_machine(workspace, suite, report)
            newest[suite] = apt.resolve(suite, lists, locked, machine, upgrade=None).newer
    return newest


def _package_lists(workspace: Workspace, recipes: Iterable[Recipe]) -> dict[str, list[tuple[str, ...]]]:
    """Return by suite the lists of packages that steps of the images install together."""
    lists: dict[str, dict[tuple[str, ...], None]] = {}
    for recipe in recipes:
        resolution = resolve(recipe, workspace.catalog)
        source = resolution.base.spec.base
        if source and source.suite:
            lists.setdefault(source.lock_name, {}).update(dict.fromkeys(suite_lists(resolution)))
    if workspace.project.recipe_roots == (HOME / "recipes",):
        for name, suite_lists_of in lists.items():
            if suite_and_platform(name)[0] == registry_image.SUITE:
                suite_lists_of[registry_image.PACKAGES] = None
    return {suite: sorted(suite_lists) for suite, suite_lists in sorted(lists.items())}


def _has_all(locked: AptLock, lists: Iterable[Sequence[str]]) -> bool:
    try:
        for names in lists:
            locked.base(names)
    except NotLocked:
        return False
    return True


def _own_packages(path: Path) -> dict[str, Mapping[str, str]]:
    """Return the packages of a lock by name; none if the file does not exist."""
    text = read_text(path) if path.is_file() else ""
    return {fields["Package"]: fields for _, fields in stanzas(text)}


def _own(packages: Mapping[str, Mapping[str, str]], earlier: Iterable[Deb]) -> list[Mapping[str, str]]:
    """Return the packages that no earlier recipe directory locks in the same version."""
    digests = {deb.name: deb.sha256 for deb in earlier}
    return [fields for name, fields in packages.items() if digests.get(name) != fields["SHA256"]]


def _text(suite: str, own: Iterable[Mapping[str, str]]) -> str:
    heading = f"# Debian {suite}: each package as the one file that is installed; made by `bake lock`\n"
    return f"{heading}\n{written(own)}"

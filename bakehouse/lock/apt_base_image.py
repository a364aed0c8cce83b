"""Locks of vendor bases: the files that steps add to a base, as the base's own apt resolves them.

apt runs in a step of a build, so the base's sources, keys and installed packages decide as in the image. It
installs nothing, and the build makes no image.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from bakehouse.catalog.apt_lock import Deb, deb_of, stanzas, written
from bakehouse.catalog.base_image_lock import ADDS, BASE, DIRECTORY, STEP, BaseLock, Step, file_of, step_of
from bakehouse.catalog.recipe import Recipe
from bakehouse.engine import daemon_info
from bakehouse.engine.buildkit_events import Event
from bakehouse.errors import BuildError, ConflictError, Diagnostic, Problems, Reason, RecipeError
from bakehouse.lock import apt
from bakehouse.lock.apt import AptChange
from bakehouse.lock.base_step import BuildSettings, build_settings, run_step
from bakehouse.plan.apt_packages import installs_with_dnf, pulled_lists
from bakehouse.plan.dockerfile import filled
from bakehouse.plan.planner import registry_host
from bakehouse.plan.workspace import Workspace
from bakehouse.resolve.resolver import resolve
from bakehouse.util.files import remove_file
from bakehouse.util.terminal import Reporter

_DOCKERFILE = """\
FROM {{ base }} AS base
COPY --chmod=755 lock/ /lock/
RUN --mount=type=secret,id=ca --mount=type=secret,id=apt,target=/etc/apt/apt.conf.d/99bakehouse <<"END"
set -e
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
{% if stale_sources %}
rm -f {{ stale_sources }}
{% endif %}
if [ -s /lock/Packages ]; then
    # Last, so that the fields of other sources take precedence over the lock's
    echo 'deb [trusted=yes] copy:/lock ./' > /etc/apt/sources.list.d/zz-lock.list
fi
if [ -s /lock/preferences ]; then cp /lock/preferences /etc/apt/preferences.d/00-lock; fi
apt-get clean
apt-get update -q -o APT::Update::Error-Mode=any
mkdir /output
number=0
while read -r names; do
    number=$((number + 1))
    apt-get install --simulate -q -y --no-install-recommends $names > "/output/$number.steps"
    apt-get install --print-uris -qq -y --no-install-recommends $names > "/output/$number.files"
    sed -n 's/^Inst \\([^ ]*\\) \\(\\[[^]]*\\] \\)\\{0,1\\}(\\([^ ]*\\) .*/\\1=\\3/p' \\
        "/output/$number.steps" > /named
    [ ! -s /named ] || xargs apt-cache show < /named > "/output/$number.packages"
done < /lock/lists
END

FROM scratch
COPY --from=base /output/ /
"""
_REMOVED = re.compile(r"^Remv (?P<name>\S+)", re.MULTILINE)
_CREDENTIALS = re.compile(r"(?<=://)[^/@]*@")
_URL = re.compile(r"^'([^']+)' \S+ ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class VendorBase:
    """A vendor base, and the lists of packages that images install on it."""

    reference: str
    """The image reference to pull, with host and digest."""
    pinned: str
    """The same without the host."""
    steps: tuple[Step, ...]
    stale_sources: str = ""
    """Files of apt sources on it that can no longer be refreshed."""

    @property
    def name(self) -> str:
        """The reference without the digest."""
        return self.reference.partition("@")[0]


@dataclass(frozen=True, slots=True)
class LockedSteps:
    """The packages that steps add to a base, and their differences from the lock."""

    steps: Mapping[Step, tuple[str, ...]]
    """The names of the packages that each step adds."""
    packages: Mapping[str, Mapping[str, str]]
    """The index fields of each package, by name."""
    changes: tuple[AptChange, ...] = ()


def lock(
    workspace: Workspace,
    recipes: Sequence[Recipe],
    report: Reporter,
    on_event: Callable[[Event], None],
    *,
    named: Sequence[Recipe] = (),
    upgrade: Collection[str] | None = (),
) -> Iterator[str]:
    """Lock the packages that images add to vendor bases; yield a line for each change or base without digest.

    The first lock of a base pulls the base, so it is made only for `named` images, and only with an engine.
    `upgrade` names packages that take the version of the mirrors; None means all.
    """
    for reference in _with_dnf(workspace, named):
        yield f"packages on {reference} are not locked: Bakehouse locks only apt packages"
    for reference in _without_digest(workspace, named):
        yield f"packages on {reference} cannot be locked: its digest is unknown"
    requested = {base.pinned for base in _bases(workspace, named)}
    locks = workspace.apt_locks
    outdated: dict[VendorBase, BaseLock | None] = {}
    for base in _bases(workspace, [*recipes, *named]):
        locked = locks.bases.get(base.pinned)
        if locked and not apt.affects(upgrade, locked.debs) and {*base.steps} <= {*locked.steps}:
            continue
        if base.pinned in requested or locks.of_reference(base.pinned.partition("@")[0]):
            outdated[base] = locked
    first = [base for base in outdated if not locks.of_reference(base.pinned.partition("@")[0])]
    if first and not isinstance(daemon_info.probe(), daemon_info.Daemon):
        for base in first:
            del outdated[base]
            yield f"packages on {base.name} are not locked; run `bake lock` where a container engine runs"
    if not outdated:
        return
    components = workspace.catalog.components.values()
    # A lock covers all images of the project on that base
    complete = {base.pinned: base for base in _bases(workspace, workspace.recipes.values())}
    with build_settings(workspace, [base.reference for base in outdated], report, on_event) as settings:
        for base, locked in outdated.items():
            report(f"resolving packages with the apt of {base.name}")
            with apt.locate_unknown_packages(f"`{base.name}`", (*recipes, *named), components):
                locked_steps = resolve_steps(complete[base.pinned], locked, settings, upgrade=upgrade)
            yield from _write(workspace, base, locked_steps)
    _remove_others(workspace, outdated, complete)


def drift(
    workspace: Workspace, recipes: Sequence[Recipe], report: Reporter, on_event: Callable[[Event], None]
) -> dict[str, tuple[AptChange, ...]]:
    """Return by base the packages of its lock that have another version on the mirrors."""
    locks = workspace.apt_locks.bases
    locked = {base: locks[base.pinned] for base in _bases(workspace, recipes) if base.pinned in locks}
    if not locked:
        return {}
    changes = {}
    components = workspace.catalog.components.values()
    with build_settings(workspace, [base.reference for base in locked], report, on_event) as settings:
        for base, base_lock in locked.items():
            report(f"resolving packages with the apt of {base.name}")
            with apt.locate_unknown_packages(f"`{base.name}`", recipes, components):
                steps = resolve_steps(base, base_lock, settings, upgrade=None)
            changes[base.name] = tuple(change for change in steps.changes if change.after)
    return changes


def _bases(workspace: Workspace, recipes: Iterable[Recipe]) -> tuple[VendorBase, ...]:
    """Return the bases with a digest on which images install packages, each with all its steps."""
    problems = Problems()
    steps: dict[str, dict[Step, None]] = {}
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
        VendorBase(references[pinned], pinned, tuple(sorted(lists)), " ".join(sorted(stale[pinned])))
        for pinned, lists in sorted(steps.items())
    )


def _with_dnf(workspace: Workspace, recipes: Iterable[Recipe]) -> tuple[str, ...]:
    """Return the bases on which images install packages with dnf."""
    resolutions = (resolve(recipe, workspace.catalog) for recipe in recipes)
    references = (
        resolution.base.spec.base.reference
        for resolution in resolutions
        if resolution.base.spec.base and installs_with_dnf(resolution)
    )
    return tuple(dict.fromkeys(references))


def _without_digest(workspace: Workspace, recipes: Iterable[Recipe]) -> tuple[str, ...]:
    """Return the bases without a digest on which images install packages."""
    all_lists = (lists for recipe in recipes for lists in pulled_lists(resolve(recipe, workspace.catalog)))
    return tuple(dict.fromkeys(lists.reference for lists in all_lists if lists.lists and not lists.pinned))


def _write(workspace: Workspace, base: VendorBase, locked: LockedSteps) -> Iterator[str]:
    name = file_of(base.pinned)
    path = workspace.project.recipe_roots[-1] / DIRECTORY / name
    is_written = apt.write_lock(path, lock_text(base.pinned, locked.steps, locked.packages.values()))
    changes = locked.changes if is_written else ()
    yield from (f"{base.name}: {change.text}" for change in changes)
    yield f"{name}: {len(locked.packages)} packages, {len(changes)} changed"


def _remove_others(
    workspace: Workspace, locked: Iterable[VendorBase], complete: Mapping[str, VendorBase]
) -> None:
    """Remove locks of former digests of the locked bases that no image uses any more."""
    references = {base.pinned.partition("@")[0] for base in locked}
    directory = workspace.project.recipe_roots[-1] / DIRECTORY
    for other in workspace.apt_locks.bases.values():
        is_unused = other.reference in references and other.pinned not in complete
        if is_unused and other.path.parent == directory:
            remove_file(other.path, missing_ok=True)


def resolve_steps(
    base: VendorBase,
    locked: BaseLock | None,
    settings: BuildSettings,
    *,
    upgrade: Collection[str] | None = (),
) -> LockedSteps:
    """Resolve the packages that steps add to a base; locked packages keep their version.

    `upgrade` names packages that take the version of the mirrors; None means all. Raises UnknownPackages for
    packages that its apt does not know, and BuildError with apt's output if the base cannot be pulled or
    its apt fails.
    """
    before = {deb.name: deb for deb in locked.debs} if locked else {}
    kept = list(apt.kept_packages(before, upgrade))
    dockerfile = filled(_DOCKERFILE, base=base.reference, stale_sources=base.stale_sources)
    try:
        texts = run_step(base.name, dockerfile, settings, _context_files(base, locked, kept))
    except BuildError as error:
        # The output of a build has other text before each line
        lines = (line[max(line.find("E: "), 0) :] for line in error.diagnostics[0].tail)
        if unknown := apt.unknown_packages("\n".join(lines)):
            raise apt.UnknownPackages(unknown) from error
        raise BuildError.of(_apt_failed(base, error.diagnostics[0], is_kept=bool(kept))) from error
    return read_output(base, before, texts)


def lock_text(pinned: str, steps: Mapping[Step, Sequence[str]], packages: Iterable[Mapping[str, str]]) -> str:
    """Return the text of a lock."""
    heading = "# A base that is pulled, and each file that a step adds to it; made by `bake lock`\n"
    stanza = [f"{BASE}: {pinned}\n"]
    stanza += [
        f"{STEP}: {' '.join(step)}\n{ADDS}: {' '.join(names)}\n" for step, names in sorted(steps.items())
    ]
    return "\n".join([heading, *stanza, written(packages)])


def _apt_failed(base: VendorBase, cause: Diagnostic, *, is_kept: bool) -> Diagnostic:
    message = f"packages on `{base.name}` cannot be locked"
    hint = "check that the base can be pulled, and that its apt sources are reachable and have the packages"
    if is_kept:
        hint += "; if these conflict with locked ones, run `bake lock --upgrade` to lock all anew"
    return Diagnostic(message, reasons=(Reason(cause.message),), tail=cause.tail, hint=hint)


def _context_files(base: VendorBase, locked: BaseLock | None, kept: Sequence[Deb]) -> dict[str, str]:
    return {
        "lock/Packages": written(apt.locked_fields(kept, [locked.path] if locked else ())),
        "lock/preferences": apt.preferences(kept, base.steps),
        "lock/lists": "".join(f"{' '.join(step)}\n" for step in base.steps),
    }


def read_output(base: VendorBase, before: Mapping[str, Deb], texts: Mapping[str, str]) -> LockedSteps:
    """Read the output of apt for each step: the simulated installation, the URLs, and the package fields."""
    steps: dict[Step, tuple[str, ...]] = {}
    packages: dict[str, dict[str, str]] = {}
    for number, step in enumerate(base.steps, 1):
        simulation = texts[f"{number}.steps"]
        if removed := _REMOVED.search(simulation):
            raise ConflictError.of(_removes_package(base, step, removed["name"]))
        versions = apt.installed_versions(simulation)
        urls = [unquote(_CREDENTIALS.sub("", url)) for url in _URL.findall(texts[f"{number}.files"])]
        for _, fields in stanzas(texts.get(f"{number}.packages", "")):
            if "Filename" not in fields or versions.get(fields["Package"]) != fields["Version"]:
                continue
            name, earlier = fields["Package"], before.get(fields["Package"])
            if name not in packages or apt.is_better_match(earlier, fields, packages[name]):
                packages[name] = fields | _file_location(fields, urls, earlier)
        for name, version in versions.items():
            if name in packages and packages[name]["Version"] != version:
                first = packages[name]["Version"]
                raise ConflictError.of(apt.two_versions(f"`{base.name}`", "base", name, first, version))
        if missing := [name for name in versions if name not in packages or not _has_file(packages[name])]:
            raise BuildError(
                f"apt of `{base.name}` has no usable file of package `{missing[0]}`",
                hint="its sources need a sha256 of the file and an http or https URL",
            )
        steps[step_of(step)] = tuple(sorted(versions))
    return LockedSteps(steps, packages, apt.package_changes(before, packages))


def _removes_package(base: VendorBase, step: Step, name: str) -> Diagnostic:
    message = f"a step on `{base.name}` would remove its package `{name}`: {' '.join(step)}"
    hint = "name versions in `packages` that fit the packages of the base, or use another base"
    return Diagnostic(message, hint=hint)


def _has_file(fields: Mapping[str, str]) -> bool:
    """Return whether a package has a file that can be downloaded and verified."""
    deb = deb_of(fields)
    return deb is not None and bool(deb.site)


def _file_location(fields: Mapping[str, str], urls: Sequence[str], before: Deb | None) -> dict[str, str]:
    """Return the root URL of a package's file, and the path below it."""
    path = fields["Filename"].removeprefix("./")
    if before and before.sha256 == fields.get("SHA256"):
        return {"Filename": before.path, "Site": before.site}
    url = next((url for url in urls if url.endswith(f"/{path}")), "")
    return {"Filename": path, "Site": url.removesuffix(f"/{path}")}

"""Resolution of Debian packages by the apt of a locked base, in a build step without network.

apt verifies the signatures of the indexes with the base's own keys, and chooses packages as in the image.
"""

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bakehouse.catalog.apt_lock import AptLock, Deb, stanzas, suite_and_platform, written
from bakehouse.catalog.component import Component
from bakehouse.catalog.recipe import Recipe
from bakehouse.errors import BuildError, ConflictError, Diagnostic, Location, Problems, RecipeError
from bakehouse.fetch import apt_config
from bakehouse.fetch.debian_mirrors import SECURITY, AptSource, DebianMirrors
from bakehouse.lock.interpreter import MAX_LINES
from bakehouse.util.files import read_bytes, read_text, write_whole
from bakehouse.util.oci import architecture_of
from bakehouse.util.suggest import nearest
from bakehouse.util.tempdir import private_directory

BASIC = ("?essential", "?priority(required)", "apt")
"""The packages of every base, as apt patterns."""
_INSTALLED = re.compile(r"^Inst (?P<name>\S+) (?:\[\S+\] )?\((?P<version>\S+) ", re.MULTILINE)
_UNKNOWN = re.compile(
    r"^E: (?:Unable to locate package (?P<name>\S+)"
    r"|Package '(?P<virtual>[^']+)' has no installation candidate"
    r"|Version '(?P<version>[^']+)' for '(?P<other>[^']+)' was not found)",
    re.MULTILINE,
)
_LISTS, _KEPT, _MIRRORS = "lists", "kept", "mirrors"
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_CARRIED = ("acquire::check-valid-until", "acquire::check-date")
"""Settings of apt on this machine that concern the indexes, not their download."""
RESOLVE = Path(__file__).parents[1] / "probes/resolve-packages"
"""Script that runs apt in a base: it reads a directory with `files_for`, and writes one for `read_output`."""

RunApt = Callable[[Mapping[str, str | bytes]], Mapping[str, str]]
"""Runs RESOLVE in a base: takes its input files by path, and returns its output files by name."""


@dataclass(frozen=True, slots=True)
class AptChange:
    """A package that differs between a lock and its mirrors."""

    name: str
    before: str
    """The locked version; empty if it was not locked."""
    after: str
    is_other_file: bool = False
    """The mirrors have another file of the locked version."""

    @property
    def text(self) -> str:
        return f"{self.name} {self.before or 'not locked'} -> {self.after or 'no longer needed'}"


class UnknownPackages(Exception):
    """Requested packages that the sources of apt do not have."""

    def __init__(self, requests: Sequence[str], known: Sequence[str] = ()) -> None:
        super().__init__(*requests)
        self.requests = requests
        """Names, and `name=version` for unknown versions."""
        self.known = known
        """Names of all packages, as far as they are known."""


def unknown_packages(output: str) -> tuple[str, ...]:
    """Return the requests that apt reports as unknown: names, or `name=version`."""
    requests = (
        f"{match['other']}={match['version']}" if match["version"] else match["name"] or match["virtual"]
        for match in _UNKNOWN.finditer(output)
    )
    return tuple(dict.fromkeys(requests))


@contextlib.contextmanager
def locate_unknown_packages(
    source: str, recipes: Iterable[Recipe], components: Iterable[Component]
) -> Iterator[None]:
    """Turn UnknownPackages into a RecipeError at each line of a recipe or component that requests one."""
    try:
        yield
    except UnknownPackages as unknown:
        raise _unknown_packages_error(unknown, source, recipes, components) from unknown


def _unknown_packages_error(
    unknown: UnknownPackages, source: str, recipes: Iterable[Recipe], components: Iterable[Component]
) -> RecipeError:
    spots: dict[str, list[Location | None]] = {}
    for recipe in recipes:
        for text, location in recipe.package_lines.items():
            spots.setdefault(text, []).append(location)
    for component in components:
        for release in component.releases:
            for variant in release.variants:
                for text in (variant.spec.system_packages + variant.spec.build_packages).names("apt"):
                    spots.setdefault(text, []).append(component.location)
    problems = Problems()
    for request in unknown.requests:
        name, _, version = request.partition("=")
        fact = f"`{name}` has no version `{version}` in {source}"
        message = fact if version else f"{source} has no package `{name}`"
        near = "" if version else nearest(name, unknown.known)
        hint = f"did you mean `{near}`?" if near else ""
        locations = spots.get(request) or spots.get(name)
        problems.extend(Diagnostic(message, location, hint=hint) for location in locations or [None])
    return RecipeError.of(*problems.all)


@dataclass(frozen=True, slots=True)
class Resolved:
    """The packages that images need, and their differences from the lock."""

    packages: Mapping[str, Mapping[str, str]]
    """The index fields of each package, by name."""
    changes: tuple[AptChange, ...] = ()

    @property
    def newer(self) -> tuple[AptChange, ...]:
        """The packages that are not locked, or have another version on the mirrors."""
        return tuple(change for change in self.changes if change.after)


def resolve(
    name: str,
    lists: Iterable[Sequence[str]],
    locked: AptLock | None,
    machine: "AptMachine",
    *,
    upgrade: Collection[str] | None = (),
) -> Resolved:
    """Resolve each list of packages with its dependencies; locked packages keep their version.

    `name` is the name of a lock: the suite, and the architecture if it is not that of most images.
    `upgrade` names packages that take the version of the mirrors; None means all. Raises BuildError without
    a readable mirror, UnknownPackages for packages that the mirrors do not have, and ConflictError with apt's
    output if the packages do not fit together.
    """
    suite, platform = suite_and_platform(name)
    run = machine.open()
    sources: list[AptSource] = []
    before = {deb.name: deb for deb in locked.debs} if locked else {}
    kept = list(kept_packages(before, upgrade))
    lists = sorted({tuple(sorted({*names})) for names in lists})
    fields = locked_fields(kept, locked.paths if locked else ())
    architecture = architecture_of(platform)
    with private_directory(machine.state) as directory:
        for source in machine.mirrors.for_suite(suite):
            if machine.mirrors.download_index(source, architecture, directory / str(len(sources))):
                sources.append(source)
        if all(source.label == SECURITY for source in sources):
            raise BuildError.of(machine.mirrors.none_for(suite))
        indexes = {
            f"{_MIRRORS}/{path.relative_to(directory).as_posix()}": read_bytes(path)
            for path in directory.rglob("*")
            if path.is_file()
        }
    texts = files_for(sources, lists, fields, preferences(kept, lists), architecture)
    output = run({**indexes, **texts})
    packages = read_output(suite, output, before)
    return Resolved(packages, package_changes(before, packages))


@dataclass(frozen=True, slots=True)
class AptMachine:
    """Mirrors, and a base whose apt reads their indexes."""

    mirrors: DebianMirrors
    open: Callable[[], RunApt]
    """Starts an engine and makes the base if necessary."""
    state: Path
    """Directory for private files."""


def affects(upgrade: Collection[str] | None, locked: Iterable[Deb]) -> bool:
    """Return whether an upgrade affects a locked package; `upgrade=None` upgrades all."""
    return upgrade is None or any(deb.name in upgrade for deb in locked)


def kept_packages(locked: Mapping[str, Deb], upgrade: Collection[str] | None) -> Iterator[Deb]:
    """Yield the locked packages that keep their version; `upgrade=None` upgrades all."""
    if upgrade is not None:
        yield from (deb for deb in locked.values() if not is_upgrade_target(deb, locked, upgrade))


def is_upgrade_target(deb: Deb, locked: Mapping[str, Deb], upgrade: Collection[str]) -> bool:
    """Return whether a package, or another one of the same source package, is to be upgraded."""
    # Some archives keep all packages in one directory, which does not identify the source package
    directories = {locked[name].path.rpartition("/")[0] for name in upgrade if name in locked} - {""}
    return deb.name in upgrade or deb.path.rpartition("/")[0] in directories


def locked_fields(kept: Iterable[Deb], paths: Iterable[Path]) -> list[Mapping[str, str]]:
    """Return the lock's fields of packages: apt can then choose them even if no mirror has them."""
    digests = {deb.sha256 for deb in kept}
    locked = (fields for path in paths for _, fields in stanzas(read_text(path)))
    return [fields for fields in locked if fields.get("SHA256") in digests]


def is_better_match(locked: Deb | None, fields: Mapping[str, str], first: Mapping[str, str]) -> bool:
    """Return whether fields describe the locked file and the `first` fields do not."""
    return locked is not None and fields.get("SHA256") == locked.sha256 != first.get("SHA256")


def preferences(kept: Iterable[Deb], lists: Iterable[Sequence[str]]) -> str:
    """Return apt preferences that pin locked versions, and for all lists the versions that one list names."""
    named = dict(name.split("=", 1) for names in lists for name in names if "=" in name)
    versions = {deb.name: deb.version for deb in kept} | named
    stanza = "Package: {}\nPin: version {}\nPin-Priority: 1001\n"
    return "\n".join(stanza.format(name, version) for name, version in sorted(versions.items()))


def merged_versions(suite: str, installed: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return the version of each package. Raises ConflictError if two lists need different versions."""
    merged: dict[str, str] = {}
    for name, version in (item for versions in installed for item in versions.items()):
        if merged.setdefault(name, version) != version:
            raise ConflictError.of(two_versions(f"Debian {suite}", "suite", name, merged[name], version))
    return merged


def two_versions(base: str, scope: str, name: str, first: str, second: str) -> Diagnostic:
    """Return the error of a package that steps on one base need in two versions."""
    message = f"steps on {base} need `{name}` in two versions, {first} and {second}"
    hint = f"a lock holds one version of each package: `packages` of all images must agree on that {scope}"
    return Diagnostic(message, hint=hint)


def package_changes(
    before: Mapping[str, Deb], after: Mapping[str, Mapping[str, str]]
) -> tuple[AptChange, ...]:
    """Return the differences between locked packages and new ones, by name."""
    changes = []
    for name in sorted({*before, *after}):
        old = before[name].version if name in before else ""
        new = after[name]["Version"] if name in after else ""
        is_other = old == new and before[name].sha256 != after[name].get("SHA256")
        if old != new or is_other:
            changes.append(AptChange(name, old, f"{new} (other bytes)" if is_other else new, is_other))
    return tuple(changes)


def write_lock(path: Path, text: str) -> bool:
    """Write a lock of packages; return whether it differs from the present one."""
    if path.is_file() and read_text(path) == text:
        return False
    write_whole(path, text)
    return True


def installed_versions(output: str) -> dict[str, str]:
    """Return name and version of the packages in the output of a simulated installation."""
    return {match["name"]: match["version"] for match in _INSTALLED.finditer(output)}


def files_for(
    sources: Sequence[AptSource],
    lists: Iterable[Sequence[str]],
    kept: Sequence[Mapping[str, str]],
    preferences: str,
    architecture: str,
) -> dict[str, str | bytes]:
    """Return the files that RESOLVE reads in addition to the indexes of the sources in `mirrors/NUMBER`."""
    lines = [
        f"deb [signed-by={_KEYRING}] file:@INPUT@/{_MIRRORS}/{number} {source.suite} "
        f"{' '.join(source.components)}"
        for number, source in enumerate(sources)
    ]
    # Last, so that the mirrors' fields of a package take precedence over the lock's
    lines += [f"deb [trusted=yes] copy:@INPUT@/{_KEPT} ./"] if kept else []
    settings = {
        "Dir": "@WORK@",
        "Dir::Etc": "@WORK@/etc",
        "Dir::Etc::sourcelist": "@WORK@/sources.list",
        "Dir::Etc::sourceparts": "@WORK@/none",
        "Dir::State": "@WORK@",
        "Dir::State::status": "@WORK@/status",
        "Dir::Cache": "@WORK@/cache",
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "Acquire::By-Hash": "false",
        "Debug::NoLocking": "true",
    }
    own = {key: value for key, value in apt_config.settings().items() if key.lower() in _CARRIED}
    return {
        RESOLVE.name: read_bytes(RESOLVE),
        "apt.conf": apt_config.written({**own, **settings}),
        "sources.list": "".join(f"{line}\n" for line in lines),
        "preferences": preferences,
        _LISTS: "".join(f"{' '.join((*BASIC, *names))}\n" for names in lists),
        f"{_KEPT}/Packages": written(kept),
    }


def read_output(
    suite: str, output: Mapping[str, str], before: Mapping[str, Deb]
) -> dict[str, Mapping[str, str]]:
    """Return the index fields of the resolved packages; of two files with one version, the locked file's."""
    failure = output.get("failed", "").strip()
    if failure:
        raise _failure(suite, failure, output)
    simulated = sorted(name for name in output if name.endswith(".steps"))
    versions = merged_versions(suite, (installed_versions(output[name]) for name in simulated))
    described: dict[str, Mapping[str, str]] = {}
    for _, fields in stanzas(output["packages"]):
        name = fields["Package"]
        if versions.get(name) != fields["Version"]:
            continue
        if name not in described or is_better_match(before.get(name), fields, described[name]):
            described[name] = fields
    return described


def _failure(suite: str, command: str, output: Mapping[str, str]) -> Exception:
    tail = tuple(output.get("log", "").splitlines()[-MAX_LINES:])
    if command == "update":
        return BuildError(
            f"apt rejects the index of a Debian mirror of `{suite}`",
            tail=tail,
            hint="use a mirror that is a complete copy of Debian, signed with Debian's keys",
        )
    if unknown := unknown_packages(output.get("log", "")):
        return UnknownPackages(unknown, output.get("names", "").split())
    return ConflictError(
        "these Debian packages do not fit together",
        tail=tail,
        hint="run `bake lock --upgrade` to lock all packages again",
    )

"""Resolution of Debian packages by this machine's apt, in a directory of its own.

apt checks the signatures of the mirrors and chooses packages as in the image. It reads only the machine's
mirrors, connection settings and keys.
"""

import contextlib
import re
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bakehouse.catalog.apt_lock import AptLock, Deb, stanzas, suite_and_platform, written
from bakehouse.catalog.component import Component
from bakehouse.catalog.recipe import Recipe
from bakehouse.errors import (
    BuildError,
    ConflictError,
    Diagnostic,
    EngineError,
    Location,
    Problems,
    RecipeError,
)
from bakehouse.fetch import apt_config
from bakehouse.lock.interpreter import MAX_LINES
from bakehouse.util.oci import architecture_of
from bakehouse.util.process import MISSING_PROGRAM, with_environment
from bakehouse.util.suggest import nearest
from bakehouse.util.tempdir import private_directory, require_space, temporary_directory

BASIC = ("?essential", "?priority(required)", "apt")
"""The packages of every base, as apt patterns."""
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_INSTALLED = re.compile(r"^Inst (?P<name>\S+) (?:\[\S+\] )?\((?P<version>\S+) ", re.MULTILINE)
_UNKNOWN = re.compile(
    r"^E: (?:Unable to locate package (?P<name>\S+)"
    r"|Package '(?P<virtual>[^']+)' has no installation candidate"
    r"|Version '(?P<version>[^']+)' for '(?P<other>[^']+)' was not found)",
    re.MULTILINE,
)
_ON_DEBIAN = "run this on Debian or in a Debian container"


@dataclass(frozen=True, slots=True)
class AptChange:
    """A package that differs between a lock and its mirrors."""

    name: str
    before: str
    """The locked version; empty if it was not locked."""
    after: str

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
    has_security_mirror: bool = True
    """The mirrors have the security updates of the suite."""

    @property
    def newer(self) -> tuple[AptChange, ...]:
        """The packages that are not locked, or have another version on the mirrors."""
        return tuple(change for change in self.changes if change.after)


def resolve(
    name: str,
    lists: Iterable[Sequence[str]],
    locked: AptLock | None,
    state: Path,
    *,
    upgrade: Collection[str] | None = (),
) -> Resolved:
    """Resolve each list of packages with its dependencies; locked packages keep their version.

    `name` is that of a lock: the suite, and another architecture than that of most images.
    `upgrade` names packages to take from the mirrors anew; None means all. Raises EngineError if this machine
    has no apt or no mirror, UnknownPackages for packages that the mirrors do not have, and ConflictError with
    apt's output if the packages do not fit together.
    """
    suite, platform = suite_and_platform(name)
    mirrors = apt_config.for_suite(suite, apt_config.sources())
    if not mirrors:
        raise EngineError(
            f"this machine's apt has no Debian mirror to lock packages of `{suite}` from", hint=_ON_DEBIAN
        )
    before = {deb.name: deb for deb in locked.debs} if locked else {}
    kept = list(kept_packages(before, upgrade))
    lists = sorted({tuple(sorted({*names})) for names in lists})
    with private_directory(state) as directory:
        fields = locked_fields(kept, locked.paths if locked else ())
        apt = _Apt(directory, mirrors, fields, preferences(kept, lists), architecture_of(platform))
        apt.update()
        packages = apt.described(merged_versions(suite, map(apt.installed, lists)), before)
    has_security_mirror = any(mirror.label == apt_config.SECURITY for mirror in mirrors)
    return Resolved(packages, package_changes(before, packages), has_security_mirror)


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
    locked = (fields for path in paths for _, fields in stanzas(path.read_text(encoding="utf-8")))
    return [fields for fields in locked if fields.get("SHA256") in digests]


def is_better_match(locked: Deb | None, fields: Mapping[str, str], first: Mapping[str, str]) -> bool:
    """Return whether fields describe the locked file and the `first` fields do not."""
    return locked is not None and fields.get("SHA256") == locked.sha256 != first.get("SHA256")


def preferences(kept: Iterable[Deb], lists: Iterable[Sequence[str]]) -> str:
    """Return apt preferences that pin locked versions, and versions that a list names for all lists."""
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
            changes.append(AptChange(name, old, f"{new} (other bytes)" if is_other else new))
    return tuple(changes)


def installed_versions(output: str) -> dict[str, str]:
    """Return name and version of the packages in the output of a simulated installation."""
    return {match["name"]: match["version"] for match in _INSTALLED.finditer(output)}


class _Apt:
    """apt with its own sources, lists and state."""

    def __init__(
        self,
        directory: Path,
        mirrors: Sequence[apt_config.AptSource],
        kept: Sequence[Mapping[str, str]],
        preferences: str,
        architecture: str,
    ) -> None:
        self._directory = directory = directory.absolute()
        for path in ("lists/partial", "cache/archives/partial", "etc/preferences.d", "etc/apt.conf.d"):
            (directory / path).mkdir(parents=True)
        (directory / "status").touch()
        (directory / "lock").mkdir()
        (directory / "lock" / "Packages").write_text(written(kept))
        # Last, so that the mirrors' fields of a package take precedence over the lock's
        own = f"{apt_config.directory_line(directory / 'lock')}\n" if kept else ""
        (directory / "sources.list").write_text("".join(f"{mirror.line}\n" for mirror in mirrors) + own)
        (directory / "etc" / "preferences").write_text(preferences)
        settings = {
            "Dir": str(directory),
            "Dir::Etc": str(directory / "etc"),
            "Dir::Etc::sourcelist": str(directory / "sources.list"),
            "Dir::Etc::sourceparts": str(directory / "etc" / "none"),
            "Dir::Etc::netrc": "/etc/apt/auth.conf",
            "Dir::Etc::netrcparts": "/etc/apt/auth.conf.d",
            "Dir::Etc::trusted": str(_KEYRING),
            "Dir::Etc::trustedparts": "/etc/apt/trusted.gpg.d",
            "Dir::State": str(directory),
            "Dir::State::status": str(directory / "status"),
            "Dir::Cache": str(directory / "cache"),
            "APT::Architecture": architecture,
            "APT::Architectures": architecture,
            "APT::Install-Recommends": "false",
            "APT::Sandbox::User": "root",
            "Acquire::Languages": "none",
            "Debug::NoLocking": "true",
        }
        # A file, because other users can read credentials of mirrors on a command line
        (directory / "apt.conf").write_text(apt_config.written({**apt_config.settings(), **settings}))
        self._environment = with_environment({"APT_CONFIG": str(directory / "apt.conf"), "LC_ALL": "C.UTF-8"})

    def update(self) -> None:
        # apt verifies signatures there, and calls them invalid if the disk is full
        temporary_directory()
        self._run("apt-get", "update", "-q", "--error-on=any")

    def installed(self, names: Sequence[str]) -> dict[str, str]:
        """Return name and version of all packages that apt installs on an empty machine."""
        output = self._run("apt-get", "install", "-s", "-q", "--no-install-recommends", *BASIC, *names)
        return installed_versions(output)

    def described(self, packages: Mapping[str, str], before: Mapping[str, Deb]) -> dict[str, dict[str, str]]:
        """Return the index fields of package versions; of two files with one version, the locked file's."""
        named = [f"{name}={version}" for name, version in sorted(packages.items())]
        described: dict[str, dict[str, str]] = {}
        for _, fields in stanzas(self._run("apt-cache", "show", *named)):
            name = fields["Package"]
            if name not in described or is_better_match(before.get(name), fields, described[name]):
                described[name] = fields
        return described

    def _run(self, *command: str) -> str:
        try:
            result = subprocess.run(
                command,
                env=self._environment,
                capture_output=True,
                encoding="utf-8",
                # Names of maintainers may have any encoding
                errors="replace",
                check=False,
            )
        except MISSING_PROGRAM as error:
            raise EngineError(
                f"`{command[0]}` is missing; locking Debian packages needs it", hint=_ON_DEBIAN
            ) from error
        if result.returncode == 0:
            return result.stdout
        require_space(result.stderr, self._directory)
        tail = tuple(f"{result.stdout}{result.stderr}".splitlines()[-MAX_LINES:])
        if command[1] == "update":
            raise BuildError(
                "a Debian mirror cannot be read",
                tail=tail,
                hint="check that `apt-get update` works on this machine: its mirrors are used",
            )
        if unknown := unknown_packages(result.stderr):
            raise UnknownPackages(unknown, self._run("apt-cache", "pkgnames").split())
        raise ConflictError(
            "these Debian packages do not fit together",
            tail=tail,
            hint="run `bake lock --upgrade` to lock all packages anew",
        )

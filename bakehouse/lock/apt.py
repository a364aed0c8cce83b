"""Makes the lock of a suite: asks this machine's apt, in folders of its own, which packages images need.

apt checks the mirrors' signatures, and chooses as it would in the image. Nothing of the machine's own state
is read but its mirrors, its way to them, and its keys.
"""

import re
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bakehouse.catalog.apt_lock import AptLock, Deb, stanzas, written
from bakehouse.errors import BuildError, ConflictError, Diagnostic, EngineError
from bakehouse.fetch import apt_config
from bakehouse.util.process import with_environment
from bakehouse.util.tempdir import private_directory

BASIC = ("?essential", "?priority(required)", "apt")
"""What every base has, as patterns of apt."""
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_INSTALLED = re.compile(r"^Inst (?P<name>\S+) (?:\[\S+\] )?\((?P<version>\S+) ", re.MULTILINE)
_MOST_LINES = 20
_ON_DEBIAN = "run it on Debian, or in a container of it"


@dataclass(frozen=True, slots=True)
class PackageChange:
    """One package that differs between a lock and what its mirrors have now."""

    name: str
    before: str
    """Its version; empty where it was not there."""
    after: str

    @property
    def text(self) -> str:
        return f"{self.name} {self.before or 'not locked'} -> {self.after or 'no longer needed'}"


@dataclass(frozen=True, slots=True)
class Resolved:
    """The packages that images need, and what of them differs from the lock."""

    packages: Mapping[str, Mapping[str, str]]
    """The fields of each in its index, by name."""
    changes: tuple[PackageChange, ...] = ()


def resolve(
    suite: str,
    wanted: Iterable[Sequence[str]],
    locked: AptLock | None,
    state: Path,
    *,
    upgrade: Collection[str] | None = (),
) -> Resolved:
    """What the packages of each list come to, in the versions that are locked already where there are any.

    `upgrade` names packages to be taken from what the mirrors have now; None is all of them. Raises
    EngineError where this machine has no apt or no mirror, ConflictError where nothing fits, in apt's words.
    """
    mirrors = apt_config.for_suite(suite, apt_config.sources())
    if not mirrors:
        message = f"this machine's apt knows no mirror of Debian, to lock packages of `{suite}` from"
        raise EngineError(Diagnostic(message, hint=_ON_DEBIAN))
    before = {deb.name: deb for deb in locked.debs} if locked else {}
    kept = list(kept_packages(before, upgrade))
    lists = sorted({tuple(sorted({*one})) for one in wanted})
    with private_directory(state) as folder:
        apt = _Apt(folder, mirrors, fields_of(kept, locked.paths if locked else ()), pins(kept, lists))
        apt.update()
        packages = apt.described(agreed(suite, map(apt.installed, lists)), before)
    return Resolved(packages, changes(before, packages))


def concerns(upgrade: Collection[str] | None, locked: Iterable[Deb]) -> bool:
    """Whether an upgrade of packages, None being all of them, is about one that is locked."""
    return upgrade is None or any(deb.name in upgrade for deb in locked)


def kept_packages(locked: Mapping[str, Deb], upgrade: Collection[str] | None) -> Iterator[Deb]:
    """Yield the locked packages that keep their version; `upgrade=None` upgrades all."""
    if upgrade is not None:
        yield from (deb for deb in locked.values() if not is_upgrade_target(deb, locked, upgrade))


def is_upgrade_target(deb: Deb, known: Mapping[str, Deb], upgrade: Collection[str]) -> bool:
    """Whether a package is to be upgraded: itself, or another one of the same source package."""
    # Some archives have all their packages in one folder, which tells nothing
    folders = {known[name].path.rpartition("/")[0] for name in upgrade if name in known} - {""}
    return deb.name in upgrade or deb.path.rpartition("/")[0] in folders


def fields_of(kept: Iterable[Deb], paths: Iterable[Path]) -> list[Mapping[str, str]]:
    """What locks say of those packages, for apt to choose them again when no mirror has them any more."""
    digests = {one.sha256 for one in kept}
    every = (fields for path in paths for _, fields in stanzas(path.read_text(encoding="utf-8")))
    return [fields for fields in every if fields.get("SHA256") in digests]


def is_better_match(locked: Deb | None, fields: Mapping[str, str], first: Mapping[str, str]) -> bool:
    """Whether fields, and not those that were told first, are of the file that is locked."""
    return locked is not None and fields.get("SHA256") == locked.sha256 != first.get("SHA256")


def pins(kept: Iterable[Deb], lists: Iterable[Sequence[str]]) -> str:
    """apt's preferences: what is locked, and what a list names in one version, which others take too."""
    named = dict(asked.split("=", 1) for names in lists for asked in names if "=" in asked)
    versions = {one.name: one.version for one in kept} | named
    stanza = "Package: {}\nPin: version {}\nPin-Priority: 1001\n"
    return "\n".join(stanza.format(name, version) for name, version in sorted(versions.items()))


def agreed(suite: str, installed: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """The one version of each package that all lists come to. Raises ConflictError where two differ."""
    found: dict[str, str] = {}
    for name, version in (item for one in installed for item in one.items()):
        if found.setdefault(name, version) != version:
            message = f"steps on Debian {suite} want `{name}` in two versions, {found[name]} and {version}"
            hint = "a lock has one version of each: let `apt` of all images on that suite name the same"
            raise ConflictError(Diagnostic(message, hint=hint))
    return found


def changes(before: Mapping[str, Deb], after: Mapping[str, Mapping[str, str]]) -> tuple[PackageChange, ...]:
    """What differs between a lock's packages and others, by name."""
    found = []
    for name in sorted({*before, *after}):
        old = before[name].version if name in before else ""
        new = after[name]["Version"] if name in after else ""
        is_other = old == new and before[name].sha256 != after[name].get("SHA256")
        if old != new or is_other:
            found.append(PackageChange(name, old, f"{new} (other bytes)" if is_other else new))
    return tuple(found)


class _Apt:
    """apt with sources, lists and a state of its own."""

    def __init__(
        self,
        folder: Path,
        mirrors: Sequence[apt_config.AptSource],
        kept: Sequence[Mapping[str, str]],
        preferences: str,
    ) -> None:
        folder = folder.absolute()
        for part in ("lists/partial", "cache/archives/partial", "etc/preferences.d", "etc/apt.conf.d"):
            (folder / part).mkdir(parents=True)
        (folder / "status").touch()
        (folder / "lock").mkdir()
        (folder / "lock" / "Packages").write_text(written(kept))
        # Last: what mirrors say of a package now comes before what the lock remembers
        own = f"{apt_config.folder_line(folder / 'lock')}\n" if kept else ""
        (folder / "sources.list").write_text("".join(f"{one.line}\n" for one in mirrors) + own)
        (folder / "etc" / "preferences").write_text(preferences)
        settings = {
            "Dir": str(folder),
            "Dir::Etc": str(folder / "etc"),
            "Dir::Etc::sourcelist": str(folder / "sources.list"),
            "Dir::Etc::sourceparts": str(folder / "etc" / "none"),
            "Dir::Etc::netrc": "/etc/apt/auth.conf",
            "Dir::Etc::netrcparts": "/etc/apt/auth.conf.d",
            "Dir::Etc::trusted": str(_KEYRING),
            "Dir::Etc::trustedparts": "/etc/apt/trusted.gpg.d",
            "Dir::State": str(folder),
            "Dir::State::status": str(folder / "status"),
            "Dir::Cache": str(folder / "cache"),
            "APT::Architecture": "amd64",
            "APT::Architectures": "amd64",
            "APT::Install-Recommends": "false",
            "APT::Sandbox::User": "root",
            "Acquire::Languages": "none",
            "Debug::NoLocking": "true",
        }
        # Words of a command line would show credentials of mirrors to everybody
        (folder / "apt.conf").write_text(apt_config.written({**apt_config.settings(), **settings}))
        self._environment = with_environment({"APT_CONFIG": str(folder / "apt.conf"), "LC_ALL": "C.UTF-8"})

    def update(self) -> None:
        self._run("apt-get", "update", "-q", "--error-on=any")

    def installed(self, names: Sequence[str]) -> dict[str, str]:
        """Name and version of all that comes onto an empty machine with those."""
        said = self._run("apt-get", "install", "-s", "-q", "--no-install-recommends", *BASIC, *names)
        return {match["name"]: match["version"] for match in _INSTALLED.finditer(said)}

    def described(self, packages: Mapping[str, str], before: Mapping[str, Deb]) -> dict[str, dict[str, str]]:
        """The index's fields of each of those versions: of two files with one version the locked one's."""
        named = [f"{name}={version}" for name, version in sorted(packages.items())]
        found: dict[str, dict[str, str]] = {}
        for _, fields in stanzas(self._run("apt-cache", "show", *named)):
            name = fields["Package"]
            if name not in found or is_better_match(before.get(name), fields, found[name]):
                found[name] = fields
        return found

    def _run(self, *command: str) -> str:
        try:
            ended = subprocess.run(
                command,
                env=self._environment,
                capture_output=True,
                encoding="utf-8",
                # A maintainer's name may be in any encoding
                errors="replace",
                check=False,
            )
        except FileNotFoundError as error:
            message = f"packages of Debian are locked with {command[0]}, which is not on this machine"
            raise EngineError(Diagnostic(message, hint=_ON_DEBIAN)) from error
        if ended.returncode == 0:
            return ended.stdout
        tail = tuple(f"{ended.stdout}{ended.stderr}".splitlines()[-_MOST_LINES:])
        if command[1] == "update":
            hint = "the mirrors are those of this machine's apt: see that `apt-get update` works"
            raise BuildError(Diagnostic("a mirror of Debian can't be read", tail=tail, hint=hint))
        hint = "`./bake lock --upgrade` locks all of them anew"
        raise ConflictError(Diagnostic("these packages of Debian don't fit together", tail=tail, hint=hint))

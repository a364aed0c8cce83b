"""Makes the lock of a suite: asks this machine's apt, in folders of its own, which packages images need.

apt checks the mirrors' signatures, and chooses as it would in the image. Nothing of the machine's own state
is read but its mirrors, its way to them, and its keys.
"""

import re
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bakehouse import aptconfig
from bakehouse.aptlock import AptLock, Deb, stanzas, written
from bakehouse.errors import BuildError, ConflictError, Diagnostic, EngineError
from bakehouse.processes import with_environment
from bakehouse.scratch import private_folder

BASIC = ("?essential", "?priority(required)", "apt")
"""What every base has, as patterns of apt."""
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_INSTALLED = re.compile(r"^Inst (?P<name>\S+) (?:\[\S+\] )?\((?P<version>\S+) ", re.MULTILINE)
_MOST_LINES = 20
_ON_DEBIAN = "run it on Debian, or in a container of it"


@dataclass(frozen=True, slots=True)
class Change:
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
    changes: tuple[Change, ...] = ()


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
    mirrors = aptconfig.for_suite(suite, aptconfig.sources())
    if not mirrors:
        message = f"this machine's apt knows no mirror of Debian, to lock packages of `{suite}` from"
        raise EngineError(Diagnostic(message, hint=_ON_DEBIAN))
    before = {deb.name: deb for deb in locked.debs} if locked else {}
    kept = [deb for deb in before.values() if upgrade is not None and not is_meant(deb, before, upgrade)]
    with private_folder(state) as folder:
        apt = _Apt(folder, mirrors, locked.paths if locked else (), kept)
        apt.update()
        found: dict[str, str] = {}
        for names in sorted({tuple(sorted({*one})) for one in wanted}):
            found |= apt.installed(names)
        packages = apt.described(found)
    return Resolved(packages, changes(before, packages))


def concerns(upgrade: Collection[str] | None, locked: Iterable[Deb]) -> bool:
    """Whether an upgrade of packages, None being all of them, is about one that is locked."""
    return upgrade is None or any(deb.name in upgrade for deb in locked)


def is_meant(deb: Deb, known: Mapping[str, Deb], upgrade: Collection[str]) -> bool:
    """Whether a package is to be upgraded: itself, or another one of the same source package."""
    # Some archives have all their packages in one folder, which tells nothing
    folders = {known[name].path.rpartition("/")[0] for name in upgrade if name in known} - {""}
    return deb.name in upgrade or deb.path.rpartition("/")[0] in folders


def changes(before: Mapping[str, Deb], after: Mapping[str, Mapping[str, str]]) -> tuple[Change, ...]:
    """What differs between a lock's packages and others, by name."""
    found = []
    for name in sorted({*before, *after}):
        old = before[name].version if name in before else ""
        new = after[name]["Version"] if name in after else ""
        if old != new:
            found.append(Change(name, old, new))
    return tuple(found)


class _Apt:
    """apt with sources, lists and a state of its own."""

    def __init__(
        self, folder: Path, mirrors: Sequence[aptconfig.AptSource], locks: Sequence[Path], kept: Sequence[Deb]
    ) -> None:
        folder = folder.absolute()
        for part in ("lists/partial", "cache/archives/partial", "etc/preferences.d", "etc/apt.conf.d"):
            (folder / part).mkdir(parents=True)
        (folder / "status").touch()
        (folder / "lock").mkdir()
        # apt reads no comments there
        known = (fields for path in locks for _, fields in stanzas(path.read_text(encoding="utf-8")))
        (folder / "lock" / "Packages").write_text(written(known))
        own = f"{aptconfig.folder_line(folder / 'lock')}\n" if locks else ""
        (folder / "sources.list").write_text(own + "".join(f"{one.line}\n" for one in mirrors))
        pins = (f"Package: {one.name}\nPin: version {one.version}\nPin-Priority: 1001\n" for one in kept)
        (folder / "etc" / "preferences").write_text("\n".join(pins))
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
        (folder / "apt.conf").write_text(aptconfig.written({**aptconfig.settings(), **settings}))
        self._environment = with_environment({"APT_CONFIG": str(folder / "apt.conf"), "LC_ALL": "C.UTF-8"})

    def update(self) -> None:
        self._run("apt-get", "update", "-q", "--error-on=any")

    def installed(self, names: Sequence[str]) -> dict[str, str]:
        """Name and version of all that comes onto an empty machine with those."""
        said = self._run("apt-get", "install", "-s", "-q", "--no-install-recommends", *BASIC, *names)
        return {match["name"]: match["version"] for match in _INSTALLED.finditer(said)}

    def described(self, packages: Mapping[str, str]) -> dict[str, dict[str, str]]:
        """The index's fields of each of those versions."""
        named = [f"{name}={version}" for name, version in sorted(packages.items())]
        found: dict[str, dict[str, str]] = {}
        for _, fields in stanzas(self._run("apt-cache", "show", *named)):
            # The lock's own entry has the same file as a mirror's, whose path counts the same
            found.setdefault(fields["Package"], fields)
        return found

    def _run(self, *command: str) -> str:
        try:
            ended = subprocess.run(
                command, env=self._environment, capture_output=True, text=True, check=False
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

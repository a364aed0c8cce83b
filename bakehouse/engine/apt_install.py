"""Installation of Debian packages with this machine's apt and its configured mirrors."""

import os
import re
import subprocess
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bakehouse.errors import EngineError
from bakehouse.util.files import make_directory, write_whole
from bakehouse.util.heartbeat import heartbeat
from bakehouse.util.terminal import Reporter, detail

PIN = """\
Package: *
Pin: release n={codename}
Pin-Priority: 100
"""
_FORMAT = "$(ORIGIN)|$(LABEL)|$(CODENAME)|$(COMPONENT)|$(SOURCESENTRY)"


@dataclass(frozen=True, slots=True)
class AptEntry:
    """Entry of apt's sources: a file, and the number of a line or stanza in it."""

    path: Path
    number: int

    def text(self) -> str:
        """Return the text of the entry."""
        content = self.path.read_text()
        if self.path.suffix != ".sources":
            return content.splitlines()[self.number - 1]
        stanzas = [stanza for stanza in re.split(r"\n\s*\n", content) if re.search(r"(?m)^[A-Za-z]", stanza)]
        return stanzas[self.number - 1].strip("\n")


def release_entry(targets: str, codename: str) -> AptEntry | None:
    """Return the entry that provides a Debian release, from the output of `apt-get indextargets`.

    Other archives also use the names of Debian's releases, so the entry is selected by origin and label.
    """
    for line in targets.splitlines():
        head, _, entry = line.rpartition("|")
        if head == f"Debian|Debian|{codename}|main":
            path, _, number = entry.rpartition(":")
            return AptEntry(Path(path), int(number))
    return None


def entry_for_release(entry: str, codename: str) -> str:
    """Return the entry for another release: suite and component change; mirror, options and keys do not."""
    if one_line := re.fullmatch(r"\s*deb(\s+\[[^\]]*\])?\s+(\S+)\s+\S+.*", entry):
        return f"deb{one_line[1] or ''} {one_line[2]} {codename} main\n"
    lines = [line for line in entry.splitlines() if not line.startswith("#")]
    fields = re.split(r"\n(?=\S)", "\n".join(lines))
    replaced = {"types": "Types: deb", "suites": f"Suites: {codename}", "components": "Components: main"}
    return "".join(f"{replaced.get(field.partition(':')[0].lower(), field)}\n" for field in fields)


def mirrors(directory: Path = Path("/etc/apt")) -> tuple[str, ...]:
    """Return the mirror URLs of apt's configuration, for display; apt itself takes seconds to list them."""
    entry = re.compile(r"(?m)^(?:deb\s+(?:\[[^\]]*\]\s+)?(\S+)|URIs:\s*(.*\S))")
    files = [directory / "sources.list", *sorted(directory.glob("sources.list.d/*.list"))]
    files += sorted(directory.glob("sources.list.d/*.sources"))
    texts = [path.read_text(errors="replace") for path in files if path.is_file()]
    urls = [url for text in texts for line, uris in entry.findall(text) for url in (line or uris).split()]
    return tuple(dict.fromkeys(urls))


@dataclass(frozen=True, slots=True)
class Apt:
    """The apt of this machine; tests use another configuration directory."""

    log: Path
    directory: Path = Path("/etc/apt")
    options: tuple[str, ...] = ()

    def update(self, report: Reporter) -> None:
        """Download the package lists."""
        detail(report)("apt-get update")
        self._run(["update"], "could not download the package lists", report)

    def add_release(self, own: str, codename: str) -> None:
        """Add a Debian release to apt's sources, pinned so that apt takes only requested packages from it."""
        pin, source = self.release_files(own, codename)
        write_whole(pin, PIN.format(codename=codename))
        write_whole(source, entry_for_release(self._entry(own, codename).text(), codename))

    def install(self, packages: Sequence[str], report: Reporter, release: str = "") -> None:
        """Install packages and their dependencies, optionally from another release."""
        arguments = [f"{package}/{release}" if release else package for package in packages]
        detail(report)(f"apt-get install {' '.join(arguments)}")
        # `package/release` upgrades no installed package; `-t release` would replace libc.
        self._run(
            [
                "install",
                "--yes",
                "--no-install-recommends",
                "-o",
                "Dpkg::Options::=--force-confold",
                *arguments,
            ],
            f"could not install {', '.join(packages)}",
            report,
        )

    def installed(self) -> frozenset[str]:
        """Return the names of the installed packages."""
        command = ["dpkg-query", "--show", "--showformat", "${db:Status-Abbrev} ${Package}\\n"]
        lines = subprocess.run(
            command, env=_environment(), capture_output=True, text=True
        ).stdout.splitlines()
        return frozenset(line.split()[-1] for line in lines if line.startswith("ii"))

    def removed_with(self, packages: Sequence[str]) -> tuple[str, ...]:
        """Return all packages that apt would remove with these."""
        command = ["apt-get", *self.options, "--simulate", "purge", *packages]
        lines = subprocess.run(
            command, env=_environment(), capture_output=True, text=True
        ).stdout.splitlines()
        return tuple(line.split()[1] for line in lines if line.startswith(("Remv ", "Purg ")))

    def purge(self, packages: Sequence[str], report: Reporter) -> None:
        """Remove packages with their configuration."""
        self._run(["purge", "--yes", *packages], f"could not remove {', '.join(packages)}", report)

    def release_files(self, own: str, codename: str) -> tuple[Path, Path]:
        """Return the files that `add_release` writes: the pin, and the entry of the sources."""
        name = f"bakehouse-{codename}"
        suffix = self._entry(own, codename).path.suffix
        return self.directory / "preferences.d" / name, self.directory / "sources.list.d" / f"{name}{suffix}"

    def _entry(self, own: str, codename: str) -> AptEntry:
        command = ["apt-get", *self.options, "indextargets", "--format", _FORMAT, "Created-By: Packages"]
        targets = subprocess.run(command, env=_environment(), capture_output=True, text=True).stdout
        entry = release_entry(targets, own)
        if entry is None:
            raise EngineError(
                f"apt's configuration has no mirror of Debian {own}, which would also provide {codename}",
                hint=f"add Debian {own} (main) to {self.directory}/sources.list",
            )
        return entry

    def _run(self, arguments: Sequence[str], failure: str, report: Reporter) -> None:
        command = ["apt-get", *self.options, "-o", "DPkg::Lock::Timeout=300", *arguments]
        make_directory(self.log.parent)
        with self.log.open("a") as log:
            log.write(f"\n$ {' '.join(command)}\n")
            log.flush()
            with heartbeat(report, f"running: apt-get {arguments[0]}; its log is {self.log}"):
                done = subprocess.run(
                    command, env=_environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
        if done.returncode:
            with self.log.open(errors="replace") as lines:
                tail = tuple(line.rstrip() for line in deque(lines, maxlen=6))
            raise EngineError(f"apt-get {failure}", tail=tail, hint=f"read {self.log}")


def _environment() -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_MODE": "a"}

"""Installs Debian packages with the machine's own apt, whose configuration alone knows the mirrors."""

import os
import re
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bakehouse.errors import Diagnostic, EngineError
from bakehouse.util.files import write_whole

PIN = """\
Package: *
Pin: release n={codename}
Pin-Priority: 100
"""
_FORMAT = "$(ORIGIN)|$(LABEL)|$(CODENAME)|$(COMPONENT)|$(SOURCESENTRY)"


@dataclass(frozen=True, slots=True)
class AptEntry:
    """One entry of apt's configuration, as apt names it: a file, and a line or stanza in it."""

    path: Path
    number: int

    def text(self) -> str:
        """The entry itself, word for word."""
        content = self.path.read_text()
        if self.path.suffix != ".sources":
            return content.splitlines()[self.number - 1]
        stanzas = [stanza for stanza in re.split(r"\n\s*\n", content) if re.search(r"(?m)^[A-Za-z]", stanza)]
        return stanzas[self.number - 1].strip("\n")


def release_entry(targets: str, codename: str) -> AptEntry | None:
    """The entry through which this machine gets a Debian release, from what `apt-get indextargets` printed.

    Other archives use Debian's release names too: Debian's origin and label count, not the entry's words.
    """
    for line in targets.splitlines():
        head, _, entry = line.rpartition("|")
        if head == f"Debian|Debian|{codename}|main":
            path, _, number = entry.rpartition(":")
            return AptEntry(Path(path), int(number))
    return None


def entry_for_release(entry: str, codename: str) -> str:
    """The same entry for another release: mirror, options and keys stay, only suite and component change."""
    if one_line := re.fullmatch(r"\s*deb(\s+\[[^\]]*\])?\s+(\S+)\s+\S+.*", entry):
        return f"deb{one_line[1] or ''} {one_line[2]} {codename} main\n"
    lines = [line for line in entry.splitlines() if not line.startswith("#")]
    fields = re.split(r"\n(?=\S)", "\n".join(lines))
    given = {"types": "Types: deb", "suites": f"Suites: {codename}", "components": "Components: main"}
    return "".join(f"{given.get(field.partition(':')[0].lower(), field)}\n" for field in fields)


def mirrors(folder: Path = Path("/etc/apt")) -> tuple[str, ...]:
    """The addresses that apt's configuration names, for people to read; apt itself takes seconds to say."""
    entry = re.compile(r"(?m)^(?:deb\s+(?:\[[^\]]*\]\s+)?(\S+)|URIs:\s*(.*\S))")
    files = [folder / "sources.list", *sorted(folder.glob("sources.list.d/*.list"))]
    files += sorted(folder.glob("sources.list.d/*.sources"))
    texts = [path.read_text(errors="replace") for path in files if path.is_file()]
    found = [word for text in texts for one, many in entry.findall(text) for word in (one or many).split()]
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class Apt:
    """The machine's apt; `folder` is /etc/apt but in tests."""

    log: Path
    folder: Path = Path("/etc/apt")
    options: tuple[str, ...] = ()

    def update(self, report: Callable[[str], None]) -> None:
        """Fetch the lists of packages."""
        report("apt-get update")
        self._run(["update"], "could not fetch its lists of packages")

    def add_release(self, known: str, codename: str) -> None:
        """Make a Debian release known beside the machine's own, so low that nothing comes from it unasked."""
        command = ["apt-get", *self.options, "indextargets", "--format", _FORMAT, "Created-By: Packages"]
        targets = subprocess.run(command, env=_environment(), capture_output=True, text=True).stdout
        entry = release_entry(targets, known)
        if entry is None:
            message = (
                f"apt's configuration names no mirror of Debian {known}, which would have {codename} too"
            )
            raise EngineError(Diagnostic(message, hint=f"add Debian {known} (main) under {self.folder}"))
        name = f"bakehouse-{codename}"
        write_whole(self.folder / "preferences.d" / name, PIN.format(codename=codename))
        source = self.folder / "sources.list.d" / f"{name}{entry.path.suffix}"
        write_whole(source, entry_for_release(entry.text(), codename))

    def install(self, packages: Sequence[str], report: Callable[[str], None], release: str = "") -> None:
        """Install packages and what they need, from another release where one is named."""
        wanted = [f"{package}/{release}" if release else package for package in packages]
        report(f"apt-get install {' '.join(wanted)}")
        # With `package/release` nothing that is installed is upgraded; `-t release` would replace libc.
        self._run(
            ["install", "--yes", "--no-install-recommends", "-o", "Dpkg::Options::=--force-confold", *wanted],
            f"could not install {', '.join(packages)}",
        )

    def _run(self, arguments: Sequence[str], failure: str) -> None:
        command = ["apt-get", *self.options, "-o", "DPkg::Lock::Timeout=300", *arguments]
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("a") as log:
            log.write(f"\n$ {' '.join(command)}\n")
            log.flush()
            done = subprocess.run(
                command, env=_environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        if done.returncode:
            with self.log.open(errors="replace") as lines:
                tail = tuple(line.rstrip() for line in deque(lines, maxlen=6))
            raise EngineError(Diagnostic(f"apt-get {failure}", tail=tail, hint=f"read {self.log}"))


def _environment() -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_MODE": "a"}

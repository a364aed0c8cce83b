"""Reads this machine's own apt configuration: where a suite comes from, and how to reach it."""

import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

_SETTING = re.compile(r'(?P<key>\S+) "(?P<value>.*)";')
_CARRIED = re.compile(
    r"Acquire::(?:https?::(?:Proxy|Timeout|CaInfo|Verify-Peer|Verify-Host)(?:::\S+)?|"
    r"Retries|Check-Valid-Until|Check-Date|ForceIPv[46])",
    re.IGNORECASE,
)
_SHOWN = "$(ORIGIN)|$(LABEL)|$(SITE)|$(RELEASE)|$(COMPONENT)"
_TARGETS = ("indextargets", "--format", _SHOWN, "Created-By: Packages")


@dataclass(frozen=True, slots=True)
class AptSource:
    """A suite on a Debian mirror."""

    label: str
    """`Debian`, or `Debian-Security` for security updates."""
    url: str
    suite: str
    components: tuple[str, ...]

    @property
    def line(self) -> str:
        return f"deb {self.url} {self.suite} {' '.join(self.components)}"


def sources() -> tuple[AptSource, ...]:
    """Every suite of Debian that this machine's apt knows."""
    # apt tells nothing of a source whose lists it has not fetched, as in a fresh container.
    return read_targets(_output("apt-get", *_TARGETS) or _fetched_targets())


def read_targets(text: str) -> tuple[AptSource, ...]:
    """The sources in apt's own list of them; other archives may use the names of Debian's suites."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for line in text.splitlines():
        origin, label, url, suite, component = line.split("|")
        if origin == "Debian":
            found.setdefault((label, url, suite), []).append(component)
    return tuple(AptSource(*place, tuple(dict.fromkeys(parts))) for place, parts in sorted(found.items()))


def for_suite(suite: str, known: Iterable[AptSource]) -> tuple[AptSource, ...]:
    """Return the sources of a suite, its updates and security updates; empty without a Debian mirror.

    What apt has no entry for is taken from the mirrors that it has for other suites.
    """
    known = tuple(known)
    wanted = (("Debian", suite), ("Debian", f"{suite}-updates"), ("Debian-Security", f"{suite}-security"))
    found: list[AptSource] = []
    for label, name in wanted:
        mirrors = dict.fromkeys(source.url for source in known if source.label == label)
        given = [source for source in known if (source.label, source.suite) == (label, name)]
        found += given or [AptSource(label, url, name, ("main",)) for url in mirrors]
    return tuple(found)


def settings() -> dict[str, str]:
    """Return apt's network settings: proxies, certificates, retries, checks of dates."""
    return read_settings(_output("apt-config", "dump"))


def read_settings(text: str) -> dict[str, str]:
    """Read the settings from the output of `apt-config dump`."""
    matches = (_SETTING.fullmatch(line) for line in text.splitlines())
    return {match["key"]: match["value"] for match in matches if match and _CARRIED.fullmatch(match["key"])}


def written(given: Mapping[str, str]) -> str:
    """Settings as a file that apt reads."""
    return "".join(f'{key} "{value}";\n' for key, value in given.items())


def folder_line(folder: Path) -> str:
    """The entry of a folder of this machine that has an index of its packages; nobody has signed it."""
    return f"deb [trusted=yes] copy:{quote(str(folder.absolute()))} ./"


def _fetched_targets() -> str:
    """Return apt's targets, with package lists downloaded to a temporary directory."""
    with tempfile.TemporaryDirectory() as folder:
        for part in ("lists/partial", "cache/archives/partial"):
            Path(folder, part).mkdir(parents=True)
        aside = ("-o", f"Dir::State::lists={folder}/lists/", "-o", f"Dir::Cache={folder}/cache/")
        _output("apt-get", *aside, "update")
        return _output("apt-get", *aside, *_TARGETS)


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        return ""

"""Reads this machine's own apt configuration: where a suite comes from, and how to reach it."""

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

_SETTING = re.compile(r'(?P<key>\S+) "(?P<value>.*)";')
_CARRIED = re.compile(
    r"Acquire::(?:https?::(?:[^:]+::)?(?:Proxy|Timeout|CaInfo|Verify-Peer|Verify-Host)|"
    r"Retries|Check-Valid-Until|Check-Date|ForceIPv[46])",
    re.IGNORECASE,
)
_SHOWN = "$(ORIGIN)|$(LABEL)|$(SITE)|$(RELEASE)|$(COMPONENT)"
_TARGETS = ("indextargets", "--format", _SHOWN, "Created-By: Packages")


@dataclass(frozen=True, slots=True)
class AptSource:
    """One suite on one mirror of Debian."""

    label: str
    """`Debian`, or `Debian-Security` for security updates."""
    url: str
    suite: str
    components: tuple[str, ...]

    @property
    def line(self) -> str:
        return f"deb {self.url} {self.suite} {' '.join(self.components)}"


def sources() -> tuple[AptSource, ...]:
    """Every suite of Debian that this machine's apt knows; other archives may use Debian's names."""
    # apt tells nothing of a source whose lists it has not fetched, as in a fresh container.
    targets = _output("apt-get", *_TARGETS) or _fetched_targets()
    found: dict[tuple[str, str, str], list[str]] = {}
    for line in targets.splitlines():
        origin, label, url, suite, component = line.split("|")
        if origin == "Debian":
            found.setdefault((label, url, suite), []).append(component)
    return tuple(AptSource(*place, tuple(dict.fromkeys(parts))) for place, parts in sorted(found.items()))


def sources_of(suite: str) -> tuple[AptSource, ...]:
    """Where `suite`, its updates and security updates come from; empty where apt knows no mirror of Debian.

    What apt has no entry for is taken from the mirrors that it has for other suites.
    """
    known = sources()
    wanted = (("Debian", suite), ("Debian", f"{suite}-updates"), ("Debian-Security", f"{suite}-security"))
    found: list[AptSource] = []
    for label, name in wanted:
        mirrors = dict.fromkeys(source.url for source in known if source.label == label)
        given = [source for source in known if (source.label, source.suite) == (label, name)]
        found += given or [AptSource(label, url, name, ("main",)) for url in mirrors]
    return tuple(found)


def settings() -> dict[str, str]:
    """How apt reaches its mirrors: proxies, certificates, retries, what it checks of a mirror's date."""
    matches = (_SETTING.fullmatch(line) for line in _output("apt-config", "dump").splitlines())
    return {match["key"]: match["value"] for match in matches if match and _CARRIED.fullmatch(match["key"])}


def text(given: dict[str, str]) -> str:
    """Settings as a file that apt reads."""
    return "".join(f'{key} "{value}";\n' for key, value in given.items())


def _fetched_targets() -> str:
    """What apt tells once it has its lists, fetched into a folder that is none of the machine's."""
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

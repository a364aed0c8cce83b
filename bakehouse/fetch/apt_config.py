"""Reader of the apt configuration of this machine: mirrors of suites, and network settings."""

import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from bakehouse.util.process import MISSING_PROGRAM, with_environment
from bakehouse.util.tempdir import require_space, scratch_directory

_SETTING = re.compile(r'(?P<key>\S+) "(?P<value>.*)";')
_CARRIED = re.compile(
    r"Acquire::(?:https?::(?:Proxy|Timeout|CaInfo|Verify-Peer|Verify-Host)(?:::\S+)?|"
    r"Retries|Check-Valid-Until|Check-Date|ForceIPv[46])",
    re.IGNORECASE,
)
_SHOWN = "$(ORIGIN)|$(LABEL)|$(SITE)|$(RELEASE)|$(COMPONENT)"
SECURITY = "Debian-Security"
"""Label of the archive of security updates."""
_TARGETS = ("indextargets", "--format", _SHOWN, "Created-By: Packages")


@dataclass(frozen=True, slots=True)
class AptSource:
    """A suite on a Debian mirror."""

    label: str
    """`Debian`, or that of security updates."""
    url: str
    suite: str
    components: tuple[str, ...]

    @property
    def line(self) -> str:
        return f"deb {self.url} {self.suite} {' '.join(self.components)}"


def sources() -> tuple[AptSource, ...]:
    """Return all Debian suites in the configuration of apt."""
    # apt lists no source without downloaded package lists, as in a fresh container.
    return read_targets(_output("apt-get", *_TARGETS) or _fetched_targets())


def read_targets(text: str) -> tuple[AptSource, ...]:
    """Read Debian's sources from the output of apt; other archives may have suites of the same name."""
    components: dict[tuple[str, str, str], list[str]] = {}
    for line in text.splitlines():
        origin, label, url, suite, component = line.split("|")
        if origin == "Debian":
            components.setdefault((label, url, suite), []).append(component)
    return tuple(AptSource(*key, tuple(dict.fromkeys(names))) for key, names in sorted(components.items()))


def for_suite(suite: str, configured: Iterable[AptSource]) -> tuple[AptSource, ...]:
    """Return the sources of a suite, its updates and security updates; empty without a Debian mirror.

    Suites that are not configured use the mirrors of other suites.
    """
    configured = tuple(configured)
    names = (("Debian", suite), ("Debian", f"{suite}-updates"), (SECURITY, f"{suite}-security"))
    selected: list[AptSource] = []
    for label, name in names:
        mirrors = dict.fromkeys(source.url for source in configured if source.label == label)
        exact = [source for source in configured if (source.label, source.suite) == (label, name)]
        selected += exact or [AptSource(label, url, name, ("main",)) for url in mirrors]
    return tuple(selected)


def settings() -> dict[str, str]:
    """Return apt's network settings: proxies, certificates, retries, checks of dates."""
    return read_settings(_output("apt-config", "dump"))


def read_settings(text: str) -> dict[str, str]:
    """Read the settings from the output of `apt-config dump`."""
    matches = (_SETTING.fullmatch(line) for line in text.splitlines())
    return {match["key"]: match["value"] for match in matches if match and _CARRIED.fullmatch(match["key"])}


def written(values: Mapping[str, str]) -> str:
    """Format settings as a configuration file of apt."""
    return "".join(f'{key} "{value}";\n' for key, value in values.items())


def directory_line(directory: Path) -> str:
    """Return the apt source of a local directory with an unsigned package index."""
    return f"deb [trusted=yes] copy:{quote(str(directory.absolute()))} ./"


def _fetched_targets() -> str:
    """Return apt's targets, with package lists downloaded to a temporary directory."""
    with scratch_directory() as directory:
        for name in ("lists/partial", "cache/archives/partial"):
            (directory / name).mkdir(parents=True)
        options = ("-o", f"Dir::State::lists={directory}/lists/", "-o", f"Dir::Cache={directory}/cache/")
        require_space(_run("apt-get", *options, "update")[1], directory)
        return _output("apt-get", *options, *_TARGETS)


def _output(*command: str) -> str:
    return _run(*command)[0]


def _run(*command: str) -> tuple[str, str]:
    """Return what a program prints to its standard output and error; nothing if it is missing."""
    environment = with_environment({"LC_ALL": "C.UTF-8"})
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    except MISSING_PROGRAM:
        return "", ""
    return done.stdout, done.stderr

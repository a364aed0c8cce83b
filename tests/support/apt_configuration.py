"""apt's configuration of a machine, in a directory of the test."""

from pathlib import Path

import pytest

from bakehouse.fetch import apt_config, debian_mirrors

RELEASE = "Origin: {origin}\nLabel: {label}\nSuite: {suite}\n"


class AptConfiguration:
    """The files of apt, which has downloaded the release files of the suites; nothing without one."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory, self.lists = directory / "etc-apt", directory / "var-lists"
        for path in (self.directory, self.lists):
            path.mkdir(exist_ok=True)
        monkeypatch.setattr(apt_config, "APT", self.directory)
        monkeypatch.setattr(debian_mirrors, "LISTS", self.lists)
        # Tests ask no server of Debian
        monkeypatch.setattr(debian_mirrors, "_debians_own", tuple)
        monkeypatch.delenv("APT_CONFIG", raising=False)

    def settings(self, text: str) -> None:
        (self.directory / "apt.conf").write_text(text)

    def suite(self, url: str, suite: str, label: str = "Debian", origin: str = "Debian") -> None:
        """Add a suite that apt has the release file of."""
        with (self.directory / "sources.list").open("a") as sources:
            sources.write(f"deb {url} {suite} main\n")
        address = url.partition("://")[2].rpartition("@")[2].rstrip("/")
        name = f"{address.replace('/', '_')}_dists_{suite}_InRelease"
        (self.lists / name).write_text(RELEASE.format(origin=origin, label=label, suite=suite))

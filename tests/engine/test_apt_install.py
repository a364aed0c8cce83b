"""Packages of the next Debian release, from the mirror of the machine's apt configuration."""

import subprocess
from pathlib import Path

import pytest

from bakehouse.engine import apt_install
from bakehouse.engine.apt_install import Apt, AptEntry
from bakehouse.errors import EngineError
from bakehouse.util import heartbeat, terminal
from tests.support.data import text_of
from tests.support.errors import raised, refusal
from tests.support.fake_commands import put

# As apt prints them: another vendor uses the release's name too, and Debian has several archives.
TARGETS = """\
|Vendor|bookworm|main|/etc/apt/sources.list.d/vendor.list:1
Debian|Debian-Security|bookworm-security|main|/etc/apt/sources.list.d/debian.sources:2
Debian|Debian|bookworm|contrib|/etc/apt/sources.list.d/debian.sources:1
Debian|Debian|bookworm|main|/etc/apt/sources.list.d/debian.sources:1
"""
ONE_LINE = "deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian bookworm main contrib # ours\n"
STANZAS = text_of(__file__, "stanzas")


def test_debians_own_archive_is_found() -> None:
    assert apt_install.release_entry(TARGETS, "bookworm") == AptEntry(
        Path("/etc/apt/sources.list.d/debian.sources"), 1
    )


def test_no_archive_of_that_release() -> None:
    assert apt_install.release_entry(TARGETS, "trixie") is None


def test_an_entry_of_one_line(tmp_path: Path) -> None:
    path = tmp_path / "sources.list"
    path.write_text(f"# main\n\n{ONE_LINE}")

    assert apt_install.entry_for_release(AptEntry(path, 3).text(), "trixie") == (
        "deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian trixie main\n"
    )


def test_a_stanza(tmp_path: Path) -> None:
    path = tmp_path / "debian.sources"
    path.write_text(STANZAS)

    assert apt_install.entry_for_release(AptEntry(path, 2).text(), "trixie") == (
        "Types: deb\n"
        "URIs: http://mirror.example/debian\n"
        " http://second.example/debian\n"
        "Suites: trixie\n"
        "Components: main\n"
        "Signed-By:\n"
        " -----BEGIN PGP PUBLIC KEY BLOCK-----\n"
        " .\n"
        " mQ==\n"
    )


def test_the_mirrors_of_both_formats(tmp_path: Path) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list").write_text(f"{ONE_LINE}#deb http://off.example x main\n")
    (tmp_path / "sources.list.d" / "debian.sources").write_text(STANZAS)
    (tmp_path / "sources.list.d" / "off.sources.disabled").write_text("URIs: http://off.example\n")

    assert apt_install.mirrors(tmp_path) == (
        "http://mirror.example/debian",
        "http://mirror.example/debian-security",
    )


def test_a_machine_without_apt_has_no_mirrors(tmp_path: Path) -> None:
    assert apt_install.mirrors(tmp_path) == ()


def has_apt() -> bool:
    return subprocess.run(["sh", "-c", "command -v apt-get"], capture_output=True).returncode == 0


@pytest.mark.skipif(not has_apt(), reason="needs apt-get")
def test_a_configuration_without_debian(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    options = ("-o", "Dir::Etc::sourcelist=/dev/null", "-o", f"Dir::Etc::sourceparts={tmp_path / 'parts'}")
    machine = Apt(tmp_path / "log", tmp_path, options)

    assert refusal(EngineError, machine.add_release, "bookworm", "trixie") == (
        "error: apt's configuration has no mirror of Debian bookworm, which would also provide trixie\n"
        "\n"
        f"hint: add Debian bookworm (main) to {tmp_path}/sources.list\n"
    )


@pytest.mark.skipif(not has_apt(), reason="needs apt-get")
def test_a_failed_installation_shows_the_output_of_apt(tmp_path: Path) -> None:
    machine = Apt(tmp_path / "log", tmp_path, ("-o", "Dir::State::lists=/dev/null/none", "--simulate"))

    [failure] = raised(EngineError, machine.install, ["no-such-package"], lambda line: None).diagnostics
    assert failure.message == "apt-get could not install no-such-package"
    assert "no-such-package" in " ".join(failure.tail)
    assert failure.hint == f"read {tmp_path / 'log'}"


def test_an_installation_that_takes_long_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "_is_verbose", True)
    monkeypatch.setattr(heartbeat, "SILENT_SECONDS", 0.0)
    monkeypatch.setattr(heartbeat, "_TICK_SECONDS", 0.01)
    put(tmp_path, monkeypatch, apt_get="sleep 0.3")
    lines: list[str] = []
    Apt(tmp_path / "log", tmp_path).update(lines.append)
    assert lines[0] == "apt-get update"
    assert lines[1].rpartition(" (")[0] == f"still running: apt-get update; its log is {tmp_path / 'log'}"

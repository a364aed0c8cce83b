"""The script that explains `apt-get update` in an image without apt sources."""

import subprocess
from pathlib import Path

import pytest

from bakehouse.catalog.project import HOME

SCRIPT = HOME / "templates/bin/require-apt-sources"


def run(directory: Path) -> "subprocess.CompletedProcess[str]":
    """Run the script on the files of a directory in place of /etc."""
    text = SCRIPT.read_text(encoding="utf-8").replace("/etc/", f"{directory}/")
    release = 'HOME_URL="https://www.example.org/"\nVERSION_CODENAME=bookworm\n'
    (directory / "os-release").write_text(release)
    return subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=False)


def sources(directory: Path, name: str, text: str) -> None:
    path = directory / "apt" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize("text", ["", "# deb http://deb.example.org/debian bookworm main\n"])
def test_without_sources_it_fails_and_names_them(tmp_path: Path, text: str) -> None:
    sources(tmp_path, "sources.list", text)
    result = run(tmp_path)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        "error: this image has no apt sources, because Bakehouse installs locked packages\n"
        "hint: add packages to `packages` of the recipe, or add sources before `apt-get update`:\n"
        '      echo "deb http://deb.example.org/debian bookworm main" '
        f"> {tmp_path}/apt/sources.list.d/debian.list\n"
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sources.list", "deb http://deb.example.org/debian bookworm main\n"),
        ("sources.list.d/machine.list", "# ours\n  deb [trusted=yes] http://x y main\n"),
        ("sources.list.d/debian.sources", "Types: deb\nURIs: http://x\n"),
    ],
)
def test_with_sources_it_does_nothing(tmp_path: Path, name: str, text: str) -> None:
    sources(tmp_path, name, text)
    result = run(tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")

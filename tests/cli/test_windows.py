"""The entry points. Windows itself is simulated: its name, and no modules that only POSIX systems have."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from bakehouse.catalog.project import HOME

ENTRY_POINT = "bakehouse.__main__:main"
BAKE_ON_WINDOWS = """\
import sys
sys.platform = "{}"
sys.modules |= dict.fromkeys(["fcntl", "grp", "pwd", "resource", "termios"])
from bakehouse.__main__ import main
main()
"""
ANSWER = """\
error: Bakehouse does not run on Windows itself
  because images are for Linux, and it needs the files and locks of a POSIX system

hint: run `wsl --install`, then install Python and a container engine in WSL2 and run the command there
"""


def run(platform: str, *words: str) -> tuple[int, str, str]:
    code = BAKE_ON_WINDOWS.format(platform)
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=HOME, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("platform", ["win32", "cygwin"])
@pytest.mark.parametrize("words", ["explain mpi-cpu", "build mpi-cpu"])
def test_every_command_says_that_it_needs_wsl2(platform: str, words: str) -> None:
    assert run(platform, *words.split()) == (1, "", ANSWER)


def test_the_same_entry_point_runs_on_other_systems() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bakehouse", "--version"], cwd=HOME, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.split()[0]) == (0, "bake")


def test_modules_in_the_current_directory_are_not_imported(tmp_path: Path) -> None:
    """Python itself imports some modules of its library, before Bakehouse can leave the directory out."""
    done = subprocess.run(
        [sys.executable, "-P", "-X", "importtime", "-m", "bakehouse", "--version"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    before = done.stderr.partition("bakehouse")[0]
    own = {name for name in sys.stdlib_module_names if not re.search(rf"\|\s+{name}\b", before)}
    for name in (*own, "packaging", "yaml", "jinja2", "msgspec", "docker"):
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('imported {name}')\n")

    for words in (["--version"], ["list"]):
        done = subprocess.run(
            [sys.executable, "-m", "bakehouse", *words], cwd=tmp_path, capture_output=True, text=True
        )
        assert (done.returncode, "imported" in done.stdout + done.stderr) == (0, False), done.stderr


def test_the_installed_command_has_this_entry_point() -> None:
    settings = tomllib.loads((HOME / "pyproject.toml").read_text())
    assert settings["project"]["scripts"] == {"bake": ENTRY_POINT, "bakehouse": ENTRY_POINT}


def test_urls_of_images_are_found_on_windows() -> None:
    code = BAKE_ON_WINDOWS.format("win32").replace("from bakehouse.__main__ import main\nmain()", "")
    code += "import bakehouse.image_uris"
    subprocess.run([sys.executable, "-c", code], cwd=HOME, check=True)

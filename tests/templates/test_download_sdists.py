"""The script that downloads source distributions runs none of their code, whatever index has them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bakehouse.catalog.project import HOME
from tests.support.sdists import WITNESS, hostile, sdist
from tests.support.wheels import sha256, wheel

SCRIPT = HOME / "templates/bin/download-sdists"


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """A directory with two releases of a project, and a wheel of one."""
    directory = tmp_path / "index"
    for version in ("1.0", "2.0"):
        sdist(directory, "bad", version, hostile("bad", version, tmp_path))
    wheel(directory, "bad", "1.0")
    return directory


def download(index: Path, *lines: str) -> subprocess.CompletedProcess[str]:
    (index.parent / "list.txt").write_text("".join(f"{line}\n" for line in lines))
    return subprocess.run(
        [sys.executable, SCRIPT, index.parent / "list.txt", index.parent / "sdists"],
        env={**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index), "PIP_CONFIG_FILE": os.devnull},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_file_with_the_checksum_is_downloaded_and_not_run(index: Path) -> None:
    file = index / "bad-1.0.tar.gz"

    result = download(index, f"bad==1.0 --hash=sha256:{sha256(file)}")

    assert (result.returncode, result.stderr) == (0, "")
    [path] = (index.parent / "sdists").iterdir()
    assert (path.name, path.read_bytes()) == (file.name, file.read_bytes())
    assert not (index.parent / WITNESS).exists()


def test_a_page_of_links_is_an_index(index: Path) -> None:
    """Steps on a remote builder get such a page, and the files next to it."""
    file = index / "bad-1.0.tar.gz"
    page = index / "index.html"
    page.write_text(f'<a href="{file.name}#sha256={sha256(file)}">{file.name}</a>')

    result = download(page, f"bad==1.0 --hash=sha256:{sha256(file)}")

    assert (result.returncode, result.stderr) == (0, "")
    assert (index / "sdists" / file.name).read_bytes() == file.read_bytes()


def test_pip_would_run_it(index: Path) -> None:
    """Else the test above proves nothing."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--no-build-isolation",
        "--no-binary=:all:",
    ]
    environment = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index)}
    subprocess.run([*command, "-d", index.parent / "x", "bad==1.0"], env=environment, capture_output=True)

    assert (index.parent / WITNESS).exists()


def test_a_file_with_another_checksum_is_refused(index: Path) -> None:
    result = download(index, f"bad==2.0 --hash=sha256:{'0' * 64}")

    assert result.returncode == 1
    assert result.stderr == f"download-sdists: no index has a file of bad 2.0 with sha256 {'0' * 64}\n"

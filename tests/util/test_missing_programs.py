"""Programs that are not installed, for a user who may not read a directory of PATH."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bakehouse.catalog import git_history
from bakehouse.engine import daemon_info
from bakehouse.errors import BakehouseError
from bakehouse.fetch.connection import bundle_of
from bakehouse.fetch.pip_config import PipConfig
from bakehouse.maintain import isolated_engine
from bakehouse.util import git
from tests.support.errors import raised

_NOBODY = 65534


@contextlib.contextmanager
def ordinary_user() -> Iterator[None]:
    """Give up the rights of root, also those of programs that are started."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@contextlib.contextmanager
def closed_directory(parent: Path) -> Iterator[Path]:
    """Make a directory that only root can read, and continue as an ordinary user."""
    closed = parent / "closed"
    (closed / "bin").mkdir(parents=True)
    closed.chmod(0)
    try:
        with ordinary_user():
            yield closed
    finally:
        closed.chmod(0o700)


@pytest.fixture
def closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with closed_directory(tmp_path) as directory:
        monkeypatch.setenv("PATH", str(directory / "bin"))
        with pytest.raises(PermissionError):
            (directory / "bin").exists()
        yield directory


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        (lambda: daemon_info.run_program("no-such-program").code, 127),
        (lambda: isolated_engine._try("no-such-program").returncode, 127),
    ],
)
def test_a_missing_program_has_no_answer(closed: Path, ask: Callable[[], object], answer: object) -> None:
    assert ask() == answer


@pytest.mark.parametrize(
    ("ask", "message"), [(lambda: git_history._git(Path("/"), "version"), "`git` is not installed")]
)
def test_a_missing_program_is_named(closed: Path, ask: Callable[[], object], message: str) -> None:
    assert raised(BakehouseError, ask).diagnostics[0].message == message


def test_a_missing_git_is_the_reason(closed: Path) -> None:
    with pytest.raises(git.GitError, match="cannot be read, because `git` is not installed"):
        git._git("version")


def test_certificates_that_cannot_be_read_are_passed_over(closed: Path) -> None:
    pip = PipConfig(cert=str(closed / "bin/ca.pem"))
    environment = {"SSL_CERT_FILE": str(closed / "bin/ca.pem")}

    assert bundle_of(None, pip, environment) == bundle_of(None, PipConfig(), {})

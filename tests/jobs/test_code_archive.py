"""Training code as an archive."""

import io
import os
import tarfile
import tempfile
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.catalog import source_tree
from bakehouse.catalog.source_tree import SourceTree
from bakehouse.errors import Diagnostic, Location, UsageError
from bakehouse.jobs import code_archive
from tests.support.errors import raised


def select(source: Path) -> SourceTree:
    return code_archive.select(source, "", lambda line: None)


def names(source: Path) -> list[str]:
    with code_archive.pack(select(source)) as archive, tarfile.open(fileobj=archive) as opened:
        return opened.getnames()


def mistakes(source: Path) -> list[str]:
    with pytest.raises(UsageError) as caught, code_archive.pack(select(source)):
        pass
    return [diagnostic.message for diagnostic in caught.value.diagnostics]


def test_a_directory_is_packed_with_its_files_at_the_top(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "train.py").write_text("pass\n")
    (tmp_path / "deep/more.py").write_text("pass\n")

    assert names(tmp_path) == ["deep/more.py", "train.py"]


def test_a_script_alone_is_packed_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "other.py").write_text("")

    assert names(tmp_path / "train.py") == ["train.py"]


def test_files_that_are_not_code_are_not_sent(tmp_path: Path) -> None:
    for path in ("__pycache__/x", ".git/x", ".venv/pyvenv.cfg", "runs/a.ckpt", "runs/b.ckpt", "train.py"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text("")
    (tmp_path / ".dockerignore").write_text("# large\n**/*.ckpt\n.dockerignore\n")
    lines: list[str] = []
    code_archive.select(tmp_path, "train.py", lines.append)

    assert names(tmp_path) == ["train.py"]
    assert list(code_archive.read_files(select(tmp_path))) == ["train.py"]
    assert lines == [
        f"not sent: {tmp_path}/.dockerignore:2 **/*.ckpt: 2 files",
        f"not sent: {tmp_path}/.dockerignore:3 .dockerignore: 1 file",
        "not sent: caches (__pycache__): 1 directory",
        "not sent: version control (.git): 1 directory",
        "not sent: virtual environments (.venv): 1 directory",
    ]


def test_an_entry_point_that_is_not_sent_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/train.py").write_text("")
    (tmp_path / ".dockerignore").write_text("jobs\n")

    assert raised(UsageError, code_archive.select, tmp_path, "jobs/train.py", print).diagnostics == (
        Diagnostic(
            f"`jobs/train.py` is not sent with the job: {tmp_path}/.dockerignore:1 jobs",
            hint="change that line, or add an exception for `jobs/train.py` below it",
        ),
    )


def test_secrets_are_not_sent(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("# Token\nTOKEN = 'ghp_" + 36 * "a" + "'\n")
    (tmp_path / "test.py").write_text("TOKEN = 'ghp_" + 36 * "a" + "'  # gitleaks:allow\n")

    assert raised(UsageError, select, tmp_path).diagnostics == (
        Diagnostic(
            "`train.py` contains a GitHub token",
            Location(tmp_path / "train.py", 2, 1),
            hint="remove `train.py`, or name it in `.dockerignore`; "
            "if it is harmless, end the line with `# gitleaks:allow`",
        ),
    )


def test_a_directory_of_data_is_rejected_as_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_archive, "LIMITS", replace(code_archive.LIMITS, total_bytes=10))
    (tmp_path / "data").write_bytes(b"x" * 11)

    with pytest.raises(UsageError) as caught, code_archive.pack(select(tmp_path)):
        pass

    assert caught.value.diagnostics == (
        Diagnostic(
            f"`{tmp_path.name}` contains more than 0 MB",
            hint="use a directory with training code only, and a channel for data",
        ),
    )


def test_targets_of_links_in_the_project_are_sent(tmp_path: Path) -> None:
    """The target of a link does not exist in the image."""
    shared, source = tmp_path / "shared", tmp_path / "src"
    (tmp_path / "pyproject.toml").write_text("[tool.bakehouse]\n")
    (shared / "deep").mkdir(parents=True)
    (shared / "deep/more.py").write_text("more")
    source.mkdir()
    (source / "train.py").symlink_to(shared / "deep/more.py")
    (source / "lib").symlink_to(shared)
    (source / "same").symlink_to(shared)

    expected = {"lib/deep/more.py": b"more", "same/deep/more.py": b"more", "train.py": b"more"}
    assert code_archive.read_files(select(source)) == expected
    with code_archive.pack(select(source)) as archive, tarfile.open(fileobj=archive) as opened:
        assert {member.name: member.isreg() for member in opened} == dict.fromkeys(expected, True)
    (tmp_path / "pyproject.toml").unlink()
    assert mistakes(source) == [
        f"`lib` links to `{shared}`, which is outside the project",
        f"`same` links to `{shared}`, which is outside the project",
        f"`train.py` links to `{shared}/deep/more.py`, which is outside the project",
    ]


def test_an_archive_is_not_kept_in_memory(tmp_path: Path) -> None:
    with (tmp_path / "weights.bin").open("wb") as file:
        for _ in range(50):
            file.write(os.urandom(1_000_000))
    tracemalloc.start()
    with code_archive.pack(select(tmp_path)):
        _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 20_000_000


def test_a_full_disk_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "weights.bin").write_bytes(os.urandom(100_000))
    with Path("/dev/full").open("r+b", buffering=0) as full:
        monkeypatch.setattr(tempfile, "TemporaryFile", lambda: io.BufferedRandom(full))
        assert mistakes(tmp_path) == [f"can't write an archive of `{tmp_path}`: No space left on device"]


def test_an_unreadable_file_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key.pem").write_text("")

    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(source_tree, "secret_in_file", refused)

    assert mistakes(tmp_path) == ["cannot read `key.pem`: permission denied"]

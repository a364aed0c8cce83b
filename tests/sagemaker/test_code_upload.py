"""Training code as an archive."""

import io
import tarfile
from pathlib import Path

import pytest

from bakehouse.errors import Diagnostic, UsageError
from bakehouse.sagemaker import code_upload


def names(archive: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return opened.getnames()


def test_a_directory_is_packed_with_its_files_at_the_top(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "train.py").write_text("pass\n")
    (tmp_path / "deep/more.py").write_text("pass\n")

    assert names(code_upload.pack(tmp_path)) == ["deep/more.py", "train.py"]


def test_a_script_alone_is_packed_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "other.py").write_text("")

    assert names(code_upload.pack(tmp_path / "train.py")) == ["train.py"]


def test_files_that_are_not_code_are_not_uploaded(tmp_path: Path) -> None:
    for directory in ("__pycache__", ".git", ".venv"):
        (tmp_path / directory).mkdir()
        (tmp_path / directory / "x").write_text("")

    assert names(code_upload.pack(tmp_path)) == []


def test_a_directory_of_data_is_rejected_as_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_upload, "MAX_BYTES", 10)
    (tmp_path / "data").write_bytes(b"x" * 11)

    with pytest.raises(UsageError) as caught:
        code_upload.pack(tmp_path)

    assert caught.value.diagnostics == (
        Diagnostic(
            f"`{tmp_path}` contains more than 0 MB",
            hint="use a directory with training code only, and a channel for data",
        ),
    )


def test_what_links_lead_to_is_code(tmp_path: Path) -> None:
    """The target of a link does not exist in the image."""
    shared, source = tmp_path / "shared", tmp_path / "src"
    (shared / "deep").mkdir(parents=True)
    (shared / "deep/more.py").write_text("more")
    source.mkdir()
    (source / "train.py").symlink_to(shared / "deep/more.py")
    (source / "lib").symlink_to(shared)
    (source / "same").symlink_to(shared)

    expected = {"lib/deep/more.py": b"more", "same/deep/more.py": b"more", "train.py": b"more"}
    assert code_upload.read_files(source) == expected
    with tarfile.open(fileobj=io.BytesIO(code_upload.pack(source))) as archive:
        assert {member.name: member.isreg() for member in archive} == dict.fromkeys(expected, True)


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a/x.py").write_text("")
    (tmp_path / "a/b").symlink_to(tmp_path / "b")
    (tmp_path / "b/a").symlink_to(tmp_path / "a")
    (tmp_path / "top").symlink_to(tmp_path)

    assert list(code_upload.read_files(tmp_path)) == ["a/x.py", "b/a/x.py"]


def test_an_unreadable_file_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key.pem").write_text("")

    def refused(path: object, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("builtins.open", refused)
    monkeypatch.setattr("tarfile.bltn_open", refused)
    with pytest.raises(UsageError) as caught:
        code_upload.pack(tmp_path)

    assert caught.value.diagnostics[0].message == f"can't read `{tmp_path}/key.pem`: Permission denied"

"""A commit becomes the same archive everywhere, whatever the settings of git are."""

import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from bakehouse.util import git
from bakehouse.util.git import GitError, GitSource
from bakehouse.util.oci import EPOCH
from tests.support import git_repository
from tests.support.errors import raised
from tests.support.git_repository import commit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def source(repository: Path, revision: str, subdirectory: str = "") -> GitSource:
    return GitSource(repository.as_uri(), revision, subdirectory)


def refusal(wanted: GitSource) -> str:
    return str(raised(GitError, git.files_of, wanted))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"git+https://git.example/a/b.git@{COMMIT}", GitSource("https://git.example/a/b.git", COMMIT)),
        (f"git+ssh://git@git.example/b@{COMMIT}", GitSource("ssh://git@git.example/b", COMMIT)),
        (
            f"git+file:///srv/b@{COMMIT}#egg=own&subdirectory=a/own",
            GitSource("file:///srv/b", COMMIT, "a/own"),
        ),
        ("git+https://git.example/b", GitSource("https://git.example/b", "")),
    ],
)
def test_sources_as_pip_writes_them(text: str, expected: GitSource) -> None:
    assert git.parse(text) == expected
    assert git.parse(expected.text) == expected


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (
            f"git+https://me:secret@git.example/b@{COMMIT}",
            "remove the credentials from the URL: git takes them from its credential helpers",
        ),
        (
            f"git+https://token@git.example/b@{COMMIT}",
            "remove the credentials from the URL: git takes them from its credential helpers",
        ),
        (
            "git+https://git.example/b@--upload-pack=touch",
            "write a commit of 40 hexadecimal digits after `@`",
        ),
        (
            f"git+ext::sh%20x@{COMMIT}",
            "write `git+https://`, `git+ssh://` or `git+file://` instead of `git+ext://`",
        ),
        (
            f"git+https://git.example/b@{COMMIT}#subdirectory=../../etc",
            "after `#` write only `subdirectory=` and a path in the repository",
        ),
    ],
)
def test_sources_that_are_refused(text: str, hint: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        git.parse(text)
    assert str(caught.value) == hint


def test_branches_and_tags_have_a_commit(tmp_path: Path) -> None:
    first = commit(tmp_path / "up", {"a": "1"})
    git_repository.git(tmp_path / "up", "tag", "--annotate", "--message", "x", "v1")
    second = commit(tmp_path / "up", {"a": "2"})

    revisions = ("v1", "main", "refs/heads/main", "", "nope")
    named = [git.commit_of(source(tmp_path / "up", revision)) for revision in revisions]
    assert named == [first, second, second, second, ""]


def test_an_archive_has_the_same_bytes_on_every_machine(tmp_path: Path) -> None:
    up = tmp_path / "up"
    commit(up, {".gitattributes": "* text eol=crlf export-ignore\n", "run.sh": "#!/bin/sh\n", "x/y": "é\n"})
    (up / "run.sh").chmod(0o755)
    (up / "link").symlink_to("x/y")
    head = commit(up, {})

    data = git.archive(git.files_of(source(up, head)))

    assert hashlib.sha256(data).hexdigest() == (
        "2a108cc387e9a08007bc0c5f56283f45e12bf4cce142e6c7066133e98dcea49a"
    )
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        entries = [(entry.name, oct(entry.mode), entry.linkname) for entry in archive]
        assert {entry.mtime for entry in archive} == {EPOCH}
    assert entries == [
        ("source", "0o755", ""),
        ("source/x", "0o755", ""),
        ("source/.gitattributes", "0o644", ""),
        ("source/link", "0o777", "x/y"),
        ("source/run.sh", "0o755", ""),
        ("source/x/y", "0o644", ""),
    ]


def test_a_directory_of_a_commit(tmp_path: Path) -> None:
    head = commit(tmp_path / "up", {"a": "1", "deep/own/b": "2"})

    assert git.files_of(source(tmp_path / "up", head, "deep/own")) == {"b": (b"2", 0o644)}
    assert refusal(source(tmp_path / "up", head, "nope")) == "has no directory `nope` in this commit"


def test_a_server_that_sends_only_branches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 0 of the protocol refuses other commits."""
    old = commit(tmp_path / "up", {"a": "1"})
    commit(tmp_path / "up", {"a": "2"})
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "protocol.version")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "0")

    assert git.files_of(source(tmp_path / "up", old)) == {"a": (b"1", 0o644)}


def test_a_git_hook_does_not_redirect_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = commit(tmp_path / "up", {"a": "1"})
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "hooked"))

    assert git.files_of(source(tmp_path / "up", head)) == {"a": (b"1", 0o644)}
    assert not (tmp_path / "hooked").exists()


def test_what_cannot_be_read(tmp_path: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    large = commit(tmp_path / "large", {"weights": pointer})
    inner = commit(tmp_path / "inner", {"inner": "1"})
    commit(tmp_path / "up", {"a": "1"})
    git_repository.git(tmp_path / "up", "submodule", "--quiet", "add", str(tmp_path / "inner"), "third")
    head = commit(tmp_path / "up", {})

    assert refusal(source(tmp_path / "up", head)) == (
        "has a submodule `third`, which its archive cannot contain"
    )
    assert refusal(source(tmp_path / "large", large)) == (
        "has `weights` in Git LFS, which its archive cannot contain"
    )
    assert refusal(source(tmp_path / "up", inner)) == f"does not have the commit {inner}"
    assert refusal(source(tmp_path / "none", head)) == (
        f"cannot be read: fatal: '{tmp_path}/none' does not appear to be a git repository"
    )


def test_credentials_of_git_s_configuration_are_not_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "url.http://me:secret@127.0.0.1:9/.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "https://git.example/")

    text = refusal(GitSource("https://git.example/b", COMMIT))

    assert "127.0.0.1:9/b" in text
    assert "secret" not in text

"""Commits of git repositories as source archives, which have the same bytes on every machine."""

import os
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import parse_qsl, urlsplit

from bakehouse.errors import without_logins
from bakehouse.util.archive import Tree, gzip, tar
from bakehouse.util.files import open_file
from bakehouse.util.process import MISSING_PROGRAM, with_environment
from bakehouse.util.tempdir import require_space, scratch_directory

PREFIX = "git+"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SCHEMES = ("https", "http", "ssh", "file")
_FRAGMENT = {"subdirectory", "egg"}
_SECONDS = 600
_MODES = {"100644": 0o644, "100664": 0o644, "100755": 0o755, "120000": 0}
_SUBMODULE = "160000"
_LFS = b"version https://git-lfs.github.com/spec/"
TOP = "source"
"""Directory of the files in an archive."""


class GitError(Exception):
    """A failure of git. Its text continues a sentence about the repository."""


@dataclass(frozen=True, slots=True)
class GitSource:
    """A revision of a git repository, or one of its directories."""

    url: str
    revision: str
    """A commit. For a requirement without a commit, a branch or tag, or empty."""
    subdirectory: str = ""

    @property
    def is_commit(self) -> bool:
        return bool(_COMMIT.fullmatch(self.revision))

    @property
    def text(self) -> str:
        """The source as pip writes it."""
        fragment = f"#subdirectory={self.subdirectory}" if self.subdirectory else ""
        return f"{PREFIX}{self.url}@{self.revision}{fragment}"


def parse(text: str) -> GitSource:
    """Return the source of `git+https://host/name@commit#subdirectory=x`. Raises ValueError with a hint."""
    url, _, fragment = text.removeprefix(PREFIX).partition("#")
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES:
        reason = f"write `git+https://`, `git+ssh://` or `git+file://` instead of `{PREFIX}{parts.scheme}://`"
        raise ValueError(reason)
    if parts.password or (parts.username and parts.scheme != "ssh"):
        reason = "remove the credentials from the URL: git takes them from its credential helpers"
        raise ValueError(reason)
    options = dict(parse_qsl(fragment))
    subdirectory = options.get("subdirectory", "").strip("/")
    if not options.keys() <= _FRAGMENT or ".." in PurePosixPath(subdirectory).parts:
        reason = "after `#` write only `subdirectory=` and a path in the repository"
        raise ValueError(reason)
    path, _, revision = parts.path.partition("@")
    if revision.startswith("-"):
        # git would parse it as an option
        reason = "write a commit of 40 hexadecimal digits after `@`"
        raise ValueError(reason)
    return GitSource(parts._replace(path=path).geturl(), revision, subdirectory)


def commit_of(source: GitSource) -> str:
    """Return the current commit of a branch or tag; empty if there is none. Raises GitError."""
    name = source.revision
    refs = [f"refs/tags/{name}^{{}}", f"refs/tags/{name}", f"refs/heads/{name}", name] if name else ["HEAD"]
    lines = _git("ls-remote", "--quiet", source.url, *refs).decode().splitlines()
    commits = {ref: commit for commit, _, ref in (line.partition("\t") for line in lines)}
    return next((commits[ref] for ref in refs if ref in commits), "")


def has_commit(source: GitSource, commit: str) -> bool:
    """Return whether a commit is in the history of a branch, a tag or the default branch. Raises GitError.

    Hosts serve commits of other people's copies of a repository by its URL, too.
    """
    branch = ("--branch", source.revision) if source.revision else ()
    with scratch_directory() as directory:
        options = ("--quiet", "--bare", "--single-branch", "--no-tags", "--filter=tree:0", *branch)
        _git("clone", *options, "--", source.url, str(directory / "copy"))
        try:
            _git("merge-base", "--is-ancestor", commit, "HEAD", directory=directory / "copy")
        except GitError:
            return False
    return True


def tags(url: str) -> tuple[str, ...]:
    """Return the names of all tags of a repository. Raises GitError."""
    lines = _git("ls-remote", "--quiet", "--tags", "--refs", "--", url).decode(errors="replace").splitlines()
    return tuple(line.partition("refs/tags/")[2] for line in lines)


def executables(directory: Path) -> dict[str, bool]:
    """Return whether the files below a directory are executable in git, by path. Raises GitError."""
    at = ("-C", str(directory))
    index = directory / os.fsdecode(_git(*at, "rev-parse", "--git-path", "index")).strip()
    if index.is_file():
        # Opening it records the index as an input, so that the cache notices its changes
        open_file(index).close()
    lines = _git(*at, "ls-files", "--stage", "-z", "--", ".").split(b"\0")
    entries = (os.fsdecode(line).partition("\t") for line in lines if line)
    return {path: _MODES.get(entry[:6]) == 0o755 for entry, _, path in entries}


def files_of(source: GitSource) -> Tree:
    """Return the files of a commit, fetched from its repository. Raises GitError.

    Attributes and filters of the repository do not apply. Submodules are an error.
    """
    with scratch_directory() as directory:
        _git("init", "--quiet", "--bare", directory=directory)
        fetch = ("fetch", "--quiet", "--no-tags")
        try:
            _git(*fetch, "--depth=1", source.url, source.revision, directory=directory)
        except GitError:
            # Some servers send only branches and tags
            _git(*fetch, source.url, "+refs/*:refs/*", directory=directory)
        return _tree(source, directory)


def archive(files: Tree) -> bytes:
    """Return the source archive of a commit's files."""
    return gzip(tar({f"{TOP}/{path}": entry for path, entry in files.items()}))


def _tree(source: GitSource, directory: Path) -> Tree:
    try:
        _git("cat-file", "-e", f"{source.revision}^{{commit}}", directory=directory)
    except GitError as error:
        reason = f"does not have the commit {source.revision}"
        raise GitError(reason) from error
    tree = f"{source.revision}:{source.subdirectory}"
    try:
        listing = _git("ls-tree", "-r", "-z", "--full-tree", tree, directory=directory)
    except GitError as error:
        reason = f"has no directory `{source.subdirectory}` in this commit"
        raise GitError(reason) from error
    entries = {}
    for line in listing.split(b"\0")[:-1]:
        entry, _, path = line.partition(b"\t")
        mode, _, named = entry.decode().split(" ")
        if mode == _SUBMODULE:
            reason = f"has a submodule `{os.fsdecode(path)}`, which its archive cannot contain"
            raise GitError(reason)
        entries[os.fsdecode(path)] = _MODES[mode], named
    contents = _contents(sorted({named for _, named in entries.values()}), directory)
    if large := [path for path, (_, named) in entries.items() if contents[named].startswith(_LFS)]:
        reason = f"has `{large[0]}` in Git LFS, which its archive cannot contain"
        raise GitError(reason)
    return {path: (contents[named], mode) for path, (mode, named) in entries.items()}


def _contents(names: Iterable[str], directory: Path) -> dict[str, bytes]:
    """Return the contents of blobs by name."""
    names = [*names]
    output = _git("cat-file", "--batch", directory=directory, lines=names)
    contents, start = {}, 0
    for name in names:
        end = output.index(b"\n", start)
        size = int(output[start:end].rpartition(b" ")[2])
        contents[name] = output[end + 1 : end + 1 + size]
        start = end + size + 2
    return contents


def _git(
    *words: str, directory: Path | None = None, lines: Iterable[str] = (), failure: str = "cannot be read"
) -> bytes:
    """Return the output of git, which uses its credential helpers, but never prompts on the terminal."""
    at = ["--git-dir", str(directory)] if directory else []
    try:
        result = subprocess.run(
            ["git", *at, *words],
            input="".join(f"{line}\n" for line in lines).encode(),
            env=with_environment({"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}),
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except MISSING_PROGRAM as error:
        reason = "cannot be read, because `git` is not installed"
        raise GitError(reason) from error
    except subprocess.TimeoutExpired as error:
        reason = f"did not answer within {_SECONDS} s"
        raise GitError(reason) from error
    if result.returncode != 0:
        require_space(result.stderr.decode(errors="replace"), directory or Path.cwd())
        output = without_logins(result.stderr.decode(errors="replace"))
        line = next(filter(None, map(str.strip, output.splitlines())), f"exit code {result.returncode}")
        reason = f"{failure}: {line}"
        raise GitError(reason)
    return result.stdout

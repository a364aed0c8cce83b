"""Directory handles for paths below a repository, which others may have written.

A repository is the directory with `.git`, otherwise that of `pyproject.toml`. Below it, each component of a
path is opened from the handle of the one above, so that a link cannot lead elsewhere, not even one that
appears meanwhile. Other paths, such as those of the user's state and cache, are used as they are.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
NO_LINK = "nothing is written through a link"
_OUT = "a link leads out of the repository"
_MAX_LINKS = 40
"""The limit of Linux."""

_PACKAGE = f"{Path(__file__).resolve().parents[1]}/"
"""Code and data of Bakehouse, which installers may link to a cache of theirs."""

_tops: dict[str, str] = {}
"""The repository of each directory with `.git` above it: it does not move during a run."""


class LinkError(OSError):
    """A path of a repository is a link, leads out of it, or is not a regular file."""

    def __init__(self, path: str | os.PathLike[str], text: str) -> None:
        super().__init__(errno.ELOOP, text, os.fspath(path))


def repository_of(path: Path) -> Path | None:
    """Return the repository that contains a path; None if there is none. Links below it do not count."""
    top = _top(os.path.abspath(path))  # noqa: PTH100  # Path keeps `..`
    return Path(top) if top else None


def repository_around(directory: Path) -> Path:
    """Return the repository of the project in a directory, without links: what its commits can write to."""
    real = directory.resolve()
    return repository_of(real / "_") or real


def _top(path: str) -> str:
    parent = os.path.dirname(path)  # noqa: PTH120  # Path is slow
    if parent in _tops:
        return _tops[parent]
    if path.startswith(_PACKAGE):
        return ""
    has_git = False
    top = ""
    home = os.path.expanduser("~")  # noqa: PTH111  # Path raises an error without a home
    names = path.split("/")
    for depth in range(2, len(names)):
        directory = "/".join(names[:depth])
        # What is behind a link of the repository is not another one
        if top and os.path.islink(directory):  # noqa: PTH114
            break
        # The state and the cache of a user whose home is a repository are not part of it
        if directory == home and names[depth].startswith("."):
            continue
        if os.path.lexists(f"{directory}/.git"):
            top, has_git = directory, True
        elif not has_git and os.path.lexists(f"{directory}/pyproject.toml"):
            top = directory
    if has_git:
        _tops[parent] = top
    return top


@contextlib.contextmanager
def opened_parent(
    path: Path, *, follow: bool, create: bool = False, within: Path | None = None
) -> Iterator[tuple[int | None, str]]:
    """Yield a handle of the directory of a path, and the name in it, for `dir_fd`; or None and the path.

    With `follow`, links that stay in the repository are followed, also the last one; otherwise links in the
    directories are errors, and the name may be one. `create` makes directories. The path must be `within` a
    repository, if it is given.
    """
    plain = os.path.abspath(path)  # noqa: PTH100  # Path keeps `..`
    top = str(within) if within else _top(plain)
    if not top:
        yield None, plain
        return
    if not plain.startswith(f"{top}/"):
        raise LinkError(path, "it is outside the repository")
    handles = [os.open(top, os.O_DIRECTORY | os.O_CLOEXEC)]
    try:
        names = plain[len(top) + 1 :].split("/")
        left, links = names[::-1], 0
        while left:
            name = left.pop()
            if name in ("", "."):
                continue
            if name == "..":
                os.close(handles.pop())
                if not handles:
                    raise LinkError(path, _OUT)
            elif (left or follow) and _is_link(name, handles[-1], create and bool(left)):
                if not follow:
                    shown = "/".join(names[: len(names) - len(left)])
                    raise LinkError(path, f"{NO_LINK}: `{shown}`")
                links += 1
                if links > _MAX_LINKS:
                    raise LinkError(path, "it is part of a loop of links")
                target = os.readlink(name, dir_fd=handles[-1])
                if target.startswith("/"):
                    target = _below(top, target, path)
                    while handles[1:]:
                        os.close(handles.pop())
                left += target.split("/")[::-1]
            elif left:
                handles.append(os.open(name, _DIRECTORY, dir_fd=handles[-1]))
            else:
                yield handles[-1], name
                return
        yield handles[-1], "."
    except OSError as error:
        if not isinstance(error, LinkError):
            # Errors name a file by its name in the directory
            error.filename = str(path)
        raise
    finally:
        for handle in handles:
            os.close(handle)


def _below(top: str, target: str, path: Path) -> str:
    """Return an absolute path relative to a repository, whose own path may contain links."""
    for base in (top, os.path.realpath(top)):
        if f"{target}/".startswith(f"{base}/"):
            return target[len(base) :]
    raise LinkError(path, _OUT)


def _is_link(name: str, directory: int, create: object) -> bool:
    try:
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except FileNotFoundError:
        if not create:
            raise
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=directory)
        return _is_link(name, directory, create=False)
    return stat.S_ISLNK(mode)

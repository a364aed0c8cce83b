"""The rule for files that enter an image or leave this machine with a job.

It applies to `code` and `files` of recipes, and to the source directories of `bake run` and `bake launch`:
repositories, virtual environments, caches and the files of `.dockerignore` stay out; secrets, links to
outside and files that are not regular are errors.
"""

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from bakehouse.catalog import file_modes, ignore_file, spelling
from bakehouse.catalog.ignore_file import IgnoreFile, State
from bakehouse.catalog.secrets import Secret, secret_in_file
from bakehouse.errors import Diagnostic, Location, RecipeError
from bakehouse.util import git
from bakehouse.util.files import is_directory, is_file, open_file
from bakehouse.util.format import format_count

MAX_ENTRIES = 200_000
"""Files and directories that are examined, also those that stay out."""
_MAX_PROBLEMS = 20
_BUILT_IN = {
    **dict.fromkeys((".git", ".hg", ".svn", ".bzr", ".jj", "_darcs"), "version control"),
    **dict.fromkeys(
        (
            *("__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".pytype", ".hypothesis"),
            *(".ipynb_checkpoints", ".tox", ".nox", ".DS_Store"),
        ),
        "caches",
    ),
}
"""Rules that exclude files and directories, by their names."""
_OWN = ("images", "build")
"""Directories of a project that contain copies of the code, which must not be copied again."""
_CACHE_TAG = b"Signature: 8a477f597d28d172789f06886806bc55"
"""Start of CACHEDIR.TAG, see https://bford.info/cachedir/."""
_WHITEOUT = ".wh."
"""Start of the names that mark deleted files in image layers."""
_LINK_ERRORS = {
    errno.ENOENT: "does not exist",
    errno.ENOTDIR: "does not exist",
    errno.ELOOP: "is part of a loop of links",
}
_ALL = "./"
"""Path of the directory itself."""
_KINDS = {stat.S_IFSOCK: "a socket", stat.S_IFIFO: "a named pipe"}


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a tree. Sizes are in bytes."""

    files: int
    file_bytes: int
    total_bytes: int
    hint: str
    """Hint at a tree or file that is too large."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of a tree."""

    name: str
    """Relative path with slashes."""
    path: Path
    bytes: int
    sha256: str
    is_executable: bool


@dataclass(frozen=True)
class SourceTree:
    """The files of a directory that enter an image or a job, and those that stay out."""

    source: Path
    files: tuple[SourceFile, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    """By relative path: the rule by which a file or directory stays out. Directories end with a slash."""
    allowed: tuple[str, ...] = ()
    """Files whose secrets are allowed."""
    problems: tuple[Diagnostic, ...] = ()
    """Mistakes. Those without a location concern the tree."""

    def rule_of(self, name: str) -> str:
        """Return the rule that excludes a file, or a directory above it; empty if none does."""
        parents = name.split("/")
        above = ("/".join(parents[:depth]) + "/" for depth in range(1, len(parents)))
        paths = (name, *above, _ALL)
        return next((self.left_out[path] for path in paths if path in self.left_out), "")

    @cached_property
    def left_out_lines(self) -> tuple[str, ...]:
        """Return a line for each rule with the numbers of files and directories that it excludes."""
        files: dict[str, int] = {}
        directories: dict[str, int] = {}
        for path, rule in self.left_out.items():
            counts = directories if path.endswith("/") else files
            counts[rule] = counts.get(rule, 0) + 1
        rules = sorted({*files, *directories})
        return tuple(f"{rule}: {_counts(files, directories, rule)}" for rule in rules)


def read_tree(
    source: Path,
    limits: Limits,
    *,
    project: Path | None = None,
    inside: Sequence[Path] = (),
    allow: tuple[str, ...] = (),
    target: str = "{name}",
    hint: str = "",
) -> SourceTree:
    """Select the files of a directory, or examine a single file.

    The `.dockerignore` of the directory applies, or else that of `project`. Links must lead to `inside`, if
    there are any. Secrets in the files of `allow` are allowed. `target` is the path of a copy, and `hint` the
    hint for a secret; `{name}` in them is replaced by the relative path.
    """
    globs, own = ignore_file.from_globs(allow), _own(source, project)
    reader = _Reader(source, limits, inside, globs, own, target, hint)
    try:
        reader.read(_ignore_file(source, project, inside))
    except RecipeError as error:
        reader.problems[:0] = error.diagnostics
    except _TooMany:
        pass
    problems = reader.problems
    for one, other in spelling.clashes(sorted(file.name for file in reader.files)):
        message = f"only the case of names differs: `{source.name}/{one}` and `{source.name}/{other}`"
        problems.append(Diagnostic(message, hint=spelling.HINT))
    if len(problems) > _MAX_PROBLEMS:
        more = Diagnostic(f"`{source.name}` has {len(problems) - _MAX_PROBLEMS} more mistakes")
        problems = [*problems[:_MAX_PROBLEMS], more]
    return SourceTree(
        source,
        tuple(sorted(reader.files, key=lambda file: file.name)),
        reader.left_out,
        tuple(reader.allowed),
        tuple(problems),
    )


def _own(source: Path, project: Path | None) -> dict[str, str]:
    """Return the directories of Bakehouse below a directory, by relative path, with their rule."""
    paths = {name: _normal(project / name) for name in _OWN} if project else {}
    top = _normal(source)
    return {
        path.relative_to(top).as_posix(): f"files of Bakehouse ({name})"
        for name, path in paths.items()
        if path.is_relative_to(top)
    }


def _counts(files: Mapping[str, int], directories: Mapping[str, int], rule: str) -> str:
    counts = ((files.get(rule, 0), "file"), (directories.get(rule, 0), "directory"))
    return " and ".join(format_count(count, noun) for count, noun in counts if count)


def _ignore_file(source: Path, project: Path | None, inside: Sequence[Path]) -> tuple[IgnoreFile, str]:
    """Return the patterns that apply to a directory or file, and its path relative to them."""
    directory, below = (source, "") if is_directory(source) else (source.parent, source.name)
    if is_file(directory / ignore_file.NAME):
        return _read_inside(directory / ignore_file.NAME, inside), below
    if project and is_file(project / ignore_file.NAME):
        # The path as written, because patterns do not follow links.
        path, top = _normal(source), _normal(project)
        if path.is_relative_to(top):
            below = path.relative_to(top).as_posix()
            return _read_inside(project / ignore_file.NAME, inside), "" if below == "." else below
    return IgnoreFile(directory, ()), below


def _read_inside(path: Path, inside: Sequence[Path]) -> IgnoreFile:
    """Read a file of patterns. Errors quote its lines, so it must not be a link to outside."""
    real = Path(os.path.realpath(path))
    if inside and not any(real.is_relative_to(directory) for directory in inside):
        raise RecipeError(
            f"`{path.name}` links to `{_readable(str(real))}`, which is outside the project",
            Location(path, 1, 1),
            hint="copy the file into the project",
        )
    return ignore_file.read(path)


class _TooMany(Exception):
    """The tree exceeds a limit, which was reported."""


class _Reader:
    def __init__(
        self,
        source: Path,
        limits: Limits,
        inside: Sequence[Path],
        allow: IgnoreFile,
        own: Mapping[str, str],
        target: str,
        hint: str,
    ) -> None:
        self.files: list[SourceFile] = []
        self.left_out: dict[str, str] = {}
        self.allowed: list[str] = []
        self.problems: list[Diagnostic] = []
        # Names such as `.aws` count, also for the directory itself.
        self._source = source.absolute()
        self._limits = limits
        self._inside = inside
        self._allow = allow
        self._own = own
        self._target = target
        self._hint = hint
        self._ignore = IgnoreFile(source, ())
        self._prefix = ""
        self._entries = 0
        self._bytes = 0

    def read(self, ignore: tuple[IgnoreFile, str]) -> None:
        self._ignore, below = ignore
        self._prefix = f"{below}/" if below else ""
        rule, state = self._ignore.state_below(below) if below else ("", State())
        if not is_directory(self._source):
            self._read_file(rule)
            return
        if rule and not self._ignore.has_exceptions:
            self.left_out[_ALL] = rule
            return
        self._walk(state)

    def _read_file(self, rule: str) -> None:
        name = self._source.name
        if rule:
            self.left_out[name] = rule
        elif (status := self._status(self._source, name)) is not None:
            self._add(name, self._source, status)

    def _walk(self, state: State) -> None:
        """Examine all directories, and detect links to a directory above."""
        top = os.path.realpath(self._source)
        directories = [("", self._source, state, frozenset((top,)))]
        while directories:
            prefix, directory, state, above = directories.pop()
            for entry in self._entries_of(directory, prefix):
                name = f"{prefix}{entry.name}"
                path = directory / entry.name
                rule = self._own.get(name) or _built_in(path, entry.name)
                below: State = ()
                if not rule:
                    rule, below = self._ignore.match(f"{self._prefix}{name}", state)
                    if rule and is_directory(path) and not path.is_symlink() and self._ignore.has_exceptions:
                        directories.append((f"{name}/", path, below, above | {os.path.realpath(path)}))
                        continue
                if rule:
                    self.left_out[f"{name}/" if is_directory(path) else name] = rule
                    continue
                if (status := self._status(path, name)) is None:
                    continue
                if not stat.S_ISDIR(status.st_mode):
                    self._add(name, path, status)
                    continue
                real = os.path.realpath(path)
                if real in above:
                    self._report(f"`{name}` links to a directory above it", "remove the link")
                else:
                    directories.append((f"{name}/", path, below, above | {real}))

    def _entries_of(self, directory: Path, prefix: str) -> Iterator[os.DirEntry[str]]:
        try:
            with os.scandir(directory) as entries:
                for entry in sorted(entries, key=lambda entry: entry.name):
                    self._entries += 1
                    if self._entries > MAX_ENTRIES:
                        self._too_many(f"{MAX_ENTRIES:,} files and directories")
                    yield entry
        except OSError as error:
            name = prefix.rstrip("/") or self._source.name
            self._report(f"cannot read `{name}`: {(error.strerror or str(error)).lower()}")

    def _status(self, path: Path, name: str) -> os.stat_result | None:
        """Return the status of a file or directory that the image can contain; report others."""
        if problem := _name_problem(name):
            hint = "rename it, or name it in `.dockerignore`"
            self._report(f"the name `{_readable(name)}` {problem}", hint)
            return None
        try:
            if path.is_symlink() and not self._is_good_link(path, name):
                return None
            status = path.stat()
        except OSError as error:
            self._report(f"cannot read `{name}`: {(error.strerror or str(error)).lower()}")
            return None
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
            kind = _KINDS.get(stat.S_IFMT(status.st_mode), "a device")
            self._report(f"`{name}` is {kind}, not a file", "remove it, or name it in `.dockerignore`")
            return None
        return status

    def _is_good_link(self, path: Path, name: str) -> bool:
        target = _readable(str(path.readlink()))
        hint = "remove the link, or name it in `.dockerignore`"
        try:
            real = Path(os.path.realpath(path, strict=True))
        except OSError as error:
            text = _LINK_ERRORS.get(error.errno or 0, f"cannot be read: {error.strerror}")
            self._report(f"`{name}` links to `{target}`, which {text}", hint)
            return False
        if self._inside and not any(real.is_relative_to(directory) for directory in self._inside):
            hint = "copy the files into the project, or name the link in `.dockerignore`"
            self._report(f"`{name}` links to `{_readable(str(real))}`, which is outside the project", hint)
            return False
        return True

    def _add(self, name: str, path: Path, status: os.stat_result) -> None:
        limits = self._limits
        if len(self.files) >= limits.files:
            self._too_many(f"{limits.files:,} files")
        if status.st_size > limits.file_bytes:
            self._report(f"`{name}` is larger than {limits.file_bytes // 1_000_000} MB", limits.hint)
            return
        self._bytes += status.st_size
        if self._bytes > limits.total_bytes:
            self._too_many(f"{limits.total_bytes // 1_000_000} MB")
        try:
            with open_file(path) as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                file.seek(0)
                secret = secret_in_file(file, path.as_posix(), self._target.replace("{name}", name))
        except OSError as error:
            self._report(f"cannot read `{name}`: {(error.strerror or str(error)).lower()}")
            return
        if secret and self._allow.state_below(name)[0] and not self._is_private(name):
            self.allowed.append(name)
        elif secret:
            self.problems.append(self._found(secret, name, path))
        is_executable = self._is_executable(name, path, status)
        self.files.append(SourceFile(name, path, status.st_size, digest, is_executable))

    def _is_executable(self, name: str, path: Path, status: os.stat_result) -> bool:
        if self._git_modes is None:
            return bool(status.st_mode & 0o100)
        is_executable = self._git_modes.get(name)
        return file_modes.is_script(path) if is_executable is None else is_executable

    @cached_property
    def _git_modes(self) -> Mapping[str, bool] | None:
        directory = self._source if is_directory(self._source) else self._source.parent
        return file_modes.executables(directory)

    def _is_private(self, name: str) -> bool:
        """Return whether git does not track a file, so that the author of `allow` may not have it."""
        return self._tracked is not None and name not in self._tracked

    @cached_property
    def _tracked(self) -> Mapping[str, bool] | None:
        with contextlib.suppress(git.GitError):
            return git.executables(self._source if is_directory(self._source) else self._source.parent)
        return None

    def _found(self, secret: Secret, name: str, path: Path) -> Diagnostic:
        hint = self._hint.format(name=name)
        if self._allow.state_below(name)[0]:
            hint = "remove it, or add it to git: `allow` is only for files that the repository shows anyway"
        return Diagnostic(f"`{name}` contains {secret.kind}", Location(path, secret.line, 1), hint=hint)

    def _too_many(self, limit: str) -> None:
        self._report(f"`{self._source.name}` contains more than {limit}", self._limits.hint)
        raise _TooMany

    def _report(self, message: str, hint: str = "") -> None:
        self.problems.append(Diagnostic(message, hint=hint))


def _built_in(path: Path, name: str) -> str:
    """Return the rule of Bakehouse that excludes a file or directory; empty if there is none."""
    if rule := _BUILT_IN.get(name):
        return f"{rule} ({name})"
    if not is_directory(path):
        return ""
    if is_file(path / "pyvenv.cfg") or is_directory(path / "conda-meta"):
        return f"virtual environments ({name})"
    tag = path / "CACHEDIR.TAG"
    if not is_file(tag):
        # Opening a pipe would wait for its writer.
        return ""
    try:
        with open_file(tag) as file:
            return f"caches ({name})" if file.read(len(_CACHE_TAG)) == _CACHE_TAG else ""
    except OSError:
        return ""


def _normal(path: Path) -> Path:
    """Return an absolute path without `..`. Links are not followed, because patterns name them."""
    return Path(os.path.normpath(path.absolute()))


def _name_problem(name: str) -> str:
    last = name.rpartition("/")[2]
    if last.startswith(_WHITEOUT):
        return f"starts with `{_WHITEOUT}`, which marks deleted files in image layers"
    try:
        last.encode()
    except UnicodeEncodeError:
        return "is not UTF-8"
    return ""


def _readable(name: str) -> str:
    return name if name.isprintable() else name.encode("unicode_escape").decode()

"""Cache of the values in the files of a project, for later processes. It is valid until one of them changes.

Like git's index, the cache records the status of each file and directory that was read: mode, inode, size and
times, including the ctime, which programs cannot set. If a file changed in the last seconds, a further change
may not alter its status. In this case nothing is cached, and the next process reads the files again.

The cache is in the cache directory of the user, and is used only if no other user can write there. Unpickling
loads only the classes of a catalogue.
"""

import io
import os
import pickle
import stat
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, cached_property, partial
from hashlib import sha256
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any, TypeVar

from bakehouse.util.files import PROBE, READ, names_in, write_whole

if TYPE_CHECKING:
    from bakehouse.catalog.catalog import Catalog
    from bakehouse.catalog.component import Component
    from bakehouse.catalog.recipe import Recipe, Recipes, RefusalOf
    from bakehouse.catalog.user_files import File

V = TypeVar("V")

_PACKAGE = Path(__file__).parents[1]
_LIBRARIES = tuple(path for path in sys.path if path.endswith(("site-packages", "dist-packages")))
_CODE = (f"{_PACKAGE}{os.sep}", f"{Path(os.__file__).parent}{os.sep}", *_LIBRARIES)
"""Directories of modules. Importing reads their files, so these are not recorded as files of a project."""
_FORMAT = "4"
_SETTLED = 2_000_000_000
"""Nanoseconds after which a further change of a file changes its status, on any file system."""
_MAX_FILES = 50_000
_MAX_BYTES = 30_000_000
_MAX_CACHES = 16
_SHARED = "shared "
"""Start of the names of values that others contain."""
_OTHERS = {
    ("pathlib", "PosixPath"),
    # Python 3.13
    ("pathlib._local", "PosixPath"),
    ("builtins", "frozenset"),
    ("builtins", "set"),
}
_DAMAGE = (
    *(pickle.UnpicklingError, AttributeError, EOFError, ImportError, IndexError, KeyError, TypeError),
    *(ValueError, MemoryError, RecursionError),
)

Status = tuple[int, ...] | None
"""Status of a file; only the type if it was looked up but not read; None if it does not exist."""


@dataclass(frozen=True)
class Kept:
    """Values by name, each pickled separately, and the statuses of the files that they come from."""

    statuses: dict[str, Status]
    values: dict[str, bytes]

    @cached_property
    def digest(self) -> str:
        """Identity of the files."""
        return sha256(repr(sorted(self.statuses.items())).encode(errors="surrogateescape")).hexdigest()

    def load(self, name: str) -> Any:
        """Return a value."""
        return _Unpickler(io.BytesIO(self.values[name]), self._shared).load()

    @cached_property
    def _shared(self) -> Mapping[str, Any]:
        """Values that others contain, each as the same object."""
        groups = {number: name for name in self.values if (number := name.removeprefix(_SHARED)) != name}
        return LazyMapping[Any](groups, lambda name: {name.removeprefix(_SHARED): self.load(name)})


class LazyMapping(Mapping[str, V]):
    """A mapping that reads a group of values when one of them is needed. `groups` maps names to groups."""

    def __init__(self, groups: Mapping[str, str], read: Callable[[str], Mapping[str, V]]) -> None:
        self._groups, self._read = groups, read
        self._values: dict[str, V] = {}

    def __getitem__(self, name: str) -> V:
        if name not in self._values:
            self._values |= self._read(self._groups[name])
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)

    def __contains__(self, name: object) -> bool:
        return name in self._groups


@dataclass(frozen=True)
class Loaded:
    """The components and recipes of a project."""

    catalog: "Catalog"
    recipes: "Recipes"
    kept: Kept | None
    """None if they are not cached, so the next process reads the files again."""


def load(roots: Sequence[Path], project: Path | None = None, refusal_of: "RefusalOf | None" = None) -> Loaded:
    """Read components and recipes, including those with mistakes, from the cache if possible."""
    from bakehouse.catalog.catalog import Catalog
    from bakehouse.catalog.recipe import Recipes

    path, identity = _place("project", roots, project)
    kept = _read(path, identity)
    if not kept:
        return _load_anew(roots, project, refusal_of)
    families, components, provided = kept.load("index")
    broken_components, broken_recipes = kept.load("broken")
    catalog = Catalog(
        LazyMapping(
            dict(zip(components, components, strict=True)),
            lambda name: {name: kept.load(f"component {name}")},
        ),
        broken_components,
    )
    catalog.__dict__.update({"links": kept.load("links"), "provided_names": provided})
    recipes = LazyMapping(families, lambda family: kept.load(f"recipes {family}"))
    return Loaded(catalog, Recipes(recipes, broken_recipes), kept)


def derived(
    name: str,
    of: Sequence[str],
    compute: Callable[[], V],
    below: Iterable[Path],
    *,
    is_kept: Callable[[V], bool] = lambda value: True,
) -> V:
    """Return a value of built-in types, from the cache if possible.

    It is computed again if one of these changed: a text in `of`, a file that `compute` read or a file `below`
    directories. Values for which `is_kept` is false are not cached.
    """
    path, identity = _place(name, *of)
    if kept := _read(path, identity):
        value: V = kept.load("value")
        return value
    with _recorded() as record:
        value = compute()
    record.walk(below)
    if is_kept(value):
        _keep(path, identity, record, {"value": value})
    return value


def _load_anew(roots: Sequence[Path], project: Path | None, refusal_of: "RefusalOf | None") -> Loaded:
    from bakehouse.catalog.recipe import read_recipes

    with _recorded() as record:
        own = _own_components(roots[0]) if len(roots) > 1 else {}
        catalog = _read_catalog(roots, own)
        is_independent = _is_independent(own, roots[0], project, catalog)
        known = _own_recipes(roots[0], own, refusal_of) if is_independent else {}
        recipes = read_recipes(roots, catalog, project=project, known=known, refusal_of=refusal_of)
    families: dict[str, dict[str, Recipe]] = {}
    for recipe in recipes.by_name.values():
        families.setdefault(recipe.family, {})[recipe.name] = recipe
    index = (
        {name: recipe.family for name, recipe in recipes.by_name.items()},
        tuple(catalog.components),
        catalog.provided_names,
    )
    record.walk(root / "components" for root in roots)
    path, identity = _place("project", roots, project)
    values = {
        "index": index,
        "links": catalog.links,
        "broken": (catalog.broken, recipes.broken),
        **{f"component {name}": component for name, component in catalog.components.items()},
        **{f"recipes {family}": images for family, images in families.items()},
    }
    trees = {id(tree): tree for recipe in recipes.by_name.values() for tree in _trees(recipe)}
    values |= {f"{_SHARED}{number}": tree for number, tree in trees.items()}
    kept = _keep(path, identity, record, values, trees.keys())
    return Loaded(catalog, recipes, kept)


def _trees(recipe: "Recipe") -> Iterator[tuple["File", ...]]:
    """Yield the files of a recipe, which are stored once for all recipes that read the same directory."""
    yield from (files for files in (recipe.content.files, recipe.content.code) if files)


def read_catalog(roots: Sequence[Path]) -> "Catalog":
    """Read the components of a project, except those with mistakes; use the cache for Bakehouse's own."""
    return _read_catalog(roots, _own_components(roots[0]) if len(roots) > 1 else {})


def _read_catalog(roots: Sequence[Path], own: Mapping[str, "Component"]) -> "Catalog":
    from bakehouse.catalog.catalog import load_catalog, read_directory
    from bakehouse.errors import Problems

    def read(directory: Path, problems: Problems) -> "Component":
        component = own.get(directory.name)
        if component and component.directory == directory:
            return component
        return read_directory(directory, problems)

    return load_catalog(roots, Problems(), read)


def _own_components(root: Path) -> Mapping[str, "Component"]:
    """Return the components below Bakehouse's own recipes. Their cache stays valid if a project changes.

    If one has a mistake, none is returned.
    """
    from bakehouse.catalog.catalog import component_directories, read_directory
    from bakehouse.errors import Problems, RecipeError

    path, identity = _place("components", root)
    if kept := _read_part(path, identity):
        components: dict[str, Component] = kept.load("components")
        return components
    problems = Problems()
    with _recorded() as record:
        try:
            components = {
                directory.name: read_directory(directory, problems)
                for directory in component_directories(root)
            }
            problems.raise_as(RecipeError)
        except RecipeError:
            return {}
    record.walk([root / "components"])
    _keep(path, identity, record, {"components": components})
    return components


def _is_independent(
    own: Mapping[str, "Component"], root: Path, project: Path | None, catalog: "Catalog"
) -> bool:
    """Return whether a project leaves Bakehouse's own recipes as they are.

    A project can replace or break their components, or exclude files if one directory contains the other.
    """
    if not own or (project and (root.is_relative_to(project) or project.is_relative_to(root))):
        return False
    used = {name: component.directory for name, component in catalog.components.items()}
    return all(used.get(name) == component.directory for name, component in own.items())


def _own_recipes(
    root: Path, own: Mapping[str, "Component"], refusal_of: "RefusalOf | None"
) -> Mapping[Path, Sequence["Recipe"]]:
    """Return Bakehouse's own recipes by file, like `_own_components`."""
    from bakehouse.catalog.recipe import read_recipes

    path, identity = _place("recipes", root)
    if kept := _read_part(path, identity):
        cached: Mapping[Path, Sequence[Recipe]] = kept.load("families")
        return cached
    families: dict[Path, list[Recipe]] = {}
    with _recorded() as record:
        recipes = read_recipes([root], _read_catalog([root], own), refusal_of=refusal_of)
    if recipes.broken:
        return {}
    for recipe in recipes.by_name.values():
        families.setdefault(recipe.location.path, []).append(recipe)
    record.walk([root / "components"])
    _keep(path, identity, record, {"families": families})
    return families


def _read_part(path: Path | None, identity: bytes) -> Kept | None:
    """Return the content of a cache. Its files are also files of the project that is read."""
    if kept := _read(path, identity):
        for record in _records:
            record.include(kept.statuses)
    return kept


class _Record:
    """The files that are read or looked up."""

    def __init__(self) -> None:
        self.began = time.time_ns()
        self._caches, self._scratch = str(_cache_directory()), gettempdir()
        self._read: set[str] = set()
        self._seen: set[str] = set()

    def add(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Add the path of an audit event."""
        if event not in ("open", "os.scandir", "os.listdir", PROBE, READ) or isinstance(
            arguments[0], int | None
        ):
            return
        # Steps of an `open_file`, which has its own event
        if event == "open" and (arguments[2] & os.O_DIRECTORY or not Path(arguments[0]).is_absolute()):
            return
        path = os.path.abspath(os.fsdecode(arguments[0]))  # noqa: PTH100  # Path is slow
        directory, _, name = path.rpartition(os.sep)
        if path == self._caches or (directory == self._caches and ".cache" in name):
            return
        # Locks look at running processes and at scratch directories, which change all the time
        if path == self._scratch or path.startswith("/proc/"):
            return
        if not path.startswith(_CODE) or path.startswith(f"{_PACKAGE}/data/"):
            (self._seen if event == PROBE else self._read).add(path)

    def include(self, statuses: Mapping[str, Status]) -> None:
        """Add the files of a cache that was read instead of them."""
        for path, status in statuses.items():
            (self._seen if status and not status[1:] else self._read).add(path)

    def walk(self, directories: Iterable[Path]) -> None:
        """Add all files below directories."""
        for directory in directories:
            for parent, below, names in os.walk(directory, followlinks=True):
                below[:] = [name for name in below if name != "__pycache__" and _is_listable(parent, name)]
                self._read |= {parent, *(f"{parent}/{name}" for name in names)}
                if len(self._read) > _MAX_FILES:
                    return

    def statuses(self) -> dict[str, Status] | None:
        """Return the statuses; None if a later change of the files might not alter them."""
        code = {f"{parent}/{name}" for parent, _, names in os.walk(_PACKAGE) for name in names}
        self._read |= {*_LIBRARIES, *(path for path in code if path.endswith((".py", ".json", ".toml")))}
        statuses = {path: _status(path) for path in self._read}
        for path in self._seen - self._read:
            status = _status(path)
            statuses[path] = status and status[:1]
        newest = max(status[-1] for status in statuses.values() if status and status[1:])
        is_settled = newest < self.began - _SETTLED
        return statuses if is_settled and len(statuses) <= _MAX_FILES else None


_records: list[_Record] = []
"""Records of the reads in progress."""


@contextmanager
def _recorded() -> Iterator[_Record]:
    """Record the files that the block reads."""
    if not _hooked:
        _hooked.append(True)
        sys.addaudithook(_hook)
    record = _Record()
    _records.append(record)
    try:
        yield record
    finally:
        _records.remove(record)


_hooked: list[bool] = []
"""One entry if this process has the hook, which cannot be removed."""


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    for record in _records:
        record.add(event, arguments)


def _is_listable(parent: str, name: str) -> bool:
    """Return whether a directory can be listed: no link leads out of its repository."""
    path = Path(parent, name)
    try:
        return not path.is_symlink() or bool(names_in(path))
    except OSError:
        return False


def _status(path: str) -> Status:
    try:
        status = os.stat(path)  # noqa: PTH116  # Path is slow
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
        return (stat.S_IFMT(status.st_mode),)
    return (
        stat.S_IFMT(status.st_mode),
        *(status.st_mode, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns),
    )


def _is_current(path: str, status: Status) -> bool:
    now = _status(path)
    return now == status or (now is not None and status is not None and now[:1] == status)


def _place(name: str, *of: object) -> tuple[Path | None, bytes]:
    """Return the file of a cache, and the identity of its content; no file without a usable directory."""
    directory = _cache_directory()
    texts = (_FORMAT, sys.version, str(sys.flags.optimize), str(_PACKAGE), name, repr(of))
    identity = sha256("\0".join(texts).encode(errors="surrogateescape")).digest()
    return directory and directory / f"{name}-{identity.hex()[:16]}.cache", identity


def _cache_directory() -> Path | None:
    """Return the cache directory of the user; None if it is unusable or other users can write to it."""
    try:
        parent = os.environ.get("XDG_CACHE_HOME", "")
        path = (Path(parent) if parent.startswith("/") else Path.home() / ".cache") / "bakehouse"
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path if stat.S_ISDIR(path.lstat().st_mode) and _is_ours(path.lstat()) else None
    except (OSError, RuntimeError):
        return None


def _is_ours(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _read(path: Path | None, identity: bytes) -> Kept | None:
    """Return the content of a cache; None if it is damaged, outdated, or may be from another user."""
    if path is None:
        return None
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode) or not _is_ours(status):
                return None
            found, digest, data = file.read(len(identity)), file.read(32), file.read()
    except OSError:
        return None
    if found != identity or sha256(data).digest() != digest:
        return None
    try:
        statuses, values = _Unpickler(io.BytesIO(data)).load()
        kept = Kept(statuses, values)
        is_current = all(_is_current(path, status) for path, status in kept.statuses.items())
    except _DAMAGE:
        return None
    if not is_current:
        return None
    # `_keep` removes the caches that were not used for the longest time
    with suppress(OSError):
        os.utime(path)
    return kept


def _keep(
    path: Path | None,
    identity: bytes,
    record: _Record,
    values: Mapping[str, object],
    shared: Collection[int] = (),
) -> Kept | None:
    """Write values for the next process, unless a later change of their files might go unnoticed.

    `shared` are the identities of objects that several values contain, and that are values themselves.
    """
    statuses = record.statuses() if path else None
    if path is None or statuses is None:
        return None
    kept = Kept(statuses, {name: _pickled(value, shared) for name, value in values.items()})
    data = _pickled((kept.statuses, kept.values))
    if len(data) > _MAX_BYTES:
        return None
    try:
        write_whole(path, identity + sha256(data).digest() + data)
        caches = sorted(path.parent.glob("*.cache"), key=lambda file: file.stat().st_mtime)
        for old in caches[:-_MAX_CACHES]:
            old.unlink()
    except OSError:
        return None
    return kept


def _pickled(value: object, shared: Collection[int] = ()) -> bytes:
    data = io.BytesIO()
    pickler = _Pickler(data, protocol=5)
    if shared and id(value) not in shared:
        pickler.persistent_id = lambda obj: str(id(obj)) if id(obj) in shared else None  # type: ignore[method-assign]
    pickler.dump(value)
    return data.getvalue()


class _Pickler(pickle.Pickler):
    """Pickler of dataclasses as classes and values, because restoring their own state is slow."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type) or not is_dataclass(obj):
            return NotImplemented
        return _made, (type(obj), *(getattr(obj, field.name) for field in fields(obj)))


def _made(cls: type, *values: object) -> object:
    """Create an instance of a dataclass from its values, without running its checks."""
    made: object = object.__new__(cls)
    for assign, value in zip(_assignments(cls), values, strict=True):
        assign(made, value)
    return made


@cache
def _assignments(cls: Any) -> tuple[Callable[[object, object], None], ...]:
    """Return functions that set the fields of a class, even if it is frozen."""
    if not is_dataclass(cls):
        message = f"{cls} is not a dataclass"
        raise TypeError(message)
    names = [field.name for field in fields(cls)]
    if hasattr(cls, "__slots__"):
        return tuple(getattr(cls, name).__set__ for name in names)
    return tuple(partial(_set, name) for name in names)


def _set(name: str, made: object, value: object) -> None:
    object.__setattr__(made, name, value)


class _Unpickler(pickle.Unpickler):
    """Unpickler that only loads classes that hold values, such as the dataclasses of Bakehouse."""

    def __init__(self, file: io.BytesIO, shared: Mapping[str, object] | None = None) -> None:
        super().__init__(file)
        self._shared = shared or {}

    def persistent_load(self, pid: Any) -> Any:
        return self._shared[pid]

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _OTHERS or (module, name) == (__name__, "_made"):
            return super().find_class(module, name)
        if module.startswith("bakehouse."):
            value = super().find_class(module, name)
            is_links = (module, name) == ("bakehouse.catalog.catalog", "Links")
            if isinstance(value, type) and (is_links or is_dataclass(value)):
                return value
        message = f"{module}.{name} does not belong to a catalogue"
        raise pickle.UnpicklingError(message)

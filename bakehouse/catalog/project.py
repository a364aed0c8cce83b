"""The current project: its directories and its `[tool.bakehouse]` settings."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bakehouse.errors import Diagnostic, Location, Problems, RecipeError
from bakehouse.util.files import is_file, is_folder
from bakehouse.util.toml_location import key_location

if TYPE_CHECKING:
    from bakehouse.catalog.registry_settings import RegistrySettings

HOME = Path(__file__).resolve().parents[2]
"""Directory of Bakehouse, with its catalogue and templates."""

_DEFAULT_PORT = 5050
_LEDGER = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9!_.*'()/-]*)?")
_OURS = re.compile(r"^\[tool\.bakehouse[.\]]", re.M)
_KEYS = (
    "recipes",
    "registry",
    "region",
    "repository_prefix",
    "mirrors",
    "ca",
    "cache",
    "registry_port",
    "prices",
    "ledger",
    "registries",
)


@dataclass(frozen=True, slots=True)
class Project:
    """A folder with recipes of its own, or Bakehouse's own folder."""

    root: Path
    recipe_roots: tuple[Path, ...]
    """Folders with `components/` and `images/`; a later one's entries replace an earlier one's."""
    registry: str = "local"
    """`local`, `ecr`, the name of one of `registries`, or a registry's host and a prefix."""
    registries: Mapping[str, "RegistrySettings"] = field(default_factory=dict)
    region: str | None = None
    repository_prefix: str = "bakehouse"
    mirrors: tuple[str, ...] = ()
    """Folders, URL prefixes and places in S3 where files may lie, looked up by sha256."""
    ca: Path | None = None
    cache: Path = field(default_factory=lambda: Path.home() / ".cache/bakehouse/files")
    """Cache of downloaded files by sha256, for all projects."""
    registry_port: int = _DEFAULT_PORT
    ledger: str = ""
    """`s3://bucket/prefix`, where a team keeps what it publishes; empty is in `images` alone."""
    prices: Mapping[str, float] = field(default_factory=dict)
    """Price of an hour of an instance type, set by the user."""
    state_folder: Path | None = None
    """`state`, if it is not in the project."""

    @property
    def images(self) -> Path:
        return self.root / "images"

    @property
    def state(self) -> Path:
        return self.state_folder or self.root / "build"


def find(start: Path, environment: Mapping[str, str] = os.environ) -> Project:
    """The project of the nearest pyproject.toml with a `[tool.bakehouse]` table, else Bakehouse's own."""
    for folder in (start, *start.parents):
        path = folder / "pyproject.toml"
        if is_file(path) and (table := _table(path)) is not None:
            return _read(folder, path, table, environment)
    return _read(HOME, HOME / "pyproject.toml", {}, environment)


def images_folder(start: Path) -> Path:
    """`find(start).images`, whatever else the project's table says: looking up an address needs no more."""
    for folder in (start, *start.parents):
        path = folder / "pyproject.toml"
        if is_file(path) and _has_table(path):
            return folder / "images"
    return HOME / "images"


def _has_table(path: Path) -> bool:
    """Return whether a file has the table; it is parsed as TOML only if its lines are not enough."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return _table(path) is not None
    if "bakehouse" not in text:
        return False
    has_long_texts = '"""' in text or "'''" in text
    return bool(_OURS.search(text) and not has_long_texts) or _table(path) is not None


def _table(path: Path) -> dict[str, object] | None:
    import tomllib

    try:
        text = path.read_text(encoding="utf-8")
        tools = tomllib.loads(text).get("tool", {})
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise RecipeError(Diagnostic(f"cannot read `{path.name}`: {reason}", Location(path, 1, 1))) from error
    except UnicodeDecodeError as error:
        raise RecipeError(Diagnostic(f"`{path.name}` is not UTF-8 text", Location(path, 1, 1))) from error
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(_syntax_error(path, text, str(error))) from error
    if not isinstance(tools, dict) or "bakehouse" not in tools:
        return None
    table = tools["bakehouse"]
    if not isinstance(table, dict):
        message = "`tool.bakehouse` must be a table of names and values"
        raise RecipeError(Diagnostic(message, key_location(path, "bakehouse", "tool")))
    return table


def _read(root: Path, path: Path, table: dict[str, object], environment: Mapping[str, str]) -> Project:
    problems = Problems()

    def report(key: str, message: str, hint: str = "") -> None:
        problems.add(Diagnostic(message, _place(path, key), hint=hint))

    def text(key: str, default: str) -> str:
        value = table.get(key, default)
        if not isinstance(value, str):
            report(key, f"`{key}` in [tool.bakehouse] must be a string")
            return default
        return value

    def texts(key: str) -> tuple[str, ...]:
        value = table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            report(key, f"`{key}` in [tool.bakehouse] must be a list of strings")
            return ()
        return tuple(value)

    for key in table:
        if key not in _KEYS:
            # Looking up an address reads a project too, and has no time for PyYAML.
            from bakehouse.util.suggest import suggestion

            report(key, f"unknown key `{key}` in [tool.bakehouse]", suggestion(key, _KEYS))
    roots = [HOME / "recipes"]
    for folder in texts("recipes"):
        if not is_folder(root / folder):
            report("recipes", f"`recipes` in [tool.bakehouse] names `{folder}`, which is not a directory")
        roots.append(root / folder)
    ca = environment.get("BAKEHOUSE_CA", text("ca", ""))
    project = Project(
        root=root,
        recipe_roots=tuple(roots),
        registry=environment.get("BAKEHOUSE_REGISTRY", text("registry", "local")),
        region=text("region", "") or None,
        repository_prefix=text("repository_prefix", "bakehouse"),
        mirrors=(
            *(_mirror(root, one) for one in texts("mirrors")),
            *environment.get("BAKEHOUSE_MIRRORS", "").split(),
        ),
        ca=root / ca if ca else None,
        cache=_cache(root, text("cache", ""), environment),
        registry_port=_port(table, environment, path, problems),
        ledger=_ledger(text("ledger", ""), path, problems),
        prices=_prices(table, path, problems),
        state_folder=_folder(environment.get("BAKEHOUSE_STATE", "")),
        registries=_registries(table, path, problems),
    )
    problems.raise_as(RecipeError)
    return project


def _mirror(root: Path, address: str) -> str:
    """A folder's path is meant from the project's folder, wherever in it somebody stands."""
    is_path = bool(address) and ":" not in address.partition("/")[0]
    return str(root / Path(address).expanduser()) if is_path else address


def _folder(text: str) -> Path | None:
    return Path(text).absolute() if text else None


def _port(table: Mapping[str, object], environment: Mapping[str, str], path: Path, problems: Problems) -> int:
    """The environment's port, else the table's; each must be one."""
    expected = "must be a port number, from 1 to 65535"
    port = table.get("registry_port", _DEFAULT_PORT)
    if type(port) is not int or not 0 < port < 65536:
        spot = _place(path, "registry_port")
        problems.add(Diagnostic(f"`registry_port` in [tool.bakehouse] {expected}", spot))
        port = _DEFAULT_PORT
    text = environment.get("BAKEHOUSE_REGISTRY_PORT", "")
    if not text:
        return port
    if not re.fullmatch("[0-9]{1,5}", text) or not 0 < int(text) < 65536:
        problems.add(Diagnostic(f"`BAKEHOUSE_REGISTRY_PORT` is `{text}`; it {expected}"))
        return port
    return int(text)


def _cache(root: Path, folder: str, environment: Mapping[str, str]) -> Path:
    if named := environment.get("BAKEHOUSE_CACHE") or folder:
        return root / Path(named).expanduser()
    home = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME") or Path.home(), ".cache")
    return Path(home, "bakehouse", "files")


def _ledger(address: str, path: Path, problems: Problems) -> str:
    if address and not _LEDGER.fullmatch(address):
        message = f"`ledger` in [tool.bakehouse] is `{address}`, which is not an S3 URL"
        problems.add(
            Diagnostic(message, _place(path, "ledger"), hint="use a URL such as `s3://our-bucket/releases`")
        )
        return ""
    return address


def _registries(
    table: Mapping[str, object], path: Path, problems: Problems
) -> Mapping[str, "RegistrySettings"]:
    if "registries" not in table:
        return {}
    # Most projects have none, and looking up an address reads a project too.
    from bakehouse.catalog.registry_settings import read_registries

    return read_registries(table["registries"], path, problems)


def _prices(table: Mapping[str, object], path: Path, problems: Problems) -> dict[str, float]:
    """Numbers by instance type, in the user's own currency."""
    given = table.get("prices", {})
    found = {}
    for name, price in given.items() if isinstance(given, dict) else [("prices", None)]:
        if isinstance(price, int | float) and price > 0 and not isinstance(price, bool):
            found[name] = float(price)
        else:
            message = f"`{name}` in [tool.bakehouse.prices] must be a number above 0"
            if name == "prices":
                message = "`prices` in [tool.bakehouse] must be a table of instance types and prices"
            problems.add(Diagnostic(message, _place(path, name)))
    return found


def _place(path: Path, key: str) -> Location:
    return key_location(path, key, "tool.bakehouse")


def _syntax_error(path: Path, text: str, problem: str) -> Diagnostic:
    """tomllib says where in its message."""
    words, _, key_location = problem.removesuffix(")").rpartition(" (at ")
    lines = text.split("\n")
    spot = Location(path, len(lines), len(lines[-1]) + 1, 1, lines[-1])
    if found := re.fullmatch(r"line ([0-9]+), column ([0-9]+)", key_location):
        line, column = int(found[1]), int(found[2])
        spot = Location(path, line, column, 1, lines[line - 1])
    return Diagnostic("this is not TOML", spot, f"{words[:1].lower()}{words[1:]}")

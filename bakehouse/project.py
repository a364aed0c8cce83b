"""The project that `bake` works in: where its recipes, images and state lie, and its `[tool.bakehouse]` settings."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bakehouse.errors import Diagnostic, Location, Problems, RecipeError
from bakehouse.yamlfile import suggestion

HOME = Path(__file__).resolve().parent.parent
"""Where Bakehouse itself lies, with the catalogue and the templates that it brings."""

_KEYS = ("recipes", "registry", "region", "repository_prefix", "mirrors", "ca", "registry_port")


@dataclass(frozen=True, slots=True)
class Project:
    """A folder with recipes of its own, or Bakehouse's own folder."""

    root: Path
    recipe_roots: tuple[Path, ...]
    """Folders with `components/` and `images/`; a later one's entries replace an earlier one's."""
    registry: str = "local"
    """`local`, `ecr`, or a registry's host."""
    region: str | None = None
    repository_prefix: str = "bakehouse"
    mirrors: tuple[str, ...] = ()
    """Folders and URL prefixes where artifacts may lie, looked up by sha256."""
    ca: Path | None = None
    registry_port: int = 5050

    @property
    def images(self) -> Path:
        return self.root / "images"

    @property
    def state(self) -> Path:
        return self.root / "build"


def find(start: Path, environment: Mapping[str, str] = os.environ) -> Project:
    """The project of the nearest pyproject.toml with a `[tool.bakehouse]` table, else Bakehouse's own."""
    for folder in (start, *start.parents):
        path = folder / "pyproject.toml"
        if path.is_file() and (table := _table(path)) is not None:
            return _read(folder, path, table, environment)
    return _read(HOME, HOME / "pyproject.toml", {}, environment)


def _table(path: Path) -> dict[str, object] | None:
    try:
        tools = tomllib.loads(path.read_text()).get("tool", {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        message = f"can't read `{path}`: {error}"
        raise RecipeError(Diagnostic(message, Location(path, 1, 1))) from error
    table = tools.get("bakehouse")
    return table if isinstance(table, dict) else None


def _read(root: Path, path: Path, table: dict[str, object], environment: Mapping[str, str]) -> Project:
    problems = Problems()

    def report(key: str, message: str, hint: str = "") -> None:
        problems.add(Diagnostic(message, _place(path, key), hint=hint))

    def text(key: str, default: str) -> str:
        value = table.get(key, default)
        if not isinstance(value, str):
            report(key, f"`{key}` in [tool.bakehouse] has to be a text")
            return default
        return value

    def texts(key: str) -> tuple[str, ...]:
        value = table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            report(key, f"`{key}` in [tool.bakehouse] has to be a list of texts")
            return ()
        return tuple(value)

    for key in table:
        if key not in _KEYS:
            report(key, f"unknown key `{key}` in [tool.bakehouse]", suggestion(key, _KEYS))
    port = table.get("registry_port", 5050)
    if not isinstance(port, int) or not 0 < port < 65536:
        report("registry_port", "`registry_port` in [tool.bakehouse] has to be a port number")
        port = 5050
    roots = [HOME / "recipes"]
    for folder in texts("recipes"):
        if not (root / folder).is_dir():
            report("recipes", f"`recipes` in [tool.bakehouse] names `{folder}`, which is no folder")
        roots.append(root / folder)
    ca = text("ca", environment.get("BAKEHOUSE_CA", ""))
    project = Project(
        root=root,
        recipe_roots=tuple(roots),
        registry=environment.get("BAKEHOUSE_REGISTRY", text("registry", "local")),
        region=text("region", "") or None,
        repository_prefix=text("repository_prefix", "bakehouse"),
        mirrors=(*texts("mirrors"), *environment.get("BAKEHOUSE_MIRRORS", "").split()),
        ca=root / ca if ca else None,
        registry_port=int(environment.get("BAKEHOUSE_REGISTRY_PORT", port)),
    )
    problems.raise_as(RecipeError)
    return project


def _place(path: Path, key: str) -> Location:
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.split("=")[0].strip() == key:
            return Location(path, number, line.index(key) + 1, len(key), line)
    return Location(path, 1, 1)

"""Reads image recipes: what an author asks of an image, with the place of every word."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath

from bakehouse.catalog import Catalog, Package, Requirement, load_lock, requirement
from bakehouse.errors import Diagnostic, Location, Problems, RecipeError
from bakehouse.yamlfile import Fields, Mapping as YamlMapping, Node, Scalar, load, suggestion

STATUSES = ("current", "frozen", "legacy")
CODE_FOLDER = "/opt/ml/code"
_NAME = re.compile(r"[a-z0-9]+([._-][a-z0-9]+)*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_APT = re.compile(r"[a-z0-9][a-z0-9.+-]+(=[A-Za-z0-9.+:~-]+)?")


@dataclass(frozen=True, slots=True)
class File:
    """A file that goes into the image as it is."""

    target: str
    """Its absolute path in the image."""
    content: bytes
    is_executable: bool


@dataclass(frozen=True, slots=True)
class Content:
    """What the user adds to an image beyond components."""

    apt: tuple[str, ...] = ()
    packages: tuple[Package, ...] = ()
    files: tuple[File, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    run: tuple[str, ...] = ()
    code: tuple[File, ...] = ()
    entry_point: str | None = None


@dataclass(frozen=True, slots=True)
class Recipe:
    """One image, as its author asked for it."""

    name: str
    summary: str
    status: str
    base: Requirement
    components: tuple[Requirement, ...]
    variants: Mapping[str, Scalar]
    """A glob of variant names per component."""
    without: frozenset[str]
    content: Content
    location: Location
    requirements: Path | None = None
    """The user's requirements file, where it is not a lock itself."""


def load_recipes(roots: Iterable[Path], catalog: Catalog) -> dict[str, Recipe]:
    """All image recipes by name; a later folder's recipe replaces an earlier one's whole.

    Raises RecipeError with every mistake found in any of them.
    """
    problems = Problems()
    recipes = {}
    for root in roots:
        for path in sorted((root / "images").glob("*.yaml")):
            try:
                recipe = _load_recipe(path, load(path), catalog, problems)
            except RecipeError as error:
                problems.extend(error.diagnostics)
            else:
                recipes[path.stem] = recipe
    problems.raise_as(RecipeError)
    return recipes


def _load_recipe(path: Path, root: Node, catalog: Catalog, problems: Problems) -> Recipe:
    fields = Fields(root, f"image `{path.stem}`", problems)
    if not _NAME.fullmatch(path.stem) or len(path.stem) > 100:
        fields.report(f"`{path.stem}` is no image name", fields.location, "small letters, digits, `-`, `_`, `.`")
    user = fields.text("user", "root")
    if user not in ("root", "0"):
        message = f"image `{path.stem}` sets user `{user}`"
        hint = "leave `user` out: SageMaker starts training as root, and its toolkit writes below /opt/ml"
        fields.report(message, fields.place("user"), "training images run as root", hint)
    named = [*fields.text_pairs("components")]
    requires = [one for name, value in named if (one := requirement(name, value, problems))]
    content, unlocked = _content(fields, path.parent)
    recipe = Recipe(
        name=path.stem,
        summary=fields.text("summary", required=True),
        status=fields.choice("status", STATUSES, "current"),
        base=_base(fields, catalog),
        components=tuple(requires),
        variants={name.text: value for name, value in fields.text_pairs("variants")},
        without=frozenset(fields.texts("without")),
        content=content,
        location=fields.location,
        requirements=unlocked,
    )
    fields.finish()
    _check_names(fields, catalog, [name for name, _ in named])
    return recipe


def _base(fields: Fields, catalog: Catalog) -> Requirement:
    node = fields.require("base")
    nothing = Requirement("", "", fields.location)
    if isinstance(node, YamlMapping) and len(node.entries) == 1 and isinstance(node.entries[0][1], Scalar):
        name, value = node.entries[0][0], node.entries[0][1]
        found = requirement(name, value, fields.problems) or nothing
    elif isinstance(node, Scalar):
        name, found = node, Requirement(node.text, "", node.location)
    else:
        if node is not None:
            fields.report("`base` is a component's name, or one name and its versions", node.location)
        return nothing
    bases = {one.name for one in catalog.components.values() if one.is_base}
    if name.text not in bases:
        fields.report(f"unknown base `{name.text}`", name.location, hint=suggestion(name.text, bases))
    return found


def _check_names(fields: Fields, catalog: Catalog, named: list[Scalar]) -> None:
    known = catalog.provided_names()
    keys = [key for key, _ in fields.pairs("variants")]
    for name in (*named, *keys, *fields.scalars("without")):
        if name.text not in known:
            near = suggestion(name.text, known)
            hint = near or "components are folders under recipes/components; `./bake list --components` names them"
            fields.report(f"unknown component `{name.text}`", name.location, hint=hint)


def _content(fields: Fields, folder: Path) -> tuple[Content, Path | None]:
    packages, unlocked = _requirements(fields, folder)
    apt = []
    for package in fields.scalars("apt"):
        if not _APT.fullmatch(package.text):
            fields.report(f"`{package.text}` is no apt package name", package.location)
        apt.append(package.text)
    environment = []
    for name, value in fields.text_pairs("environment"):
        if not _VARIABLE.fullmatch(name.text):
            fields.report(f"`{name.text}` is no variable name", name.location)
        if "\n" in value.text:
            fields.report(f"the value of `{name.text}` has to be one line", value.location)
        environment.append((name.text, value.text))
    code, entry_point = _code(fields, folder)
    content = Content(
        apt=tuple(sorted(apt)),
        packages=packages,
        files=_files(fields, folder),
        environment=tuple(environment),
        run=fields.texts("run"),
        code=code,
        entry_point=entry_point,
    )
    return content, unlocked


def _requirements(fields: Fields, folder: Path) -> tuple[tuple[Package, ...], Path | None]:
    if not fields.has("requirements"):
        fields.text("requirements")
        return (), None
    path = folder / fields.text("requirements")
    spot = fields.place("requirements")
    try:
        data = path.read_bytes()
    except OSError:
        fields.report(f"there is no file `{path.name}` beside the recipe", spot)
        return (), None
    if path.suffix == ".lock":
        return load_lock(path, spot, fields.problems), None
    lock = path.with_name(path.name + ".lock")
    image = fields.what.split("`")[1]
    if not lock.is_file():
        hint = f"make the lock with `./bake pin {image}` and commit it"
        fields.report(f"`{path.name}` has no lock", spot, "every package is pinned by content", hint)
        return (), path
    if f"# of {path.name} sha256:{sha256(data).hexdigest()}" != lock.read_text().split("\n", 1)[0]:
        hint = f"make it again with `./bake pin {image}` and commit it"
        fields.report(f"`{lock.name}` is older than `{path.name}`", spot, hint=hint)
        return (), path
    return load_lock(lock, spot, fields.problems), path


def _files(fields: Fields, folder: Path) -> tuple[File, ...]:
    found: list[File] = []
    for child in fields.children("files", "a file"):
        source = folder / child.text("from", required=True)
        target = child.text("to", required=True)
        child.finish()
        if not _is_clean_path(target):
            child.report(f"`{target}` is no absolute path", child.place("to"))
        elif source.is_file():
            name = f"{target}{source.name}" if target.endswith("/") else target
            found.append(_file(source, name))
        elif source.is_dir():
            found += _folder(source, target.rstrip("/"))
        else:
            child.report(f"there is no `{child.text('from')}` beside the recipe", child.place("from"))
    return tuple(found)


def _code(fields: Fields, folder: Path) -> tuple[tuple[File, ...], str | None]:
    child = fields.child("code", "`code`")
    if child is None:
        return (), None
    source = folder / child.text("directory", required=True)
    entry_point = child.text("entry_point", required=True)
    child.finish()
    if not source.is_dir():
        child.report(f"there is no folder `{child.text('directory')}` beside the recipe", child.place("directory"))
        return (), None
    if not (source / entry_point).is_file():
        child.report(f"`{child.text('directory')}` holds no `{entry_point}`", child.place("entry_point"))
    return tuple(_folder(source, CODE_FOLDER)), entry_point


def _folder(source: Path, target: str) -> list[File]:
    files = (path for path in sorted(source.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    return [_file(path, f"{target}/{path.relative_to(source).as_posix()}") for path in files]


def _file(source: Path, target: str) -> File:
    return File(target, source.read_bytes(), bool(source.stat().st_mode & 0o100))


def _is_clean_path(text: str) -> bool:
    """A path that needs no quoting in a Dockerfile and can't leave its folder."""
    parts = PurePosixPath(text).parts
    return bool(re.fullmatch(r"/[A-Za-z0-9._/+@-]+", text)) and ".." not in parts

"""The `init` task: makes a repository a Bakehouse project with a first recipe."""

import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from bakehouse.catalog import cache, project
from bakehouse.catalog.project import HOME, IS_CHECKOUT
from bakehouse.catalog.recipe import is_image_name, proposed_name
from bakehouse.commands.dockerfile_import import recipe_text
from bakehouse.commands.dockerfile_import.account import AccountRow, Fate
from bakehouse.commands.dockerfile_import.bases import DEFAULT_BASE
from bakehouse.commands.dockerfile_import.choose import ChosenComponents, recipe_head
from bakehouse.commands.dockerfile_import.translate import DockerfileBuild, find_context
from bakehouse.errors import Location, RecipeError, UsageError
from bakehouse.lock import locking
from bakehouse.lock.base_description import component_name
from bakehouse.plan.workspace import open_workspace, select
from bakehouse.util.files import display_path, is_file, read_text, write_whole
from bakehouse.util.format import format_count, format_table
from bakehouse.util.terminal import Reporter

RECIPES = "training-images"
"""Directory of the recipes of a new project."""
IGNORED = ("/build/", "/signing.pem")
"""Paths of a project that are not committed: Bakehouse's state, and the private key of its signatures."""
_FIRST = ChosenComponents(
    DEFAULT_BASE,
    {"pytorch": "2.13.0", "sagemaker-pytorch-training": "*"},
    {"pytorch": "cpu-*"},
)
_REQUIREMENTS = ("requirements.txt", "requirements/base.txt", "uv.lock", "pylock.toml")
"""Usual paths of a repository's requirements; a file for pip precedes a lock."""
_CODE = ("src", "code", "training")
"""Usual directories of a training script."""
_TABLE = re.compile(r"^[ \t]*\[tool\.bakehouse\][ \t]*(?:#.*)?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class DockerfileOptions:
    """Options of `docker build` for the Dockerfile."""

    context: str = ""
    target: str = ""
    arguments: Mapping[str, str] = field(default_factory=dict)


NO_OPTIONS = DockerfileOptions()


@dataclass(slots=True)
class Created:
    """Result of `init`."""

    name: str
    """Name of the image."""
    lines: list[str] = field(default_factory=list)
    """Written files, and those that existed."""
    rows: tuple[AccountRow, ...] = ()
    """Fates of the instructions of the Dockerfile."""
    untranslated: tuple[AccountRow, ...] = ()
    """Parts of the Dockerfile that the user has to check."""
    dockerfile: str = ""
    change: str = ""
    """Versions that another base changes."""
    needs_lock: bool = False
    """The recipe has requirements that `init` locks at once."""
    is_locked: bool = False
    """`init` has locked the requirements."""
    is_proven: bool = False
    """The recipe was resolved and planned."""

    @property
    def text(self) -> str:
        """Return the report with the next commands."""
        parts = [*([self.change] if self.change else []), *self.lines]
        if self.dockerfile:
            parts += ["", *recipe_text.account_table(self.rows)]
            parts += ["", *self._rows_to_check]
            parts += ["the recipe resolves"] if self.is_proven else []
        lock = [] if self.is_locked else [(f"bake lock {self.name}", "lock the requirements")]
        rows_next = [
            *lock,
            (f"bake resolve {self.name}", "select versions that fit"),
            (f"bake render {self.name}", "write the Dockerfile"),
            (f"bake release {self.name}", "build, test and push the image"),
        ]
        parts += ["", "next:", *format_table(rows_next, indent="  ").rstrip("\n").split("\n")]
        return "\n".join(parts) + "\n"

    @property
    def _rows_to_check(self) -> list[str]:
        if not self.untranslated:
            return [f"each instruction of {self.dockerfile} is in the recipe, kept or replaced"]
        count = format_count(len(self.untranslated), "part")
        rows = recipe_text.check_rows(self.untranslated, self.dockerfile)
        return [f"{count} of the Dockerfile to check:", *rows]


def run(
    start: Path,
    name: str = "",
    dockerfile: str = "",
    base: str = "",
    describe: Callable[[str], tuple[str, str]] | None = None,
    options: DockerfileOptions = NO_OPTIONS,
) -> Created:
    """Write the settings, a recipe and .gitignore entries. Existing files are kept, or only extended.

    `describe` returns the component of an image that is the base, and a line about it.
    """
    root = _root(start)
    source = start / dockerfile
    if dockerfile and not is_file(source):
        raise UsageError(f"`{dockerfile}` does not exist", hint="name a Dockerfile")
    created = Created(name or _default_name(root))
    _check_name(created.name)
    pyproject = root / "pyproject.toml"
    old = read_text(pyproject) if is_file(pyproject) else ""
    new, directory = with_settings(old, pyproject)
    recipe = root / directory / "images" / f"{created.name}.yaml"
    files: dict[Path, str] = {}
    selection = _FIRST
    if base and describe:
        selection = _described(base, root / directory, root, describe, created)
    if not recipe.exists():
        if dockerfile:
            own = recipe.parent.parent
            roots = (HOME / "recipes", *([own] if own.is_dir() else []))
            catalog = cache.load(roots).catalog
            context = start / options.context if options.context else find_context(source, root)
            if context != source.parent:
                created.lines.append(f"build context: {display_path(context)}; `--context` names another one")
            build = DockerfileBuild(source, context, options.arguments, options.target)
            imported = recipe_text.import_dockerfile(build, dockerfile, recipe, catalog)
            created.dockerfile, created.rows = dockerfile, imported.rows
            created.untranslated, created.change = imported.checks, imported.change
            created.needs_lock = imported.needs_lock
            new, directory = with_settings(old, pyproject, imported.region)
            selected = tomllib.loads(new)["tool"]["bakehouse"].get("region")
            if imported.region and selected != imported.region:
                reason = f"`region` in [tool.bakehouse] selects the registry of {selected}"
                text = f"FROM {imported.image}"
                created.untranslated += (AccountRow(imported.line, text, Fate.UNTRANSLATED, reason),)
            files |= imported.files
        else:
            files[recipe] = first_recipe(created.name, root, recipe, selection)
    # The recipe directory must exist before the settings name it.
    for path, content in files.items():
        _write(path, content, root, created)
    if not files:
        created.lines.append(f"kept {recipe.relative_to(root)}")
    if new != old:
        write_whole(pyproject, new)
        created.lines.append(f"{'extended' if old else 'wrote'} pyproject.toml: [tool.bakehouse]")
    else:
        created.lines.append("kept pyproject.toml")
    _ignore(root, created)
    return created


def build_options(context: str, target: str, arguments: Sequence[str]) -> DockerfileOptions:
    """Return the options of `docker build`. Raises UsageError for an argument without a value."""
    for argument in arguments:
        if "=" not in argument:
            raise UsageError(f"`{argument}` is not NAME=VALUE", hint="write `--build-arg NAME=VALUE`")
    return DockerfileOptions(context, target, dict(argument.split("=", 1) for argument in arguments))


def prove(created: Created, directory: Path, report: Reporter) -> None:
    """Lock, resolve and plan the recipe, as the next commands would. Raises their errors."""
    if created.needs_lock:
        created.lines += locking.run(directory, [created.name], report)
        created.is_locked = True
    if created.rows:
        created.is_proven = bool(select(open_workspace(directory), [created.name]).plan.images)


def _root(start: Path) -> Path:
    """Return the directory of the enclosing project, else the current one. Raises UsageError in Bakehouse."""
    if IS_CHECKOUT and start.is_relative_to(HOME):
        raise UsageError(
            "this is the repository of Bakehouse itself",
            hint="run `bake init` in the repository of your training code",
        )
    # The settings may name a recipe directory that `init` still has to create.
    root = project.images_directory(start).parent
    return start if root == HOME else root


def _default_name(root: Path) -> str:
    return proposed_name(root.resolve().name) or "training"


def _check_name(name: str) -> None:
    if not is_image_name(name):
        rule = "use lowercase letters and digits, with single `-`, `.` or `_` between them"
        other = proposed_name(name)
        raise UsageError(f"`{name}` is not an image name", hint=f"{rule}: `{other}`" if other else rule)


def with_settings(text: str, path: Path, region: str = "") -> tuple[str, str]:
    """Return a pyproject.toml with `recipes` in `[tool.bakehouse]`, and the first recipe directory.

    With a `region`, it also has one. All other settings, comments and line ends stay as they are. Raises
    RecipeError.
    """
    newline = "\r\n" if "\r\n" in text else "\n"
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"`{path.name}` is not TOML: {error}", Location(path, 1, 1)) from error
    tool = values.get("tool", {})
    table = tool.get("bakehouse") if isinstance(tool, dict) else None
    known = table if isinstance(table, dict) else {}
    has_recipes = isinstance(known.get("recipes"), list) and known["recipes"]
    added: dict[str, object] = {} if has_recipes else {"recipes": [RECIPES]}
    if region and "region" not in known:
        added["region"] = region
    if not added:
        return text, str(known["recipes"][0])
    lines = newline.join(f"{name} = {json.dumps(value)}" for name, value in added.items())
    if header := _TABLE.search(text):
        changed = f"{text[: header.end()]}{newline}{lines}{text[header.end() :]}"
    else:
        end = "" if not text or text.endswith("\n") else newline
        blank = newline if text.strip() else ""
        changed = f"{text}{end}{blank}[tool.bakehouse]{newline}{lines}{newline}"
    expected = {**values, "tool": {**tool, "bakehouse": {**(table or {}), **added}}}
    if not _is_toml(changed, expected):
        names = " and ".join(f"`{name}`" for name in added)
        raise RecipeError(
            f"cannot add {names} to [tool.bakehouse] in `{path.name}`",
            Location(path, 1, 1),
            hint=f"add `{lines.replace(newline, '` and `')}` to that table",
        )
    return changed, RECIPES if "recipes" in added else str(known["recipes"][0])


def _is_toml(text: str, values: object) -> bool:
    try:
        return tomllib.loads(text) == values
    except tomllib.TOMLDecodeError:
        return False


def _described(
    base: str, recipes: Path, root: Path, describe: Callable[[str], tuple[str, str]], created: Created
) -> ChosenComponents:
    """Write the component of a base, unless it exists, and return a selection with it."""
    name = component_name(base)
    path = recipes / "components" / name / "component.yaml"
    if not path.exists():
        text, line = describe(base)
        _write(path, text, root, created)
        created.lines.append(line)
    else:
        created.lines.append(f"kept {path.relative_to(root)}")
    catalog = cache.load((HOME / "recipes", recipes)).catalog
    if name not in catalog.components:
        raise RecipeError(
            f"component `{name}` has mistakes",
            Location(path, 1, 1),
            hint=f"run `bake lock {name}` for all mistakes",
        )
    return ChosenComponents((name, catalog.components[name].releases[0].version))


def first_recipe(name: str, root: Path, recipe: Path, selection: ChosenComponents = _FIRST) -> str:
    """Return a recipe with the requirements and the code of the repository, and commented examples."""
    to_root = _relative(root, recipe)
    requirements = next((file for file in _REQUIREMENTS if is_file(root / file)), "")
    directory = next((path for path in _CODE if is_file(root / path / "train.py")), "")
    code = f"code: {{directory: {to_root}/{directory or _CODE[0]}, entry_point: train.py}}"
    return "\n".join(
        [
            *recipe_head(
                f"PyTorch on CPU instances, with the code of {name}"
                if selection is _FIRST
                else f"Extends {selection.base[0]}, with the code of {name}",
                selection,
            ),
            "",
            f"# Your Python packages. After a change, run `bake lock {name}`.",
            f"{'' if requirements else '# '}requirements: {to_root}/{requirements or _REQUIREMENTS[0]}",
            "",
            "# Your training code, copied to /opt/ml/code. SageMaker starts the entry point.",
            code if directory else f"# {code}",
            "# Run it in smoke tests.",
            "# smoke: {hosts: 1, hyperparameters: {epochs: 1}}",
            "",
            "# Packages of the distribution, environment variables, other files, and last build steps.",
            "# packages: [libgomp1]",
            '# environment: {TOKENIZERS_PARALLELISM: "false"}',
            "# files:",
            f"#   - {{from: {to_root}/tools/, to: /opt/tools/}}",
            "# run: [\"echo 'umask 027' >> /etc/profile\"]",
            "",
        ]
    )


def _ignore(root: Path, created: Created) -> None:
    """Add the paths of Bakehouse to .gitignore, unless it ignores them."""
    path = root / ".gitignore"
    text = read_text(path) if is_file(path) else ""
    lines = {line.strip().strip("/") for line in text.splitlines()}
    missing = [entry for entry in IGNORED if entry.strip("/") not in lines]
    if not missing:
        created.lines.append("kept .gitignore")
        return
    end = "" if not text or text.endswith("\n") else "\n"
    write_whole(path, f"{text}{end}" + "".join(f"{entry}\n" for entry in missing))
    created.lines.append(f"{'extended' if text else 'wrote'} .gitignore: {' '.join(missing)}")


def _write(path: Path, content: str, root: Path, created: Created) -> None:
    if path.exists():
        created.lines.append(f"kept {path.relative_to(root)}")
        return
    write_whole(path, content)
    created.lines.append(f"wrote {path.relative_to(root)}")


def _relative(path: Path, file: Path) -> str:
    """Return a path relative to the directory of a file."""
    return PurePosixPath(os.path.relpath(path, file.parent)).as_posix()

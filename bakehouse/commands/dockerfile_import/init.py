"""The `init` task: makes a repository a Bakehouse project with a first recipe."""

import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packaging.version import Version

from bakehouse.catalog import cache, project
from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.component import Component
from bakehouse.catalog.names import FRAMEWORKS
from bakehouse.catalog.project import HOME, IS_CHECKOUT
from bakehouse.catalog.recipe import is_image_name, proposed_name
from bakehouse.commands.dockerfile_import import recipe_text
from bakehouse.commands.dockerfile_import.account import AccountRow, Fate
from bakehouse.commands.dockerfile_import.base_settings import BaseSettings
from bakehouse.commands.dockerfile_import.bases import DEFAULT_BASE, BaseChoice, KnownImage
from bakehouse.commands.dockerfile_import.choose import PYTHON, settle
from bakehouse.commands.dockerfile_import.choose import select as select_components
from bakehouse.commands.dockerfile_import.proposal import Proposal, Wish
from bakehouse.commands.dockerfile_import.repository import look
from bakehouse.commands.dockerfile_import.translate import DockerfileBuild, find_context
from bakehouse.errors import Location, RecipeError, UsageError
from bakehouse.lock import locking
from bakehouse.lock.base_description import component_name
from bakehouse.plan.workspace import conflict_text, open_workspace, select
from bakehouse.util.dockerfile_reader import instructions
from bakehouse.util.files import display_path, is_file, read_text, write_whole
from bakehouse.util.format import format_count, format_table
from bakehouse.util.suggest import suggestion
from bakehouse.util.terminal import Reporter

RECIPES = "training-images"
"""Directory of the recipes of a new project."""
IGNORED = ("/build/", "/signing.pem")
"""Paths of a project that are not committed: Bakehouse's state, and the private key of its signatures."""
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
    found: tuple[AccountRow, ...] = ()
    """Files of a repository without a Dockerfile, with what the recipe has of them."""
    dockerfile: str = ""
    change: str = ""
    """Versions that another base changes."""
    needs_lock: bool = False
    """The recipe has requirements that `init` locks at once."""
    is_locked: bool = False
    """`init` has locked the requirements."""
    build: DockerfileBuild | None = None
    """The build of the Dockerfile."""
    compared: Sequence[str] = ()
    """Differences between the image of the Dockerfile and that of the recipe."""
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
        if self.compared:
            parts += ["", "the image of the Dockerfile, and that of the recipe:"]
            parts += [f"  {line}" for line in self.compared]
        if self.found:
            cells = [("found", "recipe")]
            for row in self.found:
                names = row.text, *[""] * len(row.details)
                cells += zip(names, row.details, strict=False)
            parts += ["", *format_table(cells, indent="  ").rstrip("\n").split("\n")]
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
    ask: Callable[[str], BaseSettings | None] = lambda _: None,
) -> Created:
    """Write the settings, a recipe and .gitignore entries. Existing files are kept, or only extended.

    `describe` returns the component of an image that is the base, and a line about it; `ask` its settings.
    """
    root = _root(start)
    source = start / dockerfile
    if dockerfile and not is_file(source):
        raise UsageError(f"`{dockerfile}` does not exist", hint="name a Dockerfile")
    if dockerfile and not any(
        step.keyword == "FROM" for step in instructions(read_text(source, errors="replace"))
    ):
        hint = "run `bake init` without this option: it reads the files of the repository"
        raise UsageError(f"`{dockerfile}` is not a Dockerfile: it has no FROM", hint=hint)
    created = Created(name or _default_name(root))
    _check_name(created.name)
    pyproject = root / "pyproject.toml"
    old = read_text(pyproject) if is_file(pyproject) else ""
    new, directory = with_settings(old, pyproject)
    recipe = root / directory / "images" / f"{created.name}.yaml"
    files: dict[Path, str] = {}
    if dockerfile:
        context = start / options.context if options.context else find_context(source, root)
        settings = ask(base) if base else None
        known = {base: settings} if settings else {}
        if base:
            state = (
                f"sets {settings}"
                if settings
                else "has settings that are not known: neither the engine nor a registry answers"
            )
            created.lines.append(f"{base} {state}")
        created.build = DockerfileBuild(source, context, options.arguments, options.target, bases=known)
    described: BaseChoice | None = None
    if base and describe:
        described = _described(base, root / directory, root, describe, created)
    if not recipe.exists():
        own = recipe.parent.parent
        roots = (HOME / "recipes", *([own] if own.is_dir() else []))
        catalog = cache.load(roots, refusal_of=conflict_text).catalog
        if created.build:
            context = created.build.context
            if context != source.parent:
                created.lines.append(f"build context: {display_path(context)}; `--context` names another one")
            files, proposal, created.change = recipe_text.import_dockerfile(
                created.build, dockerfile, recipe, catalog
            )
            created.dockerfile, created.rows = dockerfile, proposal.account.rows()
            created.untranslated, region = proposal.account.checks(), proposal.base.region
            created.needs_lock = bool(proposal.requirements or proposal.requirement_files)
            new, directory = with_settings(old, pyproject, region)
            selected = tomllib.loads(new)["tool"]["bakehouse"].get("region")
            if region and selected != region:
                reason = f"`region` in [tool.bakehouse] selects the registry of {selected}"
                text = f"FROM {proposal.image}"
                created.untranslated += (AccountRow(proposal.line, text, Fate.UNTRANSLATED, (reason,)),)
        else:
            proposal = look(root, catalog)
            if described:
                proposal.base = KnownImage((described,))
            files = first_recipe(created.name, recipe, root, proposal, catalog)
            created.found, created.untranslated = proposal.account.rows(), proposal.account.checks()
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
) -> BaseChoice:
    """Write the component of a base, unless it exists, and return it. Raises UsageError for no image."""
    bases = [
        name
        for name, part in cache.load((HOME / "recipes",), refusal_of=conflict_text).catalog.components.items()
        if part.is_base
    ]
    plain = base.partition(":")[0]
    if "/" not in base and (plain == base or suggestion(plain, bases)):
        hint = (
            suggestion(plain, bases)
            or "write a reference with a tag, such as `registry.example/team/image:1`"
        )
        raise UsageError(f"`{base}` is not an image that Bakehouse can ask", hint=hint)
    name = component_name(base)
    path = recipes / "components" / name / "component.yaml"
    if not path.exists():
        text, line = describe(base)
        _write(path, text, root, created)
        created.lines.append(line)
    else:
        created.lines.append(f"kept {path.relative_to(root)}")
    catalog = cache.load((HOME / "recipes", recipes), refusal_of=conflict_text).catalog
    if name not in catalog.components:
        raise RecipeError(
            f"component `{name}` has mistakes",
            Location(path, 1, 1),
            hint=f"run `bake lock {name}` for all mistakes",
        )
    return BaseChoice(name, catalog.components[name].releases[0].version)


def first_recipe(
    name: str, recipe: Path, root: Path, proposal: Proposal, catalog: Catalog
) -> dict[Path, str]:
    """Return the recipe for a repository, with commented examples, and its requirements file."""
    wishes = [wish for wish in proposal.wishes.values() if wish.name in FRAMEWORKS and not wish.variant]
    for wish in wishes:
        wish.variant = "cpu-*"
        wish.specifier = wish.specifier or _newest_pinned(catalog.components[wish.name])
    python = proposal.wishes.setdefault(PYTHON, Wish((PYTHON,)))
    python.variant = "distribution"
    selection = select_components(proposal, catalog)
    if selection.variants.pop(PYTHON, "") and selection.resolution:
        selection.components[PYTHON] = str(selection.resolution.version_of(PYTHON))
    for wish in wishes:
        if selection.variants.get(wish.name, "").startswith("cpu") and wish.entries:
            wish.entries[0].add(Fate.RECIPE, "for CPUs; for GPUs, remove `variants`")
        wish.variant = ""
    settle(proposal, selection)
    names = [FRAMEWORKS[part].title for part in selection.components if part in FRAMEWORKS]
    extends = f"Extends {selection.base[0]}, with" if selection.base[0] != DEFAULT_BASE[0] else ""
    head = f"{' and '.join(names)}, with" if names else extends or "With"
    summary = f"{head} the code of {name}"
    return recipe_text.recipe_files(summary, proposal, selection, root, recipe)


def _newest_pinned(component: Component) -> str:
    """Return the newest release for CPUs whose files have recorded checksums, as a specifier."""
    releases = sorted(component.releases, key=lambda release: Version(release.version), reverse=True)
    for release in releases:
        variants = [variant for variant in release.variants if variant.name.startswith("cpu")]
        if any(all(artifact.sha256 for artifact in variant.spec.artifacts) for variant in variants):
            return f"=={release.version}"
    return ""


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

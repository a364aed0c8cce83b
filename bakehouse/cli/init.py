"""The `init` task: makes a repository a Bakehouse project with a first recipe."""

import json
import os
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from bakehouse.catalog import project
from bakehouse.catalog.cache import cached_catalog
from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.project import HOME, IS_CHECKOUT
from bakehouse.catalog.recipe import load_recipes
from bakehouse.cli import dockerfile_import
from bakehouse.cli.dockerfile_import import (
    BUILD_VARIABLES,
    DEFAULT_BASE,
    BaseAndComponents,
    RecipeProposal,
    Untranslated,
)
from bakehouse.errors import Location, Problems, RecipeError, UsageError
from bakehouse.resolve.resolver import Unsatisfiable, resolve
from bakehouse.util.files import is_file, write_whole
from bakehouse.util.format import format_count, format_table
from bakehouse.util.tempdir import scratch_directory

RECIPES = "training-images"
"""Directory of the recipes of a new project."""
IGNORED = ("/build/",)
"""Paths that Bakehouse writes into a project and that are not committed."""
_FIRST = BaseAndComponents(
    DEFAULT_BASE,
    {"pytorch": "2.13.0", "sagemaker-pytorch-training": "*"},
    {"pytorch": "cpu-*"},
)
_PLAIN_PATH = re.compile(r"(?:/(?!\.\.?(?:/|$))[A-Za-z0-9._+@-]+)+")
_TABLE = re.compile(r"^[ \t]*\[tool\.bakehouse\][ \t]*(?:#.*)?$", re.MULTILINE)


@dataclass(slots=True)
class Created:
    """Result of `init`."""

    name: str
    """Name of the image."""
    lines: list[str] = field(default_factory=list)
    """Written files, and those that existed."""
    untranslated: tuple[Untranslated, ...] = ()
    dockerfile: str = ""
    needs_lock: bool = False

    @property
    def text(self) -> str:
        """Return the report with the next commands."""
        parts = [*self.lines]
        if self.untranslated:
            count = format_count(len(self.untranslated), "part")
            rows = [(f"{self.dockerfile}:{item.line}", item.text, item.reason) for item in self.untranslated]
            parts += ["", f"{count} of the Dockerfile to check:"]
            parts += format_table(rows, indent="  ").rstrip("\n").split("\n")
        elif self.dockerfile:
            parts += ["", f"all of {self.dockerfile} is in the recipe"]
        lock = [(f"bake lock {self.name}", "lock the requirements")] if self.needs_lock else []
        rows_next = [
            *lock,
            (f"bake resolve {self.name}", "select versions that fit"),
            (f"bake render {self.name}", "write the Dockerfile"),
            (f"bake release {self.name}", "build, test and push the image"),
        ]
        parts += ["", "next:", *format_table(rows_next, indent="  ").rstrip("\n").split("\n")]
        return "\n".join(parts) + "\n"


def run(start: Path, name: str = "", dockerfile: str = "") -> Created:
    """Write the settings, a recipe and .gitignore entries. Existing files are kept, or only extended."""
    root = _root(start)
    source = start / dockerfile
    if dockerfile and not is_file(source):
        raise UsageError(f"there is no file `{dockerfile}`", hint="name a Dockerfile")
    created = Created(name or _default_name(root))
    _check_name(created.name)
    pyproject = root / "pyproject.toml"
    old = pyproject.read_text(encoding="utf-8") if is_file(pyproject) else ""
    new, directory = with_settings(old, pyproject)
    recipe = root / directory / "images" / f"{created.name}.yaml"
    files: dict[Path, str] = {}
    if not recipe.exists():
        if dockerfile:
            text = source.read_text(encoding="utf-8", errors="replace")
            proposal = dockerfile_import.translate(text, source.parent)
            created.dockerfile = dockerfile
            region = dockerfile_import.region_of(proposal)
            new, directory = with_settings(old, pyproject, region)
            selected = tomllib.loads(new)["tool"]["bakehouse"].get("region")
            if region and selected != region:
                reason = f"`region` in [tool.bakehouse] selects the registry of {selected}"
                line, image = proposal.base
                proposal.untranslated.append(Untranslated(line, f"FROM {image}", reason))
            files |= _imported(proposal, source.parent, recipe, created)
        else:
            files[recipe] = first_recipe(created.name, root, recipe)
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
    name = re.sub(r"[^a-z0-9]+", "-", root.resolve().name.lower()).strip("-")
    return name or "training"


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[a-z0-9]+([._-][a-z0-9]+)*", name) or len(name) > 100:
        raise UsageError(
            f"`{name}` is not an image name",
            hint="use lowercase letters and digits, with single `-`, `.` or `_` between them",
        )


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


def first_recipe(name: str, root: Path, recipe: Path) -> str:
    """Return a recipe that resolves at once, with commented examples of the user's own content."""
    to_root = _relative(root, recipe)
    requirements = next(
        (file for file in ("requirements.txt", "requirements/base.txt") if is_file(root / file)),
        "requirements.txt",
    )
    script = next((path for path in ("src", "code", "training") if is_file(root / path / "train.py")), "src")
    return "\n".join(
        [
            *_head(f"PyTorch on CPU instances, with the code of {name}", _FIRST),
            "",
            f"# Your Python packages. After a change, run `bake lock {name}`.",
            f"# requirements: {to_root}/{requirements}",
            "",
            "# Your training code, copied to /opt/ml/code. SageMaker starts the entry point.",
            f"# code: {{directory: {to_root}/{script}, entry_point: train.py}}",
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


def _head(summary: str, selection: BaseAndComponents) -> list[str]:
    name, versions = selection.base
    lines = [
        f"summary: {summary}",
        f"base: {{{name}: {json.dumps(versions)}}}",
    ]
    if selection.components:
        lines.append("components:")
        lines += [f"  {name}: {json.dumps(versions)}" for name, versions in selection.components.items()]
    if selection.variants:
        pairs = ", ".join(f"{name}: {json.dumps(glob)}" for name, glob in selection.variants.items())
        lines.append(f"variants: {{{pairs}}}")
    return lines


def _imported(proposal: RecipeProposal, context: Path, recipe: Path, created: Created) -> dict[Path, str]:
    """Return the recipe of a Dockerfile, and the file with packages that only the Dockerfile named."""
    own = recipe.parent.parent
    roots = (HOME / "recipes", *([own] if own.is_dir() else []))
    catalog = cached_catalog(roots, Problems())
    selection = _first_that_fits(proposal, catalog)
    notes = [*proposal.untranslated, *_changes(proposal, selection)]
    image = proposal.base[1] or "scratch"
    lines = _head(f"Replaces the Dockerfile from {image}", selection)
    if proposal.apt:
        lines.append(f"packages: [{', '.join(proposal.apt)}]")
    files: dict[Path, str] = {}
    packages = proposal.packages
    if packages or proposal.requirement_files:
        created.needs_lock = True
        path = context / (proposal.requirement_files or [""])[0]
        if packages or len(proposal.requirement_files) > 1:
            path = recipe.with_name(f"{recipe.stem}.requirements.txt")
            included = [f"-r {_relative(context / file, path)}" for file in proposal.requirement_files]
            files[path] = "\n".join([*included, *packages]) + "\n"
        lines.append(f"requirements: {_relative(path, recipe)}")
    if proposal.code:
        directory, entry_point = proposal.code
        lines.append(
            f"code: {{directory: {_quoted(_relative(context / directory, recipe))},"
            f" entry_point: {_quoted(entry_point)}}}"
        )
    copied = [item for item in proposal.files if _PLAIN_PATH.fullmatch(item[2].rstrip("/"))]
    notes += [
        Untranslated(line, f"COPY {source} {target}", "the path has characters that a recipe cannot have")
        for line, source, target in proposal.files
        if (line, source, target) not in copied
    ]
    if copied:
        lines.append("files:")
        lines += [
            f"  - {{from: {_quoted(_relative(context / source, recipe))}, to: {_quoted(target)}}}"
            for _, source, target in copied
        ]
    environment = {name: value for name, value in proposal.environment.items() if name not in BUILD_VARIABLES}
    if environment:
        lines.append("environment:")
        lines += [f"  {name}: {json.dumps(value)}" for name, value in environment.items()]
    if proposal.run:
        lines.append("run:")
        lines += [f"  - {json.dumps(command)}" for command in proposal.run]
    created.untranslated = tuple(sorted(notes, key=lambda item: item.line))
    if created.untranslated:
        lines += ["", "# Not in this recipe:"]
        lines += [
            f"# {created.dockerfile}:{item.line}: {item.text}: {item.reason}" for item in created.untranslated
        ]
    return {**files, recipe: "\n".join(lines) + "\n"}


def _first_that_fits(proposal: RecipeProposal, catalog: Catalog) -> BaseAndComponents:
    """Return the most faithful base and components that resolve."""
    tried: set[str] = set()
    for selection in dockerfile_import.selections(proposal, catalog.components):
        text = "\n".join([*_head("x", selection), ""])
        if text in tried:
            continue
        tried.add(text)
        with scratch_directory() as directory:
            recipe = directory / "images" / "image.yaml"
            recipe.parent.mkdir()
            recipe.write_text(text, encoding="utf-8")
            try:
                resolve(load_recipes([directory], catalog)["image"], catalog)
            except (RecipeError, Unsatisfiable):
                continue
        return selection
    return _FIRST


def _changes(proposal: RecipeProposal, selection: BaseAndComponents) -> Iterable[Untranslated]:
    """Yield how the selected base and components differ from those of the Dockerfile."""
    line, image = proposal.base
    name, versions = selection.base
    is_same = name != DEFAULT_BASE[0] or re.search(r"(^|/)debian:(12|bookworm)|(^|/)python:", image)
    if not is_same:
        parts = ", ".join(f"{part} {version}" for part, version in selection.components.items())
        installed = f" and installs {parts}" if parts else ""
        yield Untranslated(line, f"FROM {image}", f"the recipe starts from {name} {versions}{installed}")
    for component, (number, specifier) in proposal.python.items():
        asked = dockerfile_import.versions(specifier)
        given = selection.components.get(component)
        if given is None and not name.startswith("aws-dlc"):
            yield Untranslated(number, f"pip install {component}", "no release in the catalogue fits")
        elif given is None and not (component == _framework(name) and asked in ("*", versions)):
            text = f"pip install {component} {asked}"
            yield Untranslated(number, text, f"check whether {name} {versions} contains this version")
        elif given not in (None, asked):
            text = f"pip install {component} {asked}"
            yield Untranslated(number, text, f"no such release fits; the recipe has `{given}`")


def _framework(base: str) -> str:
    """Return the component that replaces the framework of an AWS base."""
    return base.removeprefix("aws-dlc-")


def _ignore(root: Path, created: Created) -> None:
    """Add the paths of Bakehouse to .gitignore, unless it ignores them."""
    path = root / ".gitignore"
    text = path.read_text(encoding="utf-8") if is_file(path) else ""
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


def _quoted(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z0-9._/+@-]+", text) else json.dumps(text)

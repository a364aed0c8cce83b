"""Reader of image recipes, with the location of every value."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType

from bakehouse.catalog.build_requirements import read_undeclared
from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.component import DRIVER, INSTANCE, Requirement
from bakehouse.catalog.job_checks import EFA_BANDWIDTH, JOB_CHECKS
from bakehouse.catalog.matrix import MATRIX, Variables, cells, expand
from bakehouse.catalog.project import HOME
from bakehouse.catalog.purpose import PURPOSES, Concession, read_concessions, read_purpose
from bakehouse.catalog.python_lock import Package, load_lock
from bakehouse.catalog.requirements_file import RequirementsFile, RequirementsFiles, other_format
from bakehouse.catalog.requirements_lock import FOREIGN, LockState, state_of
from bakehouse.catalog.run_steps import RunStep, read_steps
from bakehouse.catalog.secrets import kind_of_secret
from bakehouse.catalog.size_budget import Budget, read_budgets
from bakehouse.catalog.spec_reader import environment, is_version, read_platforms, requirement
from bakehouse.catalog.system_packages import NO_PACKAGES, SystemPackages, package_lines, read_packages
from bakehouse.catalog.trim import read_kinds
from bakehouse.catalog.user_files import (
    ANYWHERE,
    File,
    Reach,
    UserFiles,
    beside,
    check_targets,
    read_code,
    read_files,
    report_missing,
)
from bakehouse.catalog.user_smoke import USER_CODE, UserSmoke, read_smoke
from bakehouse.catalog.window import Windows
from bakehouse.errors import Diagnostic, Location, Problems, RecipeError
from bakehouse.util.directory_handles import repository_around
from bakehouse.util.files import is_file, matching_paths, names_in
from bakehouse.util.format import format_names
from bakehouse.util.oci import PLATFORM, PLATFORMS, platform_suffix
from bakehouse.util.suggest import suggestion
from bakehouse.util.yaml_fields import Fields
from bakehouse.util.yaml_reader import Mapping as YamlMapping
from bakehouse.util.yaml_reader import Node, Scalar, load

RefusalOf = Callable[["Recipe", Catalog], str]
"""Returns why no versions satisfy a recipe; empty if some do."""
FORMATS = ("docker", "oci", "oci-zstd")
"""Docker schema 2 or OCI with gzip layers, or OCI with zstd layers (impossible in Docker schema 2)."""
_NAME = re.compile(r"[a-z0-9]+([._-][a-z0-9]+)*")
_MAX_NAME = 100
_CHECKS = (*JOB_CHECKS, "no_private_keys", "components")
_COMPONENT_CHECK = re.compile(r"components\.[a-z0-9]+(-[a-z0-9]+)*\.[a-z0-9_]+")
_NO_COMPONENT = (
    "add Python packages to the file of `requirements`; a component is a directory below `components/`"
)
_OTHER_WORDS = {
    'base: {debian: "12"}': ("from", "image", "base_image", "parent"),
    "requirements: ../../requirements.txt": (
        *("pip", "pip_packages", "python_packages", "pip_requirements", "dependencies", "conda"),
    ),
    "packages: [libgomp1]": ("apt", "apt_packages", "apt_get", "system_packages", "dnf", "yum"),
    "environment: {NAME: value}": ("env", "env_vars", "variables"),
    "code: {directory: ../../src, entry_point: train.py}": (
        *("entrypoint", "entry_point", "cmd", "command", "script", "source", "source_dir", "src"),
    ),
    "files: [{from: ../../tools/, to: /opt/tools/}]": ("copy", "add"),
    "run: [a command]": ("steps", "commands", "shell", "post_install"),
    "summary: text": ("description", "title"),
    "targets: {instances: [ml.g5.12xlarge]}": ("instances", "instance", "instance_type", "instance_types"),
    "smoke: {hosts: 1}": ("test", "tests"),
}
"""Words of Dockerfiles and other tools for a key, by an example of the key."""
_PACKAGE = re.compile(r"[A-Za-z0-9_-]+|[A-Za-z0-9][A-Za-z0-9._-]*(\[[^]]*\])?\s*[=<>!~;@].*")
"""Form of a requirement, which a recipe may contain by mistake in place of the path of a file."""


@dataclass(frozen=True, slots=True)
class Content:
    """Content of an image in addition to components."""

    system_packages: SystemPackages = NO_PACKAGES
    packages: tuple[Package, ...] = ()
    files: tuple[File, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    run: tuple[RunStep, ...] = ()
    code: tuple[File, ...] = ()
    entry_point: str | None = None
    left_out: tuple[str, ...] = ()
    """The rules that exclude files of the directories, with counts; not part of build keys."""
    allowed: tuple[str, ...] = ()
    """Paths of files whose secrets the recipe allows; not part of build keys."""

    def steps(self, place: str) -> tuple[RunStep, ...]:
        """Return the steps before the content of a key; those that come last for an empty one."""
        return tuple(step for step in self.run if step.before == place)

    @property
    def own_files(self) -> tuple[File, ...]:
        """Files and code. The image directory contains copies of them."""
        return (*self.files, *self.code)


@dataclass(frozen=True, slots=True)
class Targets:
    """Hardware that an image must support."""

    instances: tuple[Scalar, ...] = ()
    """Instance types, or globs of them."""
    driver: Scalar | None = None
    """Version of the host's driver; None if it is unknown."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A recipe of one image."""

    name: str
    """Name of the image."""
    family: str
    """Name of the recipe file, which the images of a matrix share."""
    summary: str
    base: Requirement
    components: tuple[Requirement, ...]
    variants: Mapping[str, Scalar]
    """A glob of variant names per component."""
    exclude: frozenset[str]
    content: Content
    location: Location
    requirements: RequirementsFiles | None = None
    """Requirements of the user, unless their file is itself a lock."""
    targets: Targets = Targets()
    required: tuple[str, ...] | None = None
    """Smoke checks that must pass before a release; None if the recipe does not list them."""
    efa_bandwidth: int = 0
    """GB/s on the bus that the check `efa_bandwidth` must reach; 0 without a limit."""
    format: str = FORMATS[0]
    """Format in which the image is stored and pushed."""
    budgets: tuple[Budget, ...] = ()
    """Size limits of its components."""
    trim: tuple[str, ...] | None = None
    """Kinds of files that it omits; None if this depends on the evidence."""
    package_lines: Mapping[str, Location] = field(default_factory=dict)
    """The location of each distribution package that it names."""
    smoke: UserSmoke | None = None
    """The user's own smoke test; not part of build keys."""
    platform: str = PLATFORM
    directory: str = "recipes"
    """Recipe directory that contains it, relative to the project."""
    build_packages: SystemPackages = NO_PACKAGES
    """Distribution packages that only the builds of source distributions need."""
    build_requirements: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Build requirements that source distributions do not declare, by normal name."""
    untested_imports: tuple[tuple[Scalar, Scalar], ...] = ()
    """Packages of `requirements` that no smoke check imports, each with the reason."""
    constraints: bool = True
    """True if installations in the image must keep the Python packages of components."""
    renamed_from: tuple[Scalar, ...] = ()
    """Former names of the image; not part of build keys."""
    purpose: str = ""
    """Purpose that it is recommended for; empty for images of users and those of the archive."""
    concessions: tuple[Concession, ...] = ()
    left_out: tuple[str, ...] = ()
    """Combinations that the windows of its matrix leave out, with the reasons; not part of build keys."""

    @property
    def is_archived(self) -> bool:
        """Return whether it is an image of Bakehouse that is not recommended for anything."""
        return not self.purpose and self.location.path.is_relative_to(HOME / "recipes")


@dataclass(frozen=True, slots=True)
class BrokenRecipe:
    """A recipe that is left out, because its file or a component that it may use has mistakes."""

    family: str
    """Name of the recipe file."""
    path: Path
    names: frozenset[str]
    """Names of its images, as far as they are readable."""
    mistakes: tuple[Diagnostic, ...]
    components: tuple[str, ...] = ()
    """The components with the mistakes; empty if the file has them."""


@dataclass(frozen=True, slots=True)
class Recipes:
    """All readable recipes by image name, and the files with mistakes."""

    by_name: Mapping[str, Recipe]
    broken: tuple[BrokenRecipe, ...] = ()


def load_recipes(
    roots: Iterable[Path],
    catalog: Catalog,
    problems: Problems | None = None,
    *,
    locked: bool = True,
    refusal_of: RefusalOf | None = None,
) -> dict[str, Recipe]:
    """Read all image recipes, as `read_recipes` does.

    Mistakes are added to `problems`, or raised together as RecipeError without it.
    """
    mistakes = Problems() if problems is None else problems
    recipes = read_recipes(roots, catalog, locked=locked, refusal_of=refusal_of)
    for broken in recipes.broken:
        mistakes.extend(broken.mistakes)
    if problems is None:
        mistakes.raise_as(RecipeError)
    return dict(recipes.by_name)


def read_recipes(
    roots: Iterable[Path],
    catalog: Catalog,
    *,
    locked: bool = True,
    project: Path | None = None,
    is_limited: bool = True,
    known: Mapping[Path, Sequence[Recipe]] = MappingProxyType({}),
    refusal_of: RefusalOf | None = None,
) -> Recipes:
    """Read all image recipes; those of later directories replace earlier ones.

    A file with mistakes does not affect the others. Without `locked`, missing and outdated locks of
    requirements are accepted, because `bake lock` makes them. The `.dockerignore` of a `project` applies to
    the files of recipes, which must be in its repository or in one of `roots` if `is_limited`. `known` are
    the recipes of files that were read before. Only a catalogue without windows can be read without
    `refusal_of`.
    """
    roots = tuple(roots)
    inside = (repository_around(project), *roots) if project and is_limited else ()
    reach = Reach(project, tuple(directory.resolve() for directory in inside), {})
    families: dict[str, list[Recipe]] = {}
    problems: dict[Path, Problems] = {}
    paths: dict[str, Path] = {}
    for root in roots:
        is_inside = project is not None and root.is_relative_to(project)
        directory = root.relative_to(project).as_posix() if project and is_inside else root.name
        for path in sorted(
            path for path in matching_paths(root / "images", "*.*") if path.suffix in (".yaml", ".yml")
        ):
            mistakes = problems[path] = Problems()
            families[path.stem], paths[path.stem] = [*known.get(path, ())], path
            if path in known:
                continue
            if path.suffix == ".yml":
                hint = f"rename it to `{path.stem}.yaml`"
                message = f"`{path.name}` is not read as a recipe"
                mistakes.add(Diagnostic(message, Location(path, 1, 1), hint=hint))
                continue
            try:
                family = _load_family(path, load(path), catalog, mistakes, locked, reach, refusal_of)
                families[path.stem] = [replace(recipe, directory=directory) for recipe in family]
            except RecipeError as error:
                mistakes.extend(error.diagnostics)
    recipes: dict[str, Recipe] = {}
    valid = [recipe for name, family in families.items() if not problems[paths[name]] for recipe in family]
    for recipe in valid:
        first = recipes.setdefault(recipe.name, recipe)
        if first is not recipe:
            message = f"two images are called `{recipe.name}`"
            label = f"the other one is in {first.location.path.name}"
            hint = "use more variables of the matrix in `name`" if first.family == recipe.family else ""
            problems[paths[recipe.family]].add(
                Diagnostic(message, recipe.location, label if not hint else "", hint=hint)
            )
    every_name = {recipe.name for family in families.values() for recipe in family}
    _report_renames(valid, every_name, {family: problems[path] for family, path in paths.items()})
    broken = tuple(
        BrokenRecipe(name, path, frozenset(recipe.name for recipe in families[name]), mistakes.all)
        for name, path in sorted(paths.items())
        if (mistakes := problems[path])
    )
    left_out = {recipe.family for recipe in broken}
    return Recipes(
        {name: recipe for name, recipe in recipes.items() if recipe.family not in left_out}, broken
    )


def _load_family(
    path: Path,
    root: Node,
    catalog: Catalog,
    problems: Problems,
    locked: bool,
    reach: Reach,
    refusal_of: RefusalOf | None,
) -> list[Recipe]:
    """Return the recipe of one image, or those of the cells of a matrix."""
    fields = Fields(root, f"image `{path.stem}`", problems)
    matrix = fields.child(MATRIX, f"`{MATRIX}`")
    if not isinstance(root, YamlMapping) or matrix is None:
        image = Fields(root, fields.what, problems)
        return _for_platforms(image, path, path.stem, catalog, locked, reach)

    def refusal(cell: Variables) -> str:
        """Return why a cell does not resolve; mistakes are reported when it is in the window."""
        if refusal_of is None:
            message = "a window needs a resolver"
            raise ValueError(message)
        trial = Problems()
        [node] = expand(root, [cell], trial)
        image = Fields(node, fields.what, trial)
        images = _for_platforms(image, path, image.text("name", path.stem), catalog, False, reach)
        return "" if trial else next(filter(None, (refusal_of(recipe, catalog) for recipe in images)), "")

    def mistakes_of(name: str) -> Iterator[Diagnostic]:
        return (mistake for broken in catalog.broken_among({name}) for mistake in broken.mistakes)

    windows = Windows(catalog.components, mistakes_of, refusal)
    recipes, matrix_cells = [], cells(matrix, windows)
    for node in expand(root, matrix_cells, problems):
        name = Fields(node, fields.what, Problems()).node("name")
        if isinstance(name, Scalar):
            image = Fields(node, fields.what, problems)
            recipes += _for_platforms(image, path, name.text, catalog, locked, reach)
        else:
            names = "-".join(f"${{{variable}|tag}}" for variable in matrix_cells[0])
            hint = f"such as `name: {path.stem}-{names}`"
            fields.report("a recipe with a matrix needs a `name` for its images", matrix.location, hint=hint)
    left_out = windows.left_out
    return [replace(recipe, left_out=left_out) for recipe in recipes] if left_out else recipes


def _for_platforms(
    fields: Fields, path: Path, name: str, catalog: Catalog, locked: bool, reach: Reach
) -> list[Recipe]:
    return [
        read_recipe(fields, path, name, catalog, platform=platform, locked=locked, reach=reach)
        for platform in read_platforms(fields, (PLATFORM,))
    ]


def read_recipe(
    fields: Fields,
    path: Path,
    name: str,
    catalog: Catalog,
    *,
    platform: str = PLATFORM,
    locked: bool,
    reach: Reach = ANYWHERE,
) -> Recipe:
    """Read the recipe of one image, without `matrix`; its files must be within `reach`."""
    platforms = read_platforms(fields, (PLATFORM,))
    if not is_image_name(name):
        label = "lowercase letters and digits, single `-`, `.` and `_` between them"
        # In a matrix, a variable can be the mistake
        other = "" if fields.has("name") else proposed_name(name)
        hint = f"call it `{other}`" if other else ""
        if other and (file := f"{other}{path.suffix}") in names_in(path.parent):
            hint = f"give it another name: `{file}` is next to it"
        fields.report(f"`{name}` is not an image name", fields.place("name"), label, hint)
    if fields.text("name", name) != name:
        fields.report(
            "only a recipe with a matrix has a `name`",
            fields.place("name"),
            "the file name is the image name",
        )
    user = fields.text("user", "root")
    if user not in ("root", "0"):
        message = f"image `{path.stem}` sets user `{user}`"
        hint = "remove `user`: SageMaker starts training as root, and its toolkit writes to /opt/ml"
        fields.report(message, fields.place("user"), "training images run as root", hint)
    components = fields.text_pairs("components")
    requires = (requirement(name, versions, fields.problems) for name, versions in components)
    suffix = platform_suffix(platform) if len(platforms) > 1 else ""
    content, unlocked = _content(fields, path, f"{name}{suffix}", suffix, reach, locked=locked)
    _check_secrets(fields)
    recipe = Recipe(
        name=f"{name}{suffix}",
        family=path.stem,
        summary=fields.text("summary", required=True),
        base=_base(fields, catalog),
        components=tuple(filter(None, requires)),
        variants={key.text: value for key, value in fields.text_pairs("variants")},
        exclude=frozenset(fields.texts("exclude")),
        content=content,
        location=fields.location,
        requirements=unlocked,
        targets=_targets(fields, catalog, platforms),
        required=_required(fields),
        efa_bandwidth=fields.number(EFA_BANDWIDTH, 0),
        format=fields.choice("format", FORMATS, FORMATS[0]),
        budgets=read_budgets(
            fields, {*catalog.components, *(component.name for component in catalog.broken)}
        ),
        trim=read_kinds(fields),
        package_lines=package_lines(fields, "packages") | package_lines(fields, "build_packages"),
        smoke=read_smoke(
            fields,
            path.parent,
            content.entry_point,
            [file.target for file in (*content.files, *content.code)],
        ),
        platform=platform,
        build_packages=read_packages(fields, "build_packages"),
        build_requirements=read_undeclared(fields),
        untested_imports=_untested_imports(fields),
        constraints=fields.flag("constraints", default=True),
        renamed_from=_former_names(fields, suffix),
        purpose=read_purpose(fields),
        concessions=tuple(read_concessions(fields)),
    )
    fields.finish(_hints(fields, catalog))
    _check_names(fields, catalog, [name for name, _ in components])
    return recipe


def _hints(fields: Fields, catalog: Catalog) -> dict[str, str]:
    """Return hints at keys with the names of components, and at words that other tools have for a key."""
    meant = {word: example for example, words in _OTHER_WORDS.items() for word in words}
    for name in catalog.provided_names.intersection(fields.names) - {INSTANCE, DRIVER}:
        key = "base" if name in catalog.components and catalog.links.is_base(name) else "components"
        meant[name] = f'{key}: {{{name}: "*"}}'
    return {word: f"did you mean `{example}`?" for word, example in meant.items()}


def _required(fields: Fields) -> tuple[str, ...] | None:
    """Read the smoke checks in `required`: jobs, or checks of components."""
    checks = fields.scalars("required")
    for check in checks:
        if check.text not in _CHECKS and not _COMPONENT_CHECK.fullmatch(check.text):
            hint = suggestion(check.text, _CHECKS) or "`bake smoke` prints the names of the checks"
            fields.report(f"unknown smoke check `{check.text}`", check.location, hint=hint)
        elif check.text == USER_CODE and not fields.has("smoke"):
            fields.report(f"`{USER_CODE}` needs `smoke` in the recipe", check.location)
    return tuple(dict.fromkeys(check.text for check in checks)) if fields.has("required") else None


def _targets(fields: Fields, catalog: Catalog, platforms: Sequence[str]) -> Targets:
    child = fields.child("targets", "`targets`")
    if child is None:
        return Targets()
    targets = child.scalars("instances")
    for instance in targets:
        check_instance(instance, catalog, child.problems, platforms)
    driver = child.node("driver") if child.text("driver") else None
    if not isinstance(driver, Scalar) or not is_driver(driver, child.problems):
        driver = None
    child.finish()
    return Targets(targets, driver)


def check_instance(
    instance: Scalar, catalog: Catalog, problems: Problems, platforms: Sequence[str] = PLATFORMS
) -> None:
    """Report an unknown instance type, one of another platform, or a glob that matches none."""
    component = catalog.components.get(INSTANCE)
    releases = component.releases if component else ()
    types = {variant.name: variant.platform for release in releases for variant in release.variants}
    matching = {types[name] for name in types if fnmatchcase(name, instance.text)}
    if not matching:
        message = f"unknown instance type `{instance.text}`"
        problems.add(Diagnostic(message, instance.location, hint=suggestion(instance.text, types)))
    elif matching.isdisjoint(platforms):
        own, other = " and ".join(platforms), min(matching)
        message = f"instance type `{instance.text}` is {other}, but the recipe is for {own}"
        both = ", ".join(platform for platform in PLATFORMS if platform in (*platforms, other))
        hint = f"set `platforms: [{both}]` in the recipe"
        problems.add(Diagnostic(message, instance.location, hint=hint))


def by_purpose(recipes: Iterable[Recipe]) -> dict[str, list[Recipe]]:
    """Return recipes by the title of their purpose, newest versions first; those without a purpose last."""
    groups: dict[str, list[Recipe]] = {purpose: [] for purpose in (*PURPOSES, "")}
    for recipe in recipes:
        groups[recipe.purpose].append(recipe)
    return {
        PURPOSES.get(purpose, ""): sorted(group, key=_newest_first)
        for purpose, group in groups.items()
        if group
    }


def _newest_first(recipe: Recipe) -> list[tuple[bool, int, str]]:
    """Return a key that sorts numbers in names downwards, and before words."""
    parts = re.findall(r"[0-9]+|[^0-9.-]+", recipe.name)
    return [(False, -int(part), "") if part.isdigit() else (True, 0, part) for part in parts]


def is_image_name(name: str) -> bool:
    """Return whether a text can be the name of an image."""
    return _NAME.fullmatch(name) is not None and len(name) <= _MAX_NAME


def proposed_name(name: str) -> str:
    """Return the image name that is most like a text; empty if it has no letters or digits."""
    words = re.sub(r"[^a-z0-9._-]+", "-", name.lower())
    return re.sub(r"[._-]*([._-])[._-]*", r"\1", words).strip("._-")[:_MAX_NAME]


def is_driver(driver: Scalar, problems: Problems) -> bool:
    """Return whether a text is a driver version; report it if it is not."""
    if is_version(driver.text):
        return True
    message = f"`{driver.text}` is not a driver version"
    problems.add(Diagnostic(message, driver.location, hint="use a version such as `550.163.01`"))
    return False


def _base(fields: Fields, catalog: Catalog) -> Requirement:
    given = fields.name_or_pair("base", "a component name, or one name with versions")
    if given is None:
        return Requirement("", "", fields.location)
    name, value = given
    base = Requirement(name.text, "", name.location)
    if value is not None:
        base = requirement(name, value, fields.problems) or Requirement("", "", fields.location)
    bases = {
        *filter(catalog.links.is_base, catalog.components),
        *(component.name for component in catalog.broken),
    }
    if name.text not in bases:
        component, *version = re.split("[=:@ ]+", name.text, maxsplit=1)
        hint = suggestion(component, bases) or f"use one of {format_names(sorted(bases))}"
        if version and component in bases:
            hint = f'write a base with a version as `{{{component}: "{version[0]}"}}`'
        elif (component := component.rpartition("/")[2]) in catalog.components:
            hint = (
                f'`{component}` is a component: name it in `components`, on a base such as `{{debian: "12"}}`'
            )
        fields.report(f"unknown base `{name.text}`", name.location, hint=hint)
    return base


def _check_names(fields: Fields, catalog: Catalog, components: list[Scalar]) -> None:
    known = catalog.provided_names - {INSTANCE, DRIVER}
    keys = [key for key, _ in fields.pairs("variants")]
    for name in (*components, *keys, *fields.scalars("exclude")):
        if name.text not in known:
            hint = suggestion(name.text, known) or _NO_COMPONENT
            fields.report(f"unknown component `{name.text}`", name.location, hint=hint)


def _content(
    fields: Fields, recipe: Path, image: str, suffix: str, reach: Reach, *, locked: bool
) -> tuple[Content, RequirementsFiles | None]:
    unlocked = _requirements(fields, recipe, reach)
    packages: tuple[Package, ...] = ()
    if unlocked and unlocked.path.suffix == ".lock" and not unlocked.files[0].is_lock:
        lock = unlocked.path.with_stem(f"{unlocked.path.stem}{suffix}")
        packages = load_lock(lock, fields.place("requirements"), fields.problems, image)
        unlocked = None
    elif unlocked and locked:
        packages = _locked(fields, unlocked, image)
    files = read_files(fields, recipe.parent, reach)
    code, entry_point = read_code(fields, recipe.parent, reach)
    check_targets([*files.placed, *code.placed], fields)
    content = Content(
        system_packages=read_packages(fields, "packages"),
        packages=packages,
        files=_files_of(files),
        environment=tuple(environment(fields).items()),
        run=read_steps(fields),
        code=_files_of(code),
        entry_point=entry_point,
        left_out=tuple(dict.fromkeys((*files.left_out, *code.left_out))),
        allowed=(*files.allowed, *code.allowed),
    )
    return content, unlocked


def _files_of(files: UserFiles) -> tuple[File, ...]:
    """Return all files; the same object for images with the same directory."""
    items = [item for item, _ in files.placed]
    return items[0] if len(items) == 1 else tuple(file for item in items for file in item)


def _check_secrets(fields: Fields) -> None:
    """Report variables that contain secrets; the message must not repeat the value."""
    public = fields.texts("public_environment")
    for name, value in fields.text_pairs("environment"):
        if name.text not in public and (kind := kind_of_secret(name.text, value.text)):
            message = (
                f"`{name.text}` in `environment` looks like {kind}; everybody who pulls the image can read it"
            )
            hint = (
                f"set it when the job starts; if it is not secret, add `{name.text}` to `public_environment`"
            )
            fields.report(message, replace(name.location, text=""), hint=hint)


def _former_names(fields: Fields, suffix: str) -> tuple[Scalar, ...]:
    names = fields.text_or_texts("renamed_from")
    for name in names:
        if not is_image_name(name.text):
            fields.report(f"`{name.text}` is not an image name", name.location)
    return tuple(replace(name, text=f"{name.text}{suffix}") for name in names)


def _report_renames(
    recipes: Iterable[Recipe], names: Collection[str], problems: Mapping[str, Problems]
) -> None:
    """Report former names that a recipe has, or that two recipes claim."""
    claims: dict[str, Recipe] = {}
    for recipe in recipes:
        for name in recipe.renamed_from:
            other = claims.setdefault(name.text, recipe)
            if name.text == recipe.name:
                message, hint = f"image `{recipe.name}` is renamed from itself", "write its former name"
            elif name.text in names:
                message = f"`{recipe.name}` is renamed from `{name.text}`, which still has a recipe"
                hint = f"remove the recipe of `{name.text}`, or the name from `renamed_from`"
            elif other is not recipe:
                message = f"`{other.name}` and `{recipe.name}` are both renamed from `{name.text}`"
                hint = "keep the name in the recipe that continues the releases"
            else:
                continue
            problems[recipe.family].add(Diagnostic(message, name.location, hint=hint))


def _untested_imports(fields: Fields) -> tuple[tuple[Scalar, Scalar], ...]:
    pairs = fields.text_pairs("untested_imports")
    for name, reason in pairs:
        if not reason.text.strip():
            hint = f"write it: `untested_imports: {{{name.text}: needs a GPU}}`"
            fields.report(f"`{name.text}` in `untested_imports` has no reason", name.location, hint=hint)
    return pairs


def _requirements(fields: Fields, recipe: Path, reach: Reach) -> RequirementsFiles | None:
    """Read the file or the files of `requirements`."""
    files = [
        _requirements_file(file, recipe, reach)
        for file in fields.named_files("requirements", "a file of `requirements`")
    ]
    found = tuple(file for file in files if file)
    return RequirementsFiles(found) if files and len(found) == len(files) else None


def _requirements_file(fields: Fields, recipe: Path, reach: Reach) -> RequirementsFile | None:
    """Read the path, extras and dependency groups of a file."""
    extras, groups = fields.texts("extras"), fields.texts("groups")
    path = beside(fields, "file", recipe.parent, reach)
    fields.finish()
    if path is None:
        return None
    spot = fields.place("file")
    if not is_file(path):
        if _PACKAGE.fullmatch(fields.text("file")):
            hint = "write the packages to a file, and name it: `requirements: ../../requirements.txt`"
            fields.report(f"`{fields.text('file')}` is a package, not a file", spot, hint=hint)
        else:
            report_missing(fields, "file", "file ", recipe.parent)
        return None
    if mistake := other_format(path, spot):
        fields.problems.add(mistake)
        return None
    return RequirementsFile(path, spot, extras, groups)


def _locked(fields: Fields, files: RequirementsFiles, image: str) -> tuple[Package, ...]:
    """Return the locked packages of an image; report a lock that is missing or outdated."""
    lock, spot = files.lock, fields.place("requirements")
    hint = f"run `bake lock {image}` and commit the lock"
    if not is_file(lock):
        fields.report(f"`{files.path.name}` has no lock", spot, "every package is pinned by content", hint)
        return ()
    try:
        requirements = files.read()
    except RecipeError as error:
        fields.problems.extend(error.diagnostics)
        return ()
    state = state_of(lock, image, *requirements.digests)
    if state is LockState.MISSING:
        fields.report(f"`{lock.name}` has no packages for image `{image}`", spot, hint=hint)
    elif state is LockState.OLDER:
        fields.report(f"`{lock.name}` is older than `{files.path.name}`", spot, hint=hint)
    elif state in FOREIGN:
        fields.report(f"`{lock.name}` {state.value}", spot, hint=FOREIGN[state])
    elif state is LockState.EDITED:
        fields.report(f"`{lock.name}` was {state.value}", spot, hint=hint)
    else:
        return load_lock(lock, spot, fields.problems, image)
    return ()

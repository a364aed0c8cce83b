"""What may import what: one direction, and one door to each outside tool."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bakehouse.project import HOME

SHARED = {"errors", "files"}
"""Any module may import these."""

ALLOWED = {
    # what all share
    "errors": "",
    "files": "",
    "report": "",
    # from a recipe to an image that is planned and rendered
    "yamlfile": "",
    "fields": "yamlfile",
    "component": "",
    "lockfile": "component",
    "faces": "yamlfile fields component lockfile",
    "catalog": "yamlfile fields component faces",
    "recipe": "yamlfile fields component lockfile faces catalog",
    "candidates": "component recipe",
    "resolution": "component catalog recipe candidates",
    "plan": "component recipe resolution",
    "explain": "component catalog recipe candidates resolution plan",
    "rendering": "plan",
    "project": "yamlfile",
    "workspace": "yamlfile catalog recipe resolution plan explain rendering project",
    # the machine: programs, locks, the engine
    "processes": "",
    "locks": "",
    "owners": "",
    "scratch": "owners",
    "engine": "",
    "archives": "",
    "containers": "owners engine archives",
    "apt": "",
    "aptconfig": "",
    "dockerd": "",
    "daemon": "plan",
    "provision": "apt dockerd daemon",
    "doctor": "apt dockerd daemon provision",
    # what a build is given, building
    "pipconfig": "",
    "serving": "plan",
    "supplies": "scratch aptconfig pipconfig serving",
    "buildevents": "",
    "buildtimes": "buildevents",
    "buildfailure": "buildevents",
    "buildx": "processes scratch buildevents buildfailure",
    "progress": "buildevents buildtimes",
    "bootstrap": "plan processes locks scratch engine aptconfig buildevents",
    "build": "plan engine supplies buildx progress bootstrap",
    # smoke tests
    "checks": "plan engine",
    "ranks": "",
    "cluster": "engine ranks",
    "smoke_report": "plan checks",
    "smoke_checks": "plan checks cluster",
    "verdicts": "checks ranks cluster smoke_report smoke_checks",
    "smoke": "engine build checks cluster smoke_report smoke_checks verdicts",
    "junit": "checks smoke_report",
    # publishing
    "registry": "plan",
    "manifests": "plan",
    "distribution": "plan registry manifests",
    "transfer": "plan registry manifests",
    "refusals": "plan build registry manifests distribution transfer",
    "push": "plan locks build checks smoke_report registry manifests distribution transfer refusals",
    "pusher": "plan owners registry manifests distribution transfer",
    "registry_keeper": "",
    "embedded_registry": "locks registry registry_keeper",
    "ecr": "registry",
    "releases": "locks build smoke_report push",
    "image_uris": "registry releases",
    "estimator": "registry releases",
    # pins and locks
    "pylock": "processes pipconfig",
    "pin": "component faces plan aptconfig serving pylock",
    "pinning": "component catalog recipe resolution project workspace pipconfig supplies pylock pin",
    # the tasks
    "workflow": (
        "plan project workspace engine containers daemon provision supplies progress build checks "
        "smoke_report smoke junit registry push pusher embedded_registry ecr releases"
    ),
    "tables": "yamlfile recipe resolution plan explain workspace build checks smoke_report releases",
    "cleaning": "plan workspace containers daemon",
    "demo": "workspace provision buildtimes progress smoke_report push estimator workflow tables",
    "selftest": "project workspace provision",
    "cli": "report yamlfile project",
}
"""Modules in pipeline order, each with those of ours it may import: only ones that stand above it."""

DOORS = {
    "boto3": {"ecr"},
    "botocore": {"ecr"},
    "docker": {"containers", "pusher"},
    "invoke": {"cli"},
    "jinja2": {"rendering"},
    "packaging": {"candidates", "catalog", "checks", "component", "faces", "lockfile", "pylock", "resolution"},
    "requests": {"containers", "distribution", "embedded_registry", "pusher"},
    "yaml": {"yamlfile"},
}
"""Packages of others, each with the modules that may import it."""

SLOW = {"boto3", "botocore", "docker", "jinja2", "requests"}
"""Imported where they are used: a task that needs none of them starts at once."""

PROGRAMS = {
    "apt", "aptconfig", "bootstrap", "build", "daemon", "dockerd", "doctor", "embedded_registry", "processes",
    "provision", "pylock", "registry_keeper", "selftest", "supplies",
}
"""Modules that may run other programs."""

PACKAGE = HOME / "bakehouse"
MODULES = sorted(path.stem for path in PACKAGE.glob("*.py") if path.stem != "__init__")


def tree(module: str) -> ast.Module:
    return ast.parse((PACKAGE / f"{module}.py").read_text(encoding="utf-8"))


def imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Each import as the package and the part of it that is taken."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                package, _, part = alias.name.partition(".")
                yield package, part
        elif isinstance(node, ast.ImportFrom) and node.module:
            package, _, part = node.module.partition(".")
            if package == "bakehouse" and not part:
                yield from ((package, alias.name) for alias in node.names)
            else:
                yield package, part


def at_module_level(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The imports that run when the module is imported."""
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from imports(node)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_what_the_table_allows(module: str) -> None:
    assert module in ALLOWED, f"bakehouse/{module}.py is not in the table of {__file__}: say what it may import"
    taken = {part.partition(".")[0] for package, part in imports(tree(module)) if package == "bakehouse"}

    extra = taken - SHARED - set(ALLOWED[module].split()) - {"__version__"}
    assert not extra, f"bakehouse/{module}.py imports {', '.join(sorted(extra))}, which the table does not allow"


def test_the_table_has_one_direction_and_nothing_that_is_gone() -> None:
    above: set[str] = set()
    for module, allowed in ALLOWED.items():
        assert set(allowed.split()) <= above, f"{module} may import what stands below it"
        above.add(module)

    assert above == set(MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_a_package_of_others_has_its_doors(module: str) -> None:
    outside = {package for package, _ in imports(tree(module))} - sys.stdlib_module_names - {"bakehouse"}

    assert outside <= DOORS.keys(), f"{module} imports {outside - DOORS.keys()}: give it a door in {__file__}"
    assert [one for one in sorted(outside) if module not in DOORS[one]] == []


@pytest.mark.parametrize("module", MODULES)
def test_what_takes_long_to_import_is_imported_where_it_is_used(module: str) -> None:
    assert {package for package, _ in at_module_level(tree(module))} & SLOW == set()


@pytest.mark.parametrize("module", MODULES)
def test_only_some_modules_run_programs(module: str) -> None:
    runs = any(package == "subprocess" for package, _ in imports(tree(module)))

    assert not runs or module in PROGRAMS


@pytest.mark.parametrize("module", sorted(set(MODULES) - {"buildx"}))
def test_docker_buildx_is_run_by_one_module(module: str) -> None:
    commands = [
        {one.value for one in node.elts if isinstance(one, ast.Constant)}
        for node in ast.walk(tree(module))
        if isinstance(node, (ast.List, ast.Tuple))
    ]

    assert not any({"docker", "buildx"} <= words for words in commands)


@pytest.mark.parametrize(
    "path",
    [*sorted(PACKAGE.glob("inside/*.py")), *sorted(HOME.glob("recipes/components/*/smoke.py"))],
    ids=lambda path: str(path.relative_to(HOME)),
)
def test_what_runs_inside_an_image_needs_nothing_of_ours(path: Path) -> None:
    assert "bakehouse" not in {package for package, _ in imports(ast.parse(path.read_text(encoding="utf-8")))}

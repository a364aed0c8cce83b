"""Records of the Python packages of vendor bases, as the base's own Python lists them.

Requirements are locked against them, also on machines without an engine.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from packaging.version import InvalidVersion, Version

from bakehouse.catalog.base_packages import DIRECTORY, file_of, read_packages, text_of
from bakehouse.catalog.python_lock import normal_name
from bakehouse.catalog.recipe import Recipe
from bakehouse.engine import daemon_info
from bakehouse.engine.buildkit_events import Event
from bakehouse.errors import BuildError, Problems, RecipeError
from bakehouse.lock.base_step import build_settings, run_step
from bakehouse.plan.dockerfile import filled
from bakehouse.plan.planner import registry_host
from bakehouse.plan.workspace import Workspace, is_own
from bakehouse.resolve.resolver import Resolution, resolve
from bakehouse.util.files import write_whole
from bakehouse.util.format import format_count
from bakehouse.util.terminal import Reporter

_DOCKERFILE = """\
FROM {{ base }} AS base
RUN --network=none mkdir /output && python3 - > /output/packages <<"END"
try:
    from importlib.metadata import distributions
except ImportError:
    from pkg_resources import working_set
    packages = [(each.project_name, each.version) for each in working_set]
else:
    packages = [(each.metadata["Name"], each.version) for each in distributions()]
# Python imports the first of several. Damaged metadata has no name.
for name, version in reversed([each for each in packages if all(each)]):
    print(name, version)
END

FROM scratch
COPY --from=base /output/ /
"""


def pinned_base(resolution: Resolution) -> str:
    """Return the vendor base whose Python an image uses, with its digest; empty without digest or Python."""
    source = resolution.base.spec.base
    if source and source.digest and "python" in resolution.base.candidate.provided:
        return f"{source.reference}@{source.digest}"
    return ""


def record(
    workspace: Workspace,
    recipes: Iterable[Recipe],
    named: Sequence[Recipe],
    report: Reporter,
    on_event: Callable[[Event], None],
) -> Iterator[str]:
    """Record the packages of bases on which images have requirements; yield a line for each base.

    Only bases of `named` images get a record, because that pulls the base. The lines of other bases, and of
    bases that cannot be pulled, say that their packages are unknown.
    """
    problems = Problems()
    unknown: dict[str, tuple[str, Recipe]] = {}
    for recipe in recipes:
        resolution = resolve(recipe, workspace.catalog)
        pinned = pinned_base(resolution)
        if not (pinned and recipe.requirements and is_own(workspace, recipe.requirements)):
            continue
        if read_packages(workspace.project.recipe_roots, pinned) is None:
            host = registry_host(resolution, workspace.project.region, problems)
            unknown.setdefault(pinned, (f"{host}{pinned}", recipe))
    problems.raise_as(RecipeError)
    has_engine = bool(unknown) and isinstance(daemon_info.probe(), daemon_info.Daemon)
    for pinned, (reference, recipe) in unknown.items():
        subject = f"the Python packages of {pinned.partition('@')[0]}"
        if recipe not in named or not has_engine:
            where = "" if has_engine else " where a container engine runs"
            yield f"{subject} are unknown; run `bake lock {recipe.name}`{where}"
            continue
        report(f"listing {subject}")
        try:
            with build_settings(workspace, [reference], report, on_event) as settings:
                texts = run_step(reference, filled(_DOCKERFILE, base=reference), settings)
        except BuildError as error:
            yield f"{subject} are unknown: {error.diagnostics[0].message}"
            continue
        packages = _read_packages(texts["packages"])
        path = workspace.project.recipe_roots[-1] / DIRECTORY / file_of(pinned)
        write_whole(path, text_of(pinned, packages))
        yield f"{path.name}: {format_count(len(packages), 'package')}"


def _read_packages(output: str) -> dict[str, str]:
    """Return the versions of packages by normal name; versions that no requirement can name are left out."""
    packages = {}
    for line in output.splitlines():
        name, _, version = line.partition(" ")
        with contextlib.suppress(InvalidVersion):
            packages[normal_name(name)] = str(Version(version))
    return packages

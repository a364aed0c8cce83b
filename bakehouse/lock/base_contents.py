"""Records of the Python packages and private keys of vendor bases, as the base's own Python lists them.

Requirements are locked against the packages, also on machines without an engine. Smoke tests accept the keys,
because everybody who pulls the base has them.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from packaging.version import InvalidVersion, Version

from bakehouse.catalog.base_contents import (
    DIRECTORY,
    KEY_DIRECTORIES,
    KEY_MARK,
    file_of,
    heading_of,
    read_contents,
    text_of,
)
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
from bakehouse.util.files import matching_paths, read_text, remove_file, write_whole
from bakehouse.util.format import format_count
from bakehouse.util.terminal import Reporter

_DOCKERFILE = """\
FROM {{ base }} AS base
RUN --network=none mkdir /output && python3 - <<"END"
import hashlib
import os
try:
    from importlib.metadata import distributions
except ImportError:
    from pkg_resources import working_set
    packages = [(each.project_name, each.version) for each in working_set]
else:
    packages = [(each.metadata["Name"], each.version) for each in distributions()]
with open("/output/packages", "w") as file:
    # Python imports the first of several. Damaged metadata has no name.
    for name, version in reversed([each for each in packages if all(each)]):
        file.write(name + " " + version + "\\n")
with open("/output/keys", "w") as file:
    for directory in {{ directories }}:
        for parent, _, names in os.walk(directory):
            for path in sorted(os.path.join(parent, name) for name in names):
                content = open(path, "rb").read() if os.path.isfile(path) else b""
                if b"{{ mark }}" in content:
                    file.write(path + " " + hashlib.sha256(content).hexdigest() + "\\n")
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
    """Record what the bases of `named` images contain; yield a line for each base.

    Recording pulls the base, so other bases get no record. If images on such a base have requirements, a line
    says that its packages are unknown.
    """
    problems = Problems()
    unknown: dict[str, tuple[str, Recipe]] = {}
    for recipe in recipes:
        resolution = resolve(recipe, workspace.catalog)
        pinned = pinned_base(resolution)
        has_requirements = recipe.requirements and is_own(workspace, recipe.requirements.path)
        if not pinned or not (has_requirements or recipe in named):
            continue
        if read_contents(workspace.project.recipe_roots, pinned.partition("@")[2]) is None:
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
                search = {"directories": KEY_DIRECTORIES, "mark": KEY_MARK}
                dockerfile = filled(_DOCKERFILE, base=reference, **search)
                texts = run_step(reference, dockerfile, settings)
        except BuildError as error:
            yield f"{subject} are unknown: {error.diagnostics[0].message}"
            continue
        packages = _read_packages(texts["packages"])
        path = workspace.project.recipe_roots[-1] / DIRECTORY / file_of(pinned)
        rows = (line.rpartition(" ") for line in texts["keys"].splitlines())
        keys = {key_path: sha256 for key_path, _, sha256 in rows}
        write_whole(path, text_of(pinned, packages, keys))
        _remove_former(path, pinned)
        yield f"{path.name}: {format_count(len(packages), 'package')}"


def _remove_former(current: Path, pinned: str) -> None:
    """Remove the records of other digests of a base, which its tag no longer points to."""
    heading = heading_of(pinned.partition("@")[0])
    for path in matching_paths(current.parent, "*.txt"):
        text = read_text(path, errors="replace")
        if path != current and text.startswith(f"{heading}@"):
            remove_file(path, missing_ok=True)


def _read_packages(output: str) -> dict[str, str]:
    """Return the versions of packages by normal name; versions that no requirement can name are left out."""
    packages = {}
    for line in output.splitlines():
        name, _, version = line.partition(" ")
        with contextlib.suppress(InvalidVersion):
            packages[normal_name(name)] = str(Version(version))
    return packages

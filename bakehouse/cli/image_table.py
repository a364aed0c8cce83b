"""What there is to build: each image with its versions and how far it was run; the table in the docs."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path

from bakehouse.build import run_log
from bakehouse.build.run_log import Level, Run
from bakehouse.catalog.recipe import Recipe
from bakehouse.errors import Diagnostic, StaleError
from bakehouse.plan.planner import make_plan
from bakehouse.plan.workspace import Workspace, select_own
from bakehouse.resolve.resolver import Resolution, Unsatisfiable, resolve
from bakehouse.util.files import is_file, write_whole
from bakehouse.util.format import format_count

BANNER = "<!-- Made by `./bake render`: change the recipes instead. -->"
_FRAMEWORKS = (("pytorch", "PyTorch"), ("tensorflow", "TensorFlow"))
_COLUMNS = (
    ("CUDA", ("cuda",)),
    ("Python", ("python",)),
    ("EFA", ("efa",)),
    ("NCCL", ("nccl",)),
    ("plugin", ("aws-ofi-nccl",)),
    ("Open MPI", ("open-mpi",)),
    ("SMP / SMDDP", ("smp", "smddp")),
)
_NONE = "-"
_FILE = "docs/images.md"
_MOST_LINES = 20


@dataclass(frozen=True, slots=True)
class Entry:
    """One image; without versions where its recipe can't be satisfied."""

    recipe: Recipe
    resolution: Resolution | None
    level: Level
    earlier: Run | None = None
    """How far it was run before it last changed."""

    @property
    def run(self) -> str:
        """How far it was run, as people are told."""
        if self.earlier is None:
            return self.level.value
        return f"{self.level.value} ({self.earlier.level.value} {self.earlier.date}, changed since)"

    @property
    def versions(self) -> dict[str, str] | None:
        """Every part and what it brings, by name."""
        if self.resolution is None:
            return None
        chosen = (self.resolution.base, *self.resolution.choices)
        brought = {name: version for one in chosen for name, version in one.candidate.provided.items()}
        return dict(sorted({**brought, **{one.name: one.version for one in chosen}}.items()))

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts, lower layers first, each as one says it."""
        if self.resolution is None:
            return ()
        return tuple(str(one.candidate) for one in (self.resolution.base, *self.resolution.choices))


def inventory(workspace: Workspace, recipes: Iterable[Recipe], *, kept: bool = False) -> tuple[Entry, ...]:
    """Each recipe as it resolves now, with the furthest run of exactly that; `kept`: of committed runs."""
    found = [(recipe, _resolved(recipe, workspace)) for recipe in recipes]
    project = workspace.project
    known = run_log.load_runs(project.images)
    if not kept:
        known = run_log.merge_runs(known, run_log.load_runs(project.state))
    resolutions = [resolution for _, resolution in found if resolution]
    planned = make_plan(
        resolutions, workspace.templates, workspace.project.region, workspace.apt_locks
    ).images
    reached = {
        image.name: (run_log.level(image, known), run_log.outdated_run(image, known)) for image in planned
    }
    return tuple(
        Entry(recipe, each, *reached.get(recipe.name, (Level.RENDERED, None))) for recipe, each in found
    )


def _resolved(recipe: Recipe, workspace: Workspace) -> Resolution | None:
    try:
        return resolve(recipe, workspace.catalog)
    except Unsatisfiable:
        return None


def as_object(entry: Entry) -> dict[str, object]:
    """What `list --json` gives of an image."""
    return {
        "image": entry.recipe.name,
        "family": entry.recipe.family,
        "status": entry.recipe.status,
        "summary": entry.recipe.summary,
        "base": entry.parts[0] if entry.parts else None,
        "components": list(entry.parts),
        "versions": entry.versions,
        "committed": entry.recipe.is_committed,
        "run": entry.level.value if entry.resolution else None,
    }


def table(entries: Iterable[Entry]) -> str:
    """docs/images.md: a section for each family, a line for each image."""
    families: dict[str, list[Entry]] = {}
    for entry in entries:
        families.setdefault(entry.recipe.family, []).append(entry)
    count = sum(map(len, families.values()))
    reached = [entry.level for found in families.values() for entry in found]
    told = ", ".join(f"{reached.count(level)} {level.value}" for level in Level if level in reached)
    images = format_count(count, "image")
    recipes = format_count(len(families), "recipe")
    blocks = [
        f"{BANNER}\n\n# Images\n\n{images} of {recipes}; {told}.\n\n"
        "Built: with the real parts. Rehearsed: every step was executed, with stand-ins for what could not\n"
        "be had. Rendered: resolved, planned and written out, and not run since it last changed: its\n"
        "recipe, a part, or a template that all images share. How far it went before is told with the day.\n"
    ]
    blocks += [_section(name, found) for name, found in sorted(families.items())]
    return "\n".join(blocks)


def write_table(workspace: Workspace) -> bool:
    """Bring docs/images.md, where it is kept, and its runs up to date; whether it changed."""
    project = workspace.project
    path = project.root / _FILE
    if not _is_kept(path):
        return False
    run_log.record_runs(project.images, run_log.load_runs(project.state), project.state / "locks")
    text = table(inventory(workspace, select_own(workspace), kept=True))
    if path.read_text(encoding="utf-8") == text:
        return False
    write_whole(path, text)
    return True


def check_table(workspace: Workspace) -> None:
    """Raises StaleError where docs/images.md is kept and not what recipes and the record of runs give."""
    path = workspace.project.root / _FILE
    if _is_kept(path):
        text = table(inventory(workspace, select_own(workspace), kept=True))
        there = path.read_text(encoding="utf-8").splitlines()
        differing = list(unified_diff(there, text.splitlines(), lineterm="", n=0))[2:]
        if differing:
            hint = "run `./bake render` and commit the result"
            tail = tuple(differing[:_MOST_LINES])
            raise StaleError(Diagnostic(f"`{_FILE}` is out of date", tail=tail, hint=hint))


def _is_kept(path: Path) -> bool:
    """Whether a file is such a table, or empty to become one: another of the user's can have its name."""
    if not is_file(path):
        return False
    text = path.read_text(encoding="utf-8", errors="replace")
    return not text.strip() or text.startswith(BANNER)


def _section(family: str, entries: list[Entry]) -> str:
    heads = ("image", "framework", *(head for head, _ in _COLUMNS), "status", "run")
    rows = [heads, tuple("---" for _ in heads), *(_row(entry) for entry in entries)]
    lines = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    return f"## {family}\n\n{_common(one.recipe.summary for one in entries)}\n\n{lines}"


def _common(summaries: Iterable[str]) -> str:
    """One summary for a family: what its images' have in common is said once."""
    found = list(dict.fromkeys(summaries))
    return found[0] if len(found) == 1 else f"{found[0]}; and {len(found) - 1} more like it"


def _row(entry: Entry) -> tuple[str, ...]:
    versions = entry.versions or {}
    frameworks = [f"{told} {versions[name]}" for name, told in _FRAMEWORKS if name in versions]
    cells = [" / ".join(versions[name] for name in names if name in versions) for _, names in _COLUMNS]
    found = [entry.recipe.name, ", ".join(frameworks), *cells, entry.recipe.status, entry.run]
    return tuple(cell or _NONE for cell in found)

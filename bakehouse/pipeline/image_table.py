"""The table of images, `images/README.md`: versions of each and how far it was run."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from bakehouse.catalog.recipe import Recipe
from bakehouse.evidence.image_state import ImageState, Level
from bakehouse.pipeline.image_page import markdown_table
from bakehouse.plan.dockerfile import PAGE_BANNER
from bakehouse.resolve.resolver import Resolution
from bakehouse.util.format import format_count

BANNER = PAGE_BANNER
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


@dataclass(frozen=True, slots=True)
class ImageRow:
    """One image; without versions if its recipe cannot be satisfied."""

    recipe: Recipe
    resolution: Resolution | None
    state: ImageState
    tested: str = ""
    """Results of its checks as text; empty without one."""
    is_committed: bool = True
    """Its rendered files are committed, and not only its key."""

    @property
    def versions(self) -> dict[str, str] | None:
        """Versions of all components and of what they provide, by name."""
        if self.resolution is None:
            return None
        versions: dict[str, str] = {}
        choices = self.resolution.all_choices
        for choice in choices:
            versions |= choice.candidate.provided
        return dict(sorted({**versions, **{choice.name: choice.version for choice in choices}}.items()))

    @property
    def parts(self) -> tuple[str, ...]:
        """The components with version and variant, base first."""
        if self.resolution is None:
            return ()
        return tuple(str(choice.candidate) for choice in self.resolution.all_choices)


def table(rows: Iterable[ImageRow]) -> str:
    """Return the table as Markdown: a section for each family, a line for each image."""
    families: dict[str, list[ImageRow]] = {}
    for row in rows:
        families.setdefault(row.recipe.family, []).append(row)
    states = [row.state for family in families.values() for row in family]
    counts = _counts(state.level for state in states)
    if tested := sum(bool(row.tested) for family in families.values() for row in family):
        counts += f"; {tested} tested"
    if differ := sum(bool(state.differ) for state in states):
        counts += f"; {differ} not reproducible"
    images = format_count(len(states), "image")
    recipes = format_count(len(families), "recipe")
    blocks = [
        f"{BANNER}\n\n# Images\n\n{images} of {recipes}; {counts}.\n\n"
        "- built: all layers were made from the real files\n"
        "- rehearsed: all build steps ran, some or all of them with stubs for unavailable files\n"
        "- rendered: some build steps never ran with their present inputs\n"
        "- not pinned: some steps read what no checksum pins, so their results are not known\n"
        "- not reproducible: a step gave different layers\n"
        "- tested: checks with a result for this content, as the checks are now\n"
    ]
    blocks += [_section(name, family) for name, family in sorted(families.items())]
    return "\n".join(blocks)


def _counts(levels: Iterable[Level]) -> str:
    present = Counter(levels)
    return ", ".join(f"{present[level]} {level.value}" for level in Level if level in present)


def _section(family: str, rows: list[ImageRow]) -> str:
    heads = ("image", "framework", *(head for head, _ in _COLUMNS), "status", "layers", "tested")
    text = markdown_table(heads, map(_cells, rows))
    return f"## {family}\n\n{_common(row.recipe.summary for row in rows)}\n\n{text}\n"


def _common(summaries: Iterable[str]) -> str:
    """Return one summary for a family."""
    different = list(dict.fromkeys(summaries))
    return different[0] if len(different) == 1 else f"{different[0]}; and {len(different) - 1} more like it"


def _cells(row: ImageRow) -> tuple[str, ...]:
    name, versions = row.recipe.name, row.versions or {}
    frameworks = [f"{title} {versions[key]}" for key, title in _FRAMEWORKS if key in versions]
    columns = [" / ".join(versions[key] for key in keys if key in versions) for _, keys in _COLUMNS]
    # Only committed images have a page
    link = f"[{name}]({name}/README.md)" if row.is_committed else name
    cells = [link, ", ".join(frameworks), *columns, row.recipe.status, row.state.text, row.tested]
    return tuple(cell or _NONE for cell in cells)

"""The tables of images, `images/README.md`: recommended images by purpose, and the archive."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile

from bakehouse.catalog.names import FRAMEWORKS
from bakehouse.catalog.recipe import Recipe, by_purpose
from bakehouse.evidence.image_state import ImageState
from bakehouse.pipeline.image_page import markdown_table
from bakehouse.plan.dockerfile import PAGE_BANNER
from bakehouse.plan.known_facts import KnownFacts
from bakehouse.resolve.resolver import Resolution
from bakehouse.util.format import format_count

BANNER = PAGE_BANNER
_VERSIONS = (*FRAMEWORKS, "cuda", "python", "efa")
_HEADS = ("image", "versions", "layers", "tested", "known problem", "publishable", "supported until")
_NONE = "-"


@dataclass(frozen=True, slots=True)
class Tests:
    """Results of the checks of an image."""

    text: str = ""
    """Empty without results."""
    never_on_gpus: bool = False
    """It is for GPUs, and no check ran on one."""


NO_TESTS = Tests()


@dataclass(frozen=True, slots=True)
class ImageRow:
    """One image; without versions if its recipe cannot be satisfied."""

    recipe: Recipe
    resolution: Resolution | None
    state: ImageState
    known: KnownFacts | None = None
    tests: Tests = NO_TESTS
    is_committed: bool = True
    """Its rendered files are committed, and not only its key."""


def table(rows: Iterable[ImageRow]) -> str:
    """Return the tables as Markdown."""
    rows = tuple(rows)
    by_name = {row.recipe.name: row for row in rows}
    archive = [row for row in rows if row.recipe.is_archived]
    shown = by_purpose(row.recipe for row in rows if not row.recipe.is_archived)
    tables = {title or "Images": [by_name[item.name] for item in group] for title, group in shown.items()}
    blocks = [f"{BANNER}\n\n# Images\n", counts([row for group in tables.values() for row in group]) + "\n"]
    if archive:
        blocks[-1] += f"{format_count(len(archive), 'more image')} below are the archive.\n"
    if len(tables) > 1:
        picks = (f"- {title}: {', '.join(_picks(group))}\n" for title, group in tables.items())
        blocks.append(f"## Pick one\n\n{''.join(picks)}")
    blocks += [_section(title, group) for title, group in tables.items()]
    if archive:
        claims = "Bakehouse makes no claims about these images, and `push` warns."
        blocks.append(f"## Archive\n\n{claims}\n\n{_archive(archive)}")
    return "\n".join(blocks)


def counts(rows: Sequence[ImageRow]) -> str:
    """Return how many images have what a reader asks for first, as a sentence."""

    def number(test: Callable[[ImageRow], object]) -> int:
        return sum(bool(test(row)) for row in rows)

    publishable = number(lambda row: row.known and row.known.publishable == "yes")
    return (
        f"{format_count(len(rows), 'image')}: {number(lambda row: row.tests.text)} tested here, "
        f"{publishable} publishable as they are, "
        f"{number(lambda row: row.tests.never_on_gpus)} for GPUs on which they never ran."
    )


def _picks(rows: Iterable[ImageRow]) -> Iterator[str]:
    """Yield the first image of each framework."""
    for _, group in groupby(sorted(rows, key=_caveats), lambda row: _caveats(row)[0]):
        yield _link(next(group))


def _caveats(row: ImageRow) -> tuple[int, int]:
    """Return a key by which images come first with the first framework, and without concessions."""
    frameworks = [number for number, name in enumerate(FRAMEWORKS) if name in _versions(row)]
    return min(frameworks, default=len(FRAMEWORKS)), len(row.recipe.concessions)


def _section(title: str, rows: list[ImageRow]) -> str:
    accepted: dict[str, list[str]] = {}
    for row in rows:
        for concession in row.recipe.concessions:
            accepted.setdefault(concession.text, []).append(row.recipe.name)
    notes = "".join(f"- {', '.join(names)}: {text}\n" for text, names in accepted.items())
    return f"## {title}\n\n{markdown_table(_HEADS, map(_cells, rows))}\n" + (notes and f"\n{notes}")


def _versions(row: ImageRow) -> dict[str, str]:
    return row.resolution.versions if row.resolution else {}


def _link(row: ImageRow) -> str:
    """Return the name; only committed images have a page."""
    name = row.recipe.name
    return f"[{name}]({name}/README.md)" if row.is_committed else name


def _cells(row: ImageRow) -> tuple[str, ...]:
    versions, known = _versions(row), row.known
    cells = [
        _link(row),
        ", ".join(f"{name} {versions[name]}" for name in _VERSIONS if name in versions),
        row.state.text,
        "; ".join(filter(None, (row.tests.text, "never on GPUs" if row.tests.never_on_gpus else ""))),
        "; ".join(text for text, _ in known.problems) if known else "does not resolve",
        known.publishable if known else "no",
        known.ends if known else "",
    ]
    return tuple(cell or _NONE for cell in cells)


def _archive(rows: Iterable[ImageRow]) -> str:
    families: dict[str, list[str]] = {}
    for row in rows:
        families.setdefault(row.recipe.family, []).append(row.recipe.name)
    single = sorted(name for names in families.values() if len(names) == 1 for name in names)
    grids = [_grid(names) for _, names in sorted(families.items()) if len(names) > 1]
    return "\n\n".join(filter(None, (*grids, ", ".join(single)))) + "\n"


def _grid(names: Sequence[str]) -> str:
    """Return names as a grid: a row for each value of the first part that differs."""
    words = [name.split("-") for name in names]
    head = _common(words)
    tail = _common([item[len(head) :][::-1] for item in words])[::-1]
    rows: dict[str, list[str]] = {}
    for item in words:
        first, *rest = item[len(head) : len(item) - len(tail)] or [""]
        rows.setdefault(first, []).append("-".join(rest))
    form = "-".join([*head, "…", *tail])
    cells = ((first or _NONE, ", ".join(filter(None, rest)) or _NONE) for first, rest in rows.items())
    return markdown_table((f"`{form}`", "builds"), cells)


def _common(words: Iterable[Sequence[str]]) -> list[str]:
    """Return the words with which all lists start."""
    columns = takewhile(lambda column: len({*column}) == 1, zip(*words, strict=False))
    return [column[0] for column in columns]

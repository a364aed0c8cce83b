"""How far each image was ever run: `runs.json`, written whole or not at all.

A run is noted below the project's `build/`, which is this machine's; `./bake render` takes what is there over
into `images/`, to be committed beside the table of images. So a build alone makes nothing stale.

A run counts only while the image's key is the one it was made with: a change of recipe, component or template
puts an image back to `rendered`.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date
from enum import StrEnum
from pathlib import Path

from bakehouse.errors import Diagnostic, Location, RecipeError
from bakehouse.plan.model import Image
from bakehouse.util.file_lock import exclusive
from bakehouse.util.files import write_whole


class Level(StrEnum):
    """How far an image was run, the furthest first."""

    BUILT = "built"
    REHEARSED = "rehearsed"
    RENDERED = "rendered"


@dataclass(frozen=True, slots=True)
class Run:
    """The furthest that an image was run."""

    level: Level
    key: str
    """Of the real image, in a rehearsal too."""
    date: str
    stubs: tuple[str, ...] = ()
    """The components that were not the real ones."""


def load_runs(folder: Path) -> dict[str, Run]:
    """The runs on record, by image; none where there is no record. Raises RecipeError where it is broken."""
    path = folder / "runs.json"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    try:
        return {
            name: Run(Level(run["level"]), run["key"], run["date"], tuple(run.get("stubs", ())))
            for name, run in json.loads(text).items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message, hint = f"`{path.name}` is no record of runs", "take the committed one back, or remove it"
        raise RecipeError(Diagnostic(message, Location(path, 1, 1), hint=hint)) from error


def level(image: Image, runs: Mapping[str, Run]) -> Level:
    """How far an image as it is planned now was run."""
    run = runs.get(image.name)
    return run.level if run and run.key == image.key else Level.RENDERED


def outdated_run(image: Image, runs: Mapping[str, Run]) -> Run | None:
    """The run of an image as it was before it last changed; None where it was run as it is now."""
    run = runs.get(image.name)
    return run if run and run.key != image.key else None


def record_runs(folder: Path, made: Mapping[str, Run], locks: Path) -> None:
    """Add runs to the record in a folder."""
    with exclusive(locks / "runs.lock"):
        known = load_runs(folder)
        found = merge_runs(known, made)
        if found != known:
            text = json.dumps({name: asdict(found[name]) for name in sorted(found)}, indent=1) + "\n"
            write_whole(folder / "runs.json", text)


def merge_runs(known: Mapping[str, Run], made: Mapping[str, Run]) -> dict[str, Run]:
    """What is known with what was made since: a rehearsal doesn't hide that the very same image was built."""
    found = dict(known)
    for name, run in made.items():
        old = known.get(name)
        if old is None or old.key != run.key or (old.level is not Level.BUILT and old.level is not run.level):
            found[name] = run
    return found


def built_run(image: Image, today: date) -> Run:
    return Run(Level.BUILT, image.key, today.isoformat())


def rehearsed_run(image: Image, stubs: tuple[str, ...], today: date) -> Run:
    return Run(Level.REHEARSED, image.key, today.isoformat(), stubs)

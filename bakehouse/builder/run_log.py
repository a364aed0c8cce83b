"""Record of the highest level that each image reached: `runs.json`, written atomically.

Runs are recorded in the project's state directory on this machine. `bake render` copies them to `images/`,
to be committed with the table of images. So a build alone does not change committed files.

A run counts only while the build key of the image stays the same: a change of the recipe, a component or a
template resets the image to `rendered`. Its smoke-test results then no longer count.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakehouse.errors import Location, RecipeError
from bakehouse.util import file_format
from bakehouse.util.file_lock import exclusive
from bakehouse.util.files import read_bytes, write_whole
from bakehouse.util.format import format_count
from bakehouse.util.json_reader import decode, parse_json

if TYPE_CHECKING:
    from bakehouse.builder.verify import Outcome
    from bakehouse.plan.model import Image


_FORMAT = 1
_FORMAT_KEY = "$format"
"""Field with the number of the format; no image has this name."""


class Level(StrEnum):
    """Levels of runs, the highest first."""

    BUILT = "built"
    REHEARSED = "rehearsed"
    RENDERED = "rendered"


@dataclass(frozen=True, slots=True)
class SmokeRun:
    """Results of the last complete smoke test of a build, and of checks that ran again since."""

    date: str
    passed: int
    not_tested: int
    failed: tuple[str, ...] = ()
    """Names of the checks that failed."""

    @property
    def checks(self) -> int:
        return self.passed + self.not_tested + len(self.failed)

    @property
    def summary(self) -> str:
        """The results as text: `31 checks passed, 4 not tested`."""
        if self.failed:
            return f"{len(self.failed)} of {format_count(self.passed + len(self.failed), 'check')} failed"
        skipped = f", {self.not_tested} not tested" if self.not_tested else ""
        return f"{format_count(self.passed, 'check')} passed{skipped}"


@dataclass(frozen=True, slots=True)
class Run:
    """Highest run of an image."""

    level: Level
    key: str
    """Build key of the real image, also for a rehearsal."""
    date: str
    stubs: tuple[str, ...] = ()
    """Components that were stubs."""
    smoke: SmokeRun | None = None


def load_runs(directory: Path) -> dict[str, Run]:
    """Return the recorded runs by image; none without a record. Raises RecipeError if it is invalid."""
    return {name: run for name, (run, _) in _load(directory / "runs.json").items()}


def _load(path: Path) -> dict[str, tuple[Run, Any]]:
    """Return each run with its JSON object, which may have fields of a newer Bakehouse."""
    try:
        content = read_bytes(path)
    except FileNotFoundError:
        return {}
    try:
        document = parse_json(content)
        file_format.require_known(document, _FORMAT, _FORMAT_KEY)
        runs = decode(document, dict[str, Any])
        runs.pop(_FORMAT_KEY, None)
        return {name: (decode(run, Run, name), run) for name, run in runs.items()}
    except ValueError as error:
        is_newer = isinstance(error, file_format.NewerFormatError)
        raise RecipeError(
            f"cannot read `{path.name}`" if is_newer else f"`{path.name}` is not a valid record of runs",
            Location(path, 1, 1),
            facts=(("because", str(error)),),
            hint=file_format.UPGRADE if is_newer else "restore the committed file, or remove it",
        ) from error


def level(image: "Image", runs: Mapping[str, Run]) -> Level:
    """Return the level of an image as it is planned now."""
    return level_of(image.name, image.key, runs)


def level_of(name: str, key: str | None, runs: Mapping[str, Run]) -> Level:
    """Return the level of the image with a build key."""
    run = runs.get(name)
    return run.level if run and run.key == key else Level.RENDERED


def smoke_run(image: "Image", runs: Mapping[str, Run]) -> SmokeRun | None:
    """Return the smoke-test results of an image as it is planned now."""
    run = runs.get(image.name)
    return run.smoke if run and run.key == image.key else None


def outdated_run(image: "Image", runs: Mapping[str, Run]) -> Run | None:
    """Return the run of an image before its last change; None if the run is current."""
    run = runs.get(image.name)
    return run if run and run.key != image.key else None


def record_runs(directory: Path, new: Mapping[str, Run], locks: Path) -> None:
    """Add runs to the record in a directory."""
    with exclusive(locks / "runs.lock"):
        recorded = _load(directory / "runs.json")
        old = {name: run for name, (run, _) in recorded.items()}
        merged = merge_runs(old, new)
        if merged != old:
            objects = {
                name: recorded[name][1] if run == old.get(name) else _as_object(run)
                for name, run in sorted(merged.items())
            }
            document = {_FORMAT_KEY: _FORMAT, **objects}
            write_whole(directory / "runs.json", json.dumps(document, indent=1) + "\n")


def _as_object(run: Run) -> dict[str, Any]:
    record = asdict(run)
    if run.smoke is None:
        del record["smoke"]
    return record


def merge_runs(old: Mapping[str, Run], new: Mapping[str, Run]) -> dict[str, Run]:
    """Merge runs. A rehearsal does not replace a build with the same key, nor an older run a newer one.

    A build keeps its smoke-test results until newer ones of the same key replace them.
    """
    merged = dict(old)
    for name, run in new.items():
        last = old.get(name)
        if last and last.key == run.key and last.level in (Level.BUILT, run.level):
            if run.smoke and (last.smoke is None or last.smoke.date <= run.smoke.date):
                merged[name] = replace(last, smoke=run.smoke)
            continue
        if last is None or last.date <= run.date:
            merged[name] = run
    return merged


def built_run(image: "Image", today: date) -> Run:
    return Run(Level.BUILT, image.key, today.isoformat())


def smoked_run(image: "Image", outcomes: Sequence[tuple[str, "Outcome"]], today: date) -> Run:
    """Return the run of a built image, with the name and outcome of each smoke check."""
    from bakehouse.builder.verify import Outcome

    counts = Counter(outcome for _, outcome in outcomes)
    failed = tuple(name for name, outcome in outcomes if outcome is Outcome.FAILED)
    smoke = SmokeRun(today.isoformat(), counts[Outcome.PASSED], counts[Outcome.NOT_TESTED], failed)
    return replace(built_run(image, today), smoke=smoke)


def is_rerun(new: Run, last: Run | None) -> bool:
    """Return whether a run of selected checks has as many results as the last run of the same build."""
    return (
        last is not None
        and last.key == new.key
        and last.smoke is not None
        and new.smoke is not None
        and new.smoke.checks >= last.smoke.checks
    )


def rehearsed_run(image: "Image", stubs: tuple[str, ...], today: date) -> Run:
    return Run(Level.REHEARSED, image.key, today.isoformat(), stubs)

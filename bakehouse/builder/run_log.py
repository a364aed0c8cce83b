"""Record of the smoke tests of images: `runs.json`, written atomically.

They are recorded in the project's state directory on this machine. `bake render` copies them to `images/`, to
be committed with the table of images. They count only while the build key of the image stays the same.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
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
    """The smoke test of an image; none in records of Bakehouse 0.1.0 about builds and rehearsals."""

    key: str
    """Build key of the image."""
    date: str
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


def smoke_run(image: "Image", runs: Mapping[str, Run]) -> SmokeRun | None:
    """Return the smoke-test results of an image as it is planned now."""
    run = runs.get(image.name)
    return run.smoke if run and run.key == image.key else None


def record_runs(directory: Path, new: Mapping[str, Run], locks: Path) -> None:
    """Add runs to the record in a directory."""
    with exclusive(locks / "runs.lock"):
        recorded = _load(directory / "runs.json")
        old = {name: run for name, (run, _) in recorded.items()}
        merged = merge_runs(old, new)
        if merged != old:
            objects = {
                name: recorded[name][1] if run == old.get(name) else asdict(run)
                for name, run in sorted(merged.items())
            }
            document = {_FORMAT_KEY: _FORMAT, **objects}
            write_whole(directory / "runs.json", json.dumps(document, indent=1) + "\n")


def merge_runs(old: Mapping[str, Run], new: Mapping[str, Run]) -> dict[str, Run]:
    """Merge runs: newer results replace older ones."""
    newer = {name: run for name, run in new.items() if name not in old or old[name].date <= run.date}
    return {name: run for name, run in {**old, **newer}.items() if run.smoke}


def smoked_run(image: "Image", outcomes: Sequence[tuple[str, "Outcome"]], today: date) -> Run:
    """Return the run of a built image, with the name and outcome of each smoke check."""
    from bakehouse.builder.verify import Outcome

    counts = Counter(outcome for _, outcome in outcomes)
    failed = tuple(name for name, outcome in outcomes if outcome is Outcome.FAILED)
    smoke = SmokeRun(today.isoformat(), counts[Outcome.PASSED], counts[Outcome.NOT_TESTED], failed)
    return Run(image.key, today.isoformat(), smoke)


def is_rerun(new: Run, last: Run | None) -> bool:
    """Return whether a run of selected checks has as many results as the last run of the same build."""
    return (
        last is not None
        and last.key == new.key
        and last.smoke is not None
        and new.smoke is not None
        and new.smoke.checks >= last.smoke.checks
    )

"""Records of the steps at which builds failed: `failed-steps/<image>.json`. `bake shell` uses them."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from bakehouse.engine.buildkit_errors import ImagesFailed
from bakehouse.engine.buildkit_events import Step
from bakehouse.errors import Diagnostic
from bakehouse.plan.model import Image
from bakehouse.util.files import read_bytes, remove_file, write_whole
from bakehouse.util.json_reader import decode, parse_json


@dataclass(frozen=True, slots=True)
class FailedSteps:
    """Steps at which the last build of an image failed."""

    key: str
    """Build key of the image. With another key, the steps may differ."""
    positions: Mapping[str, str]
    """Position of the step in each stage, such as `2/3`."""


def record(error: ImagesFailed, images: Iterable[Image], state: Path) -> None:
    """Record the failed steps of images."""
    for image in images:
        steps = [step for step in error.steps if step and step.target == image.name]
        if positions := {step.stage: step.position for step in steps}:
            failed = FailedSteps(image.key, positions)
            write_whole(_path(image, state), json.dumps(asdict(failed), indent=1) + "\n")


def forget(image: Image, state: Path) -> None:
    """Forget the failed steps of an image that was built."""
    remove_file(_path(image, state), missing_ok=True)


def position_of(image: Image, stage: str, state: Path) -> str:
    """Return the position of the step at which the last build failed in a stage; empty if it is unknown."""
    try:
        failed = decode(parse_json(read_bytes(_path(image, state))), FailedSteps)
    except (OSError, ValueError):
        # `bake shell` then builds the stage to find the step
        return ""
    return failed.positions.get(stage, "") if failed.key == image.key else ""


def with_shells(error: ImagesFailed) -> Iterator[Diagnostic]:
    """Yield the diagnostics of failed images. Their hints end with the command that opens a shell."""
    for diagnostic, step in zip(error.diagnostics, error.steps, strict=True):
        if step is None or not _has_files(step):
            yield diagnostic
            continue
        hint = f"look around before this step: `bake shell {step.target} --stage {step.stage}`"
        yield replace(diagnostic, hint=f"{diagnostic.hint}; {hint}" if diagnostic.hint else hint)


def _has_files(step: Step) -> bool:
    """Return whether a stage has files before a step. It has none before its base."""
    return not step.text.startswith("FROM ")


def _path(image: Image, state: Path) -> Path:
    return state / "failed-steps" / f"{image.name}.json"

"""Steps of the rendered Dockerfiles of images. Images that run the same step share its key."""

from dataclasses import replace
from pathlib import Path

from bakehouse.builder.code_copies import CODE
from bakehouse.engine.buildx import Target
from bakehouse.plan import step_keys
from bakehouse.plan.step_keys import BuildStep, StepKey
from bakehouse.util.files import is_file, read_bytes
from bakehouse.util.json_reader import parse_json
from bakehouse.util.oci import PLATFORM

__all__ = ["CACHE_EXPORT", "BuildStep", "StepKey", "part_of", "read_steps"]

# Without an image manifest, Amazon ECR rejects a cache
CACHE_EXPORT = "mode=max,image-manifest=true,oci-mediatypes=true,compression=zstd"
"""Options of a cache export by BuildKit."""


def read_steps(dockerfile: str, directory: Path, code: Path) -> tuple[BuildStep, ...]:
    """Return the steps that the last stage of a Dockerfile needs, in their order.

    `directory` is the context, and `code` has the files of the stage of training code.
    """
    context = step_keys.tree_of(directory, "inputs", "files")
    contexts = {CODE: step_keys.tree_of(code)}
    return step_keys.read_steps(dockerfile, context, platform=_platform(directory), contexts=contexts).steps


def part_of(target: Target, dockerfile: str, step: BuildStep, *, name: str, cache_to: str) -> Target:
    """Return a target that builds `target` up to a step, and exports the result to a cache."""
    # Its lines keep their numbers
    text = "".join(f"{line}\n" for line in dockerfile.removesuffix("\n").split("\n")[: step.end])
    own = replace(target, target=name, part_of=target.target, output="")
    return replace(own, dockerfile=text, stage=step.stage, cache_to=cache_to)


def _platform(directory: Path) -> str:
    """Return the platform in the bake file of an image."""
    path = directory / "docker-bake.json"
    targets = parse_json(read_bytes(path))["target"] if is_file(path) else {}
    platforms = [platform for target in targets.values() for platform in target.get("platforms", ())]
    return str(next(iter(platforms), PLATFORM))

"""Images of stages up to the step that fails, for a shell in them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

from bakehouse.builder import base_image, failed_steps, sent_files
from bakehouse.builder.bake import bake_with_inputs, target_of
from bakehouse.builder.build_context import BuildContext
from bakehouse.builder.code_copies import require_modes, write_code
from bakehouse.builder.stage_cut import StageCut, cut_after, cut_before
from bakehouse.engine import buildx
from bakehouse.engine.buildkit_errors import ImagesFailed
from bakehouse.errors import BuildError
from bakehouse.plan.model import Image
from bakehouse.util.files import read_text


def build_stage(image: Image, stage: str, reference: str, context: BuildContext) -> StageCut:
    """Build a stage of a rendered image up to the step that fails, as an image named `reference`.

    The step is the one that failed in the last build, or the first one that fails now. If there is none, the
    complete stage is built. The image has copies of the files in the step's bind mounts, if possible. Raises
    BuildError if a stage that it needs fails.
    """
    project = context.project
    dockerfile = read_text(project.images / image.name / "Dockerfile")
    write_code(image, project.output)
    require_modes(image, project.images, project.output)
    base_image.ensure_bases([image.base], context)
    position = failed_steps.position_of(image, stage, project.state)
    known = cut_before(dockerfile, stage, position)
    cut = known or cut_after(dockerfile, stage)
    target = target_of(image, project.output)
    part = replace(target, target=f"{image.target}-stage", part_of=image.target, stage=stage)
    try:
        # This build may read the build cache of a registry, but does not write to it
        _bake(part, known, image, context)
    except ImagesFailed as error:
        positions = [step.position for step in error.steps if step and step.stage == stage]
        if not positions:
            raise BuildError.of(*failed_steps.with_shells(error)) from error
        failed = cut_before(known.of(dockerfile) if known else dockerfile, stage, positions[0])
        if failed is None:
            raise
        if not known:
            failed_steps.record(error, [image], project.state)
        cut = failed
    whole = replace(target, tags=(reference,))
    context = replace(context, cache=None)
    copying = replace(cut, copies_binds=True)
    try:
        _bake(whole, copying, image, context)
    except ImagesFailed:
        # A file of the bind mounts may be missing
        _bake(whole, cut, image, context)
        return cut
    return copying


def _bake(target: buildx.Target, cut: StageCut | None, image: Image, context: BuildContext) -> None:
    """Build a target from the part of the Dockerfile before a cut; None means all of it."""

    def cut_off(target: buildx.Target) -> buildx.Target:
        if cut is None:
            return target
        path = context.project.images / image.name / "Dockerfile"
        return replace(target, dockerfile=cut.of(target.dockerfile or read_text(path)))

    def bake(targets: Sequence[buildx.Target]) -> dict[str, buildx.BakedImage]:
        return bake_with_inputs([cut_off(target) for target in targets], context)

    def on_failure(error: ImagesFailed, remaining: Sequence[buildx.Target]) -> NoReturn:
        raise error

    with sent_files.with_files([image], context, bake) as bake_with_files:
        report = context.progress.report
        buildx.bake_with_retries([target], bake_with_files, on_failure, context.restart_engine, report)

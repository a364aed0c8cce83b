"""Results of rehearsals and of repeated builds, as tables and as JSON."""

from collections.abc import Iterable, Sequence
from typing import Any

from bakehouse.maintain.rehearsal import Rehearsed
from bakehouse.maintain.reproduce import Reproduction
from bakehouse.maintain.stub_plan import REHEARSED

Json = dict[str, Any]


def rehearsal_table(rehearsed: Sequence[Rehearsed]) -> str:
    """Format each rehearsed image with its stubs and the checks of declared versions."""
    lines = []
    for result in sorted(rehearsed, key=lambda result: result.rehearsal.real.name):
        image = result.rehearsal.real
        files = sum(len(stage.wheels) + len(stage.sdists) + len(stage.artifacts) for stage in image.stages)
        names = ", ".join(result.rehearsal.stubs) or "none"
        versions = f"{len(result.agree)} versions as declared"
        versions += f", {len(result.differ)} not" if result.differ else ""
        verified = sum(result.rehearsal.is_real(name) for name in result.agree)
        proof = f"{verified} verified, {len(result.agree) - verified} unverified"
        lines.append(f"{image.name}  {REHEARSED}: {len(result.rehearsal.files)} of {files} files are stubs")
        lines.append(f"  stubs: {names}")
        lines.append(f"  {versions}: {proof}")
        lines += [
            f"  not as declared: {version.component} {version.declared}: {version.error or version.installed}"
            for version in result.differ
        ]
    return "\n".join(lines) + "\n" if lines else ""


def rehearsed(images: Sequence[Rehearsed]) -> list[Json]:
    """Return rehearsed images with their stubs and the checks of declared versions."""
    return [
        {
            "image": item.rehearsal.real.name,
            "stubs": list(item.rehearsal.stubs),
            "agree": list(item.agree),
            "differ": [version.component for version in item.differ],
        }
        for item in sorted(images, key=lambda item: item.rehearsal.real.name)
    ]


def reproductions(results: Iterable[Reproduction]) -> list[Json]:
    """Return for each image whether the second build gave the same layers."""
    return [
        {
            "image": result.image,
            "layers": result.layers,
            "same": result.is_same,
            "differing": [
                {"layer": layer.number, "component": layer.owner, "digests": list(layer.digests)}
                for layer in result.differing
            ],
        }
        for result in results
    ]

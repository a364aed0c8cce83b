"""Every command gives the same answer to "what changed" between two states of an image."""

from itertools import islice, permutations

from bakehouse.catalog.project import HOME
from bakehouse.cli import tables
from bakehouse.ledger.releases import ReleasedComponent
from bakehouse.plan import diff
from bakehouse.plan.key_reasons import key_reasons
from bakehouse.plan.model import InstalledComponent
from bakehouse.plan.workspace import open_workspace, plan_resolutions, select
from tests.support.numbered_releases import release

NAMES = (
    "mpi-cpu",
    "mpi-cpu-py313",
    "pytorch-1.10-cu113-py38-smp",
    "pytorch-2.10-cu128-py312-deepspeed",
    "pytorch-2.13-cu130-py312-efa",
    "pytorch-2.13-cu130-py312-megatron",
)
PAIRS = 20


def released(parts: tuple[InstalledComponent, ...]) -> tuple[ReleasedComponent, ...]:
    return tuple(ReleasedComponent(part.component, part.version, part.variant) for part in parts)


def test_every_command_names_the_same_changes() -> None:
    workspace = open_workspace()
    resolutions = {item.recipe.name: item for item in select(workspace, NAMES).resolutions}
    images = {image.name: image for image in plan_resolutions(workspace, resolutions.values()).images}
    for old, new in islice(permutations(NAMES, 2), PAIRS):
        compared = diff.differences(resolutions[old], resolutions[new])
        versions = [item.version for item in compared if item.version.before != item.version.after]
        changes = {version.words for version in versions}
        assert changes

        text = diff.compare(resolutions[old], resolutions[new])
        assert all(version.text in text for version in versions)

        directory = HOME / "images" / old
        reasons = key_reasons(
            images[new], (directory / "lock.json").read_bytes(), (directory / "Dockerfile").read_bytes()
        )
        assert changes <= {*reasons}

        records = [
            release(number, parts=released(images[name].all_parts)) for number, name in enumerate((old, new))
        ]
        notes = tables.release_notes(records, lambda *_: ())
        lines = [line.removeprefix("- ") for line in notes.splitlines() if line.startswith("- ")]
        assert {line for line in lines if not line.startswith(("size ", "packages, "))} == changes

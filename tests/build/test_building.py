"""What images will weigh before they are built, and what one that differs keeps others from."""

import io
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from bakehouse.build import build as building
from bakehouse.build.build import expected_bytes
from bakehouse.build.built_image import BuiltImage
from bakehouse.build.progress import Mode, Progress
from bakehouse.catalog.project import HOME, Project
from bakehouse.errors import BuildError, Diagnostic
from bakehouse.plan.model import Image
from bakehouse.plan.workspace import open_workspace, plan_images
from tests.support import fake_engine
from tests.support.fake_engine import FakeEngine, Run


def test_a_stage_that_images_share_is_weighed_once_and_one_that_is_here_not_at_all() -> None:
    plan = plan_images(open_workspace(HOME), ["pytorch-cu130", "pytorch-cpu", "mpi-cpu"])
    images = {image.name: image for image in plan.images}
    mpi, torch, cuda = images["mpi-cpu"], images["pytorch-cpu"], images["pytorch-cu130"]
    alone = expected_bytes([mpi])
    assert 0 < alone < expected_bytes([torch]) < expected_bytes([cuda])
    assert expected_bytes([mpi, torch]) < alone + expected_bytes([torch])
    assert expected_bytes([torch], present=[mpi]) == expected_bytes([mpi, torch]) - alone


def test_an_image_that_differs_keeps_no_other_from_being_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def differs(*asked: object) -> None:
        raise BuildError(Diagnostic("`known` is not as declared"))

    built: list[str] = []

    def build(project: object, images: list[Image], *more: object, **words: object) -> tuple[BuiltImage, ...]:
        built.extend(image.name for image in images)
        return (BuiltImage(new, fake_engine.DIGEST, 42),)

    known, new = fake_engine.image("known"), fake_engine.image("new")
    recalled = (BuiltImage(known, fake_engine.DIGEST, 42),)
    monkeypatch.setattr("bakehouse.build.build.up_to_date.find_up_to_date", lambda *asked: recalled)
    monkeypatch.setattr("bakehouse.build.build.verification.verify", differs)
    monkeypatch.setattr("bakehouse.build.build._build", build)
    with pytest.raises(BuildError, match="`known` is not as declared"):
        building.build_images(
            cast(Project, SimpleNamespace(root=tmp_path, state=tmp_path)),
            [known, new],
            FakeEngine(lambda spec: Run()),
            Progress(io.StringIO(), Mode.LINES),
            source="",
            offline=False,
        )
    assert built == ["new"]

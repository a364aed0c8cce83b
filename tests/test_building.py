"""What images will weigh before they are built."""

from bakehouse.building import expected_bytes
from bakehouse.project import HOME
from bakehouse.workspace import open_workspace, plan_images


def test_a_stage_that_images_share_is_weighed_once_and_one_that_is_here_not_at_all() -> None:
    plan = plan_images(open_workspace(HOME), ["pytorch-cu130", "pytorch-cpu", "mpi-cpu"])
    images = {image.name: image for image in plan.images}
    mpi, torch, cuda = images["mpi-cpu"], images["pytorch-cpu"], images["pytorch-cu130"]
    alone = expected_bytes([mpi])
    assert 0 < alone < expected_bytes([torch]) < expected_bytes([cuda])
    assert expected_bytes([mpi, torch]) < alone + expected_bytes([torch])
    assert expected_bytes([torch], present=[mpi]) == expected_bytes([mpi, torch]) - alone

"""Properties of images that matter to their jobs."""

from dataclasses import replace

from bakehouse.jobs.training_request import launch_image
from bakehouse.ledger.releases import ReleasedComponent
from tests.support import own_recipes
from tests.support.release_records import a_record


def test_what_a_release_has_is_read_from_the_catalogue() -> None:
    """A component can provide others: AWS's image for SMP 2 contains PyTorch."""
    catalog = own_recipes.catalog()
    base = catalog.components["aws-smp2"].releases[0]
    part = ReleasedComponent("aws-smp2", base.version, base.variants[0].name)
    image = launch_image(replace(a_record(), parts=(part,)), catalog)

    assert image.framework == "pytorch"
    assert image.versions["smp"].startswith("2.")
    assert launch_image(replace(a_record(), parts=(part,))).framework == ""

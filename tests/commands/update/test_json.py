"""The JSON of `bake update` has the shape that docs/reference/json.md shows."""

from bakehouse.commands.update.new_releases import UpstreamError
from bakehouse.commands.update.release_draft import Evidence
from bakehouse.commands.update.update import ComponentUpdate, ReleaseProposal, as_json
from tests.support import own_recipes
from tests.support.json_samples import sample, shape

UPDATE = ComponentUpdate(
    own_recipes.catalog().components["torchvision"],
    [
        ReleaseProposal(
            *("torchvision", "0.29.2", "2026-10-28", "0.28.0"),
            (Evidence("requires.pytorch", ">=2.14,<2.16", "torchvision-0.29.2.whl"),),
            *(("a check",), "+ version", ("an-image",), ("debian",)),
        )
    ],
    remarks=("a remark",),
    failures=[UpstreamError("torchvision", "a reason")],
)


def test_updates_have_the_documented_shape() -> None:
    assert shape(as_json([UPDATE])) == shape(sample("update"))

"""Images whose components show if they have EFA."""

from bakehouse.catalog.efa import is_all_listed
from bakehouse.catalog.recipe import Content
from tests.support import own_recipes


def test_only_bases_of_vendors_with_a_python_may_contain_efa() -> None:
    bases = [component for component in own_recipes.catalog().components.values() if component.is_base]
    unlisted = {base.name for base in bases if not is_all_listed([base.name], Content())}

    assert unlisted == {base.name for base in bases if any("python" in spec.provides for spec in base.specs)}

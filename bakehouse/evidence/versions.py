"""Which built images are known to have the declared versions, as a result of a check like others."""

from dataclasses import dataclass
from pathlib import Path

from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.up_to_date import settings_key
from bakehouse.builder.verify import Outcome, versions_key
from bakehouse.catalog.size_budget import REQUIREMENTS
from bakehouse.cluster.smoke_report import CheckResult, now
from bakehouse.errors import SmokeError
from bakehouse.evidence import check_rows
from bakehouse.plan.unpinned import unpinned_inputs
from bakehouse.util.hashing import key_of
from bakehouse.util.oci import ContentId


@dataclass(frozen=True, slots=True)
class VerifiedImages:
    """`builder.build.VersionMemory` with the results in a state directory."""

    state: Path

    def has(self, built: BuiltImage) -> bool:
        try:
            rows = check_rows.load(self.state, _subject(built))
        except SmokeError:
            # A verification takes seconds
            return False
        key = versions_key(built.image)
        return any(
            (row.name, row.key, row.outcome) == (check_rows.VERSIONS, key, Outcome.PASSED) for row in rows
        )

    def add(self, built: BuiltImage) -> None:
        row = CheckResult(check_rows.VERSIONS, Outcome.PASSED, 0.0, key=versions_key(built.image), date=now())
        check_rows.record(self.state, _subject(built), [row])


def _subject(built: BuiltImage) -> ContentId:
    """Return the identity of what the versions belong to.

    Training code does not change them. Packages that `layout-wheels` lays out have the locked versions, and a
    smoke check finds those that replace files of components.
    """
    image = built.image
    own = {REQUIREMENTS} if any(stage.image and stage.layers for stage in image.stages) else set()
    if image.content.run or unpinned_inputs(image) or (image.key == image.recipe_key and not own):
        return built.content
    layers = [layer.key for layer in image.layer_keys if layer.key and not own & {*layer.stages[:1]}]
    return ContentId(f"sha256:{key_of(settings_key(image), layers)}")

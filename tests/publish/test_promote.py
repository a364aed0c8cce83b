"""Candidates that may be promoted."""

from dataclasses import replace

import pytest

from bakehouse.catalog.project import ProjectSettings
from bakehouse.errors import UsageError
from bakehouse.plan.model import ImageKey
from bakehouse.publish.options import PublishOptions
from bakehouse.publish.promote import Promotion, require_same_key
from tests.support.built_images import IMAGE
from tests.support.proxy import Proxy
from tests.support.release_records import a_record


def test_a_key_with_the_same_beginning_is_another_recipe() -> None:
    key = ImageKey(IMAGE.key[:-1] + ("0" if IMAGE.key[-1] != "0" else "1"))

    require_same_key(replace(a_record(), key=IMAGE.key), IMAGE)
    with pytest.raises(UsageError, match="the candidate of `mpi-cpu` was not built from this recipe"):
        require_same_key(replace(a_record(), key=key), IMAGE)


def test_a_candidate_outside_the_registry_of_the_project_is_announced(
    project: ProjectSettings, proxies: tuple[Proxy, Proxy]
) -> None:
    lines: list[str] = []
    Promotion(replace(project, registry=f"{proxies[1].host}/team"), IMAGE, lines.append, PublishOptions())
    assert lines == []

    Promotion(replace(project, registry="new.example/team"), IMAGE, lines.append, PublishOptions())
    assert lines == [
        f"mpi-cpu: promoting its candidate in `{proxies[0].host}`; look-ups search `new.example/team`"
    ]

"""Candidates that may be promoted."""

from dataclasses import replace

import pytest

from bakehouse.catalog.project import ProjectSettings
from bakehouse.errors import UsageError
from bakehouse.evidence.step_layers import StepLayer, record
from bakehouse.ledger.image_uris import newest
from bakehouse.ledger.releases import ReleasedRollback
from bakehouse.ledger.store import open_ledger
from bakehouse.plan.image_layer import KEY_DIGITS
from bakehouse.plan.model import ImageKey
from bakehouse.publish.options import PublishOptions
from bakehouse.publish.promote import Promotion, promote_image, require_same_key
from bakehouse.registry.manifest import content_id
from tests.support.built_images import IMAGE
from tests.support.fake_registry import CONFIG
from tests.support.proxy import Proxy
from tests.support.release_records import a_record
from tests.support.signing_keys import KeyFiles


def test_a_key_with_the_same_beginning_is_another_recipe() -> None:
    key = ImageKey(IMAGE.key[:-1] + ("0" if IMAGE.key[-1] != "0" else "1"))

    require_same_key(replace(a_record(), key=IMAGE.key), IMAGE)
    with pytest.raises(UsageError, match="the candidate of `mpi-cpu` was not built from this recipe"):
        require_same_key(replace(a_record(), key=key), IMAGE)


def test_a_candidate_of_another_key_is_released_if_its_bytes_are_those_of_the_recipe(
    project: ProjectSettings,
) -> None:
    upgraded = replace(IMAGE, key=ImageKey("b" * 64))
    with pytest.raises(UsageError, match="the candidate of `mpi-cpu` was not built from this recipe"):
        promote_image(project, upgraded, print, PublishOptions())

    other = StepLayer("b" * KEY_DIGITS, IMAGE.platform, "sha256:" + "0" * 64)
    record(project.images, [replace(other, digest=content_id(CONFIG))], project.state / "locks")
    record(project.state, [other], project.state / "locks")
    with pytest.raises(UsageError, match="the candidate of `mpi-cpu` was not built from this recipe"):
        promote_image(project, upgraded, print, PublishOptions())

    record(project.state, [replace(other, digest=content_id(CONFIG))], project.state / "locks")
    assert promote_image(project, upgraded, print, PublishOptions()).is_released


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


def test_signing_a_rolled_back_release_does_not_make_it_the_latest(
    project: ProjectSettings, key: KeyFiles
) -> None:
    ledger = open_ledger(project)
    release = promote_image(project, IMAGE, print, PublishOptions())
    ledger.add(replace(release, rollback=ReleasedRollback(f"{release.date}T00:00:00Z", "sha256:" + "5" * 64)))
    digest = "sha256:" + "6" * 64
    uri = release.image_uri.replace(release.digest, digest)
    ledger.add(replace(release, digest=digest, image_uri=uri, regions=()))

    signing = replace(project, key_address=str(key.private))
    promote_image(signing, IMAGE, print, PublishOptions(image_uri=release.image_uri))
    last = ledger.records("mpi-cpu")[-1]
    assert (last.digest, len(last.artifacts)) == (release.digest, 2)
    assert newest(project, "mpi-cpu").digest == digest


def test_the_moving_tag_of_a_former_repository_is_reported(project: ProjectSettings) -> None:
    lines: list[str] = []
    promote_image(project, IMAGE, lines.append, PublishOptions(move_tag=True))
    assert lines[-1] == "mpi-cpu: tag `image` now points to this release"


def test_a_candidate_in_a_repository_of_candidates_is_released_in_that_of_the_image(
    project: ProjectSettings, proxies: tuple[Proxy, Proxy]
) -> None:
    """A role that publishes candidates cannot write to the repositories of releases."""
    ledger = open_ledger(project)
    [candidate] = ledger.records("mpi-cpu")
    uri = candidate.image_uri.replace("team/image", "team/candidates/image")
    ledger.add(replace(candidate, repository="team/candidates/image", image_uri=uri, regions=()))

    release = promote_image(project, IMAGE, print, PublishOptions(image_uri=uri))

    assert (release.repository, release.digest) == ("team/image", candidate.digest)
    assert release.image_uri == candidate.image_uri
    assert proxies[0].seen("PUT", "team/candidates/image") == 0
    assert proxies[0].seen("PUT", "team/image/manifests/mpi-cpu-2") == 1
    assert not ledger.records("mpi-cpu")[-1].candidate

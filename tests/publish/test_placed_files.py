"""Files that a commit can contain: none of them changes the answer of a gate."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bakehouse.catalog.project import ProjectSettings, find, state_of
from bakehouse.errors import NotReleasableError, PublishError, SmokeError
from bakehouse.evidence import check_rows
from bakehouse.ledger.store import open_ledger
from bakehouse.publish import image_push
from bakehouse.publish.options import PublishOptions
from bakehouse.publish.promote import promote_image
from bakehouse.registry.manifest import content_id
from tests.support.built_images import BUILT, IMAGE, results
from tests.support.candidates import candidate
from tests.support.errors import error_text, raised, refusal
from tests.support.fake_registry import CONFIG
from tests.support.proxy import Proxy

DIRECTORIES = ("build", "state", ".state", "projects", ".local/state", "images", "recipes", "a b")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """State of a machine that tested the image."""
    state = tmp_path_factory.mktemp("tested")
    for content in (BUILT.content, content_id(CONFIG)):
        check_rows.record(state, content, results())
    return state


def opened(root: Path) -> ProjectSettings:
    root.mkdir(exist_ok=True)
    (root / "pyproject.toml").write_text("[tool.bakehouse]\n")
    return find(root)


def refused(project: ProjectSettings) -> None:
    """Require that every gate refuses the image."""
    records = open_ledger(project).records("mpi-cpu")
    error = raised(NotReleasableError, image_push.push_images, project, [BUILT], print, PublishOptions())
    assert "it was never smoke-tested" in error_text(error)
    with pytest.raises((NotReleasableError, PublishError)) as promoted:
        promote_image(project, IMAGE, print, PublishOptions())
    assert "it was never smoke-tested" in error_text(promoted.value)
    for file in project.root.rglob("*.json"):
        if file.name != "releases.json":
            with pytest.raises(SmokeError, match="is inside of the repository"):
                promote_image(project, IMAGE, print, PublishOptions(reports=(file,)))
    assert open_ledger(project).records("mpi-cpu") == records


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    placement=st.lists(st.sampled_from(DIRECTORIES), max_size=3),
    nested=st.booleans(),
    key=st.booleans(),
    linked=st.booleans(),
    claimed=st.booleans(),
)
def test_results_that_a_commit_contains_release_nothing(
    placement: list[str], nested: bool, key: bool, linked: bool, claimed: bool,
    kept: Path, tmp_path: Path, proxies: tuple[Proxy, Proxy],
) -> None:  # fmt: skip
    repository = tmp_path / "clone"
    shutil.rmtree(repository, ignore_errors=True)
    root = repository / "nested" if nested else repository
    (repository / ".git").mkdir(parents=True)
    opened(root)
    directory = repository.joinpath(*placement)
    if key:
        directory /= state_of(root, Path("bakehouse"))
    directory.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(kept, directory, dirs_exist_ok=True)
    if linked and not (root / "build").exists():
        (root / "build").symlink_to(directory)
    # The commit may also claim that the candidate was released.
    record = candidate(*proxies)
    forged = replace(record, candidate=False, tested=True) if claimed else record
    project = opened(root)
    open_ledger(project).add(replace(forged, key=IMAGE.key))

    refused(project)


def test_the_same_results_in_the_state_of_the_machine_count(
    kept: Path, tmp_path: Path, proxies: tuple[Proxy, Proxy]
) -> None:
    project = opened(tmp_path / "clone")
    open_ledger(project).add(candidate(*proxies))
    shutil.copytree(kept, project.state, dirs_exist_ok=True)

    assert promote_image(project, IMAGE, print, PublishOptions()).is_released


def test_a_record_with_the_configuration_of_another_image_is_refused(
    kept: Path, tmp_path: Path, proxies: tuple[Proxy, Proxy]
) -> None:
    project = opened(tmp_path / "clone")
    shutil.copytree(kept, project.state, dirs_exist_ok=True)
    record = candidate(*proxies)
    open_ledger(project).add(replace(record, config=BUILT.digest))

    assert refusal(PublishError, promote_image, project, IMAGE, print, PublishOptions()).startswith(
        f"error: the record of `{record.image_uri}` names another configuration than the registry\n"
        f"  record    {BUILT.digest}\n"
    )

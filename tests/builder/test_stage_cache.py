"""Build caches in registries."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bakehouse.builder.build_steps import StepKey, read_steps
from bakehouse.builder.stage_cache import StageCache, open_cache, remove_unused, stage_ends
from bakehouse.catalog.project import ProjectSettings
from bakehouse.engine.buildx import Target
from bakehouse.errors import BuildError, PublishError
from bakehouse.registry.client import Repository
from bakehouse.registry.http_errors import RegistryError
from bakehouse.util.oci import Digest
from tests.support.errors import refusal

TEXT = "FROM base AS tools\nRUN a\nRUN b\nFROM tools AS own\nRUN {}\nFROM base\nCOPY --link --from=own / /\n"
REFERENCE = "registry.example/team/cache"


class Images:
    """Two images that share the stage `tools`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("one", "two"):
            (root / "images" / name).mkdir(parents=True)
            (root / "images" / name / "Dockerfile").write_text(TEXT.format(name))
        self.targets = [Target(name, name, Path(name)) for name in ("one", "two")]

    def keys(self, name: str) -> list[StepKey]:
        directory = self.root / "images" / name
        steps = read_steps((directory / "Dockerfile").read_text(), directory, self.root / "code")
        return [step.key for step in stage_ends(steps)]


@pytest.fixture
def images(tmp_path: Path) -> Images:
    return Images(tmp_path)


def test_each_missing_stage_is_written_once(images: Images) -> None:
    cache = StageCache(REFERENCE, ProjectSettings(images.root, ()), set())

    with cache.extended(images.targets) as targets:
        first, second, *writers = targets

    assert (first, second) == (*images.targets,)
    options = "mode=max,image-manifest=true,oci-mediatypes=true,compression=zstd,ignore-error=true"
    assert [(writer.stage, writer.dockerfile.count("RUN"), writer.cache_to) for writer in writers] == [
        (stage, runs, f"type=registry,ref={REFERENCE}:{key},{options}")
        for stage, runs, key in (
            ("tools", 2, images.keys("one")[0]),
            ("own", 3, images.keys("one")[1]),
            ("own", 3, images.keys("two")[1]),
        )
    ]
    assert len({writer.target for writer in writers}) == 3


def test_stages_in_the_repository_are_read(images: Images) -> None:
    [tools, own] = images.keys("one")
    cache = StageCache(REFERENCE, ProjectSettings(images.root, ()), {tools, own})

    with cache.extended(images.targets) as targets:
        first, second, *writers = targets

    assert first.cache_from == tuple(f"type=registry,ref={REFERENCE}:{key}" for key in (tools, own))
    assert second.cache_from == (f"type=registry,ref={REFERENCE}:{tools}",)
    assert [(writer.name, writer.cache_from) for writer in writers] == [("two", second.cache_from)]


def test_a_part_of_an_image_only_reads(images: Images) -> None:
    part = Target("one", "part", Path("one"), part_of="one", cache_from=("type=local,src=/d",))
    [tools, _] = images.keys("one")

    with StageCache(REFERENCE, ProjectSettings(images.root, ()), {tools}).extended([part]) as [target]:
        assert target.cache_from == ("type=local,src=/d", f"type=registry,ref={REFERENCE}:{tools}")


def test_two_builders_write_a_shared_stage_once(images: Images) -> None:
    cache = StageCache(REFERENCE, ProjectSettings(images.root, ()), set())
    one, two = images.targets

    with cache.extended([one]) as first, cache.extended([two]) as second:
        assert [target.stage for target in first[1:]] == ["tools", "own"]
        assert [target.stage for target in second[1:]] == ["own"]
    with cache.extended([two]) as again:
        assert again == [two]


def test_a_second_try_writes_the_stages_of_a_failed_build(images: Images) -> None:
    cache = StageCache(REFERENCE, ProjectSettings(images.root, ()), set())
    one, _ = images.targets

    with pytest.raises(BuildError), cache.extended([one]):
        raise BuildError("a step failed")
    with cache.extended([one]) as targets:
        assert [target.stage for target in targets[1:]] == ["tools", "own"]


def answering(monkeypatch: pytest.MonkeyPatch, tags: Callable[[Repository], tuple[str, ...]]) -> None:
    monkeypatch.setattr(Repository, "tags", tags)


def test_the_tags_of_the_repository_are_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, lambda repository: (repository.registry.host, repository.name))

    cache = open_cache(ProjectSettings(tmp_path, ()), REFERENCE, print, remote=True)

    assert cache == StageCache(
        REFERENCE, ProjectSettings(tmp_path, ()), {StepKey("registry.example"), StepKey("team/cache")}
    )


def fail(error: RegistryError) -> Callable[[Repository], tuple[str, ...]]:
    def tags(repository: Repository) -> tuple[str, ...]:
        raise error

    return tags


def test_a_missing_repository_is_an_empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, fail(RegistryError(404, "NAME_UNKNOWN", "not known")))

    assert open_cache(ProjectSettings(tmp_path, ()), REFERENCE, print, remote=True) == StageCache(
        REFERENCE, ProjectSettings(tmp_path, ()), set()
    )


def test_a_registry_without_credentials_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def tags(repository: Repository) -> tuple[str, ...]:
        raise PublishError("there are no AWS credentials")

    answering(monkeypatch, tags)
    lines: list[str] = []

    assert open_cache(ProjectSettings(tmp_path, ()), REFERENCE, lines.append, remote=True) is None
    assert lines == [
        "the build cache `registry.example/team/cache` is not used: there are no AWS credentials"
    ]


def test_the_local_registry_can_have_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, lambda repository: ())

    cache = open_cache(ProjectSettings(tmp_path, (), registry_port=5055), "local/cache", print, remote=True)

    assert cache
    assert cache.reference == "127.0.0.1:5055/cache"


def test_a_reference_without_a_repository_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PublishError, match="`` is not a valid repository name"):
        open_cache(ProjectSettings(tmp_path, ()), "registry.example", print, remote=True)


def test_an_unavailable_cache_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, fail(RegistryError(503, "", "out of order")))
    lines: list[str] = []

    assert open_cache(ProjectSettings(tmp_path, ()), REFERENCE, lines.append, remote=True) is None
    assert lines == ["the build cache `registry.example/team/cache` is not used: HTTP 503: out of order"]


KEYS = tuple(StepKey(digit * 64) for digit in "abc")


@pytest.fixture
def deleted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Digests that were deleted in a repository with three stages and another tag; two stages are equal."""
    digests = {KEYS[0]: "sha256:1", KEYS[1]: "sha256:2", KEYS[2]: "sha256:2", "latest": "sha256:3"}
    deleted: list[str] = []
    answering(monkeypatch, lambda repository: tuple(digests))
    monkeypatch.setattr(Repository, "digest_of", lambda repository, tag: Digest(digests[tag]))
    monkeypatch.setattr(Repository, "delete", lambda repository, digest: deleted.append(digest))
    return deleted


def test_stages_without_a_use_are_removed(tmp_path: Path, deleted: list[str]) -> None:
    assert remove_unused(ProjectSettings(tmp_path, ()), REFERENCE, {KEYS[1], KEYS[2]}) == 1
    assert deleted == ["sha256:1"]


def test_a_stage_that_equals_a_used_one_stays(tmp_path: Path, deleted: list[str]) -> None:
    assert remove_unused(ProjectSettings(tmp_path, ()), REFERENCE, {KEYS[0], KEYS[1]}) == 0
    assert deleted == []


def test_a_registry_that_does_not_delete_is_named(
    tmp_path: Path, deleted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def delete(repository: Repository, digest: Digest) -> None:
        raise RegistryError(405, "UNSUPPORTED", "The operation is unsupported")

    monkeypatch.setattr(Repository, "delete", delete)

    assert refusal(PublishError, remove_unused, ProjectSettings(tmp_path, ()), REFERENCE, set()) == (
        "error: cannot remove stages from the build cache `registry.example/team/cache`\n"
        "  answer  HTTP 405: The operation is unsupported\n"
        "\n"
        "hint: let a lifecycle policy of the registry expire them\n"
    )


def test_a_missing_repository_has_no_stages_to_remove(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, fail(RegistryError(404, "NAME_UNKNOWN", "not known")))

    assert remove_unused(ProjectSettings(tmp_path, ()), REFERENCE, set()) == 0

from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.errors import Diagnostic, UsageError
from bakehouse.image_uris import newest, retrieve
from bakehouse.releases import ReleaseRecord, append
from tests.test_releases import a_record

LOCAL, ECR = "127.0.0.1:5050", "123456789012.dkr.ecr.eu-west-1.amazonaws.com"


def released(folder: Path, *releases: tuple[str, bool]) -> list[ReleaseRecord]:
    """A ledger with releases in these registries, tested or not, oldest first."""
    made = []
    for number, (registry, tested) in enumerate(releases):
        digest = f"sha256:{number:064x}"
        uri = f"{registry}/bakehouse/mpi-cpu@{digest}"
        record = replace(a_record(), digest=digest, registry=registry, image_uri=uri, tested=tested)
        append(folder / "mpi-cpu" / "releases.json", record, folder / "locks")
        made.append(record)
    return made


def refused(folder: Path, image: str = "mpi-cpu", registry: str | None = None) -> Diagnostic:
    with pytest.raises(UsageError) as caught:
        retrieve(folder, image, registry=registry)
    return caught.value.diagnostics[0]


def test_the_address_is_pinned_by_digest(tmp_path: Path) -> None:
    released(tmp_path, (LOCAL, True))
    assert retrieve(tmp_path, "mpi-cpu") == f"{LOCAL}/bakehouse/mpi-cpu@sha256:{0:064x}"


def test_the_newest_release_counts(tmp_path: Path) -> None:
    *_, last = released(tmp_path, (LOCAL, True), (ECR, True))
    assert newest(tmp_path, "mpi-cpu") == last


def test_an_untested_release_is_passed_over(tmp_path: Path) -> None:
    first, last = released(tmp_path, (LOCAL, True), (LOCAL, False))
    assert newest(tmp_path, "mpi-cpu") == first
    assert newest(tmp_path, "mpi-cpu", untested=True) == last


@pytest.mark.parametrize(("registry", "which"), [("local", 2), ("ecr", 1), (ECR, 1), (LOCAL, 2)])
def test_a_registry_can_be_named(tmp_path: Path, registry: str, which: int) -> None:
    records = released(tmp_path, (LOCAL, True), (ECR, True), (LOCAL, True))
    assert newest(tmp_path, "mpi-cpu", registry=registry) == records[which]


def test_where_all_are_untested(tmp_path: Path) -> None:
    released(tmp_path, (LOCAL, False))
    assert refused(tmp_path) == Diagnostic(
        "no release of `mpi-cpu` has passed its smoke test",
        hint="run `./bake release mpi-cpu`, or take the newest as it is with `--untested`",
    )


def test_where_it_was_published_elsewhere(tmp_path: Path) -> None:
    released(tmp_path, (LOCAL, True), ("registry.example.com", True))
    assert refused(tmp_path, registry="ecr") == Diagnostic(
        "`mpi-cpu` was never published to `ecr`", hint="it is in `127.0.0.1:5050`, `registry.example.com`"
    )


def test_an_image_that_was_not_released_yet(tmp_path: Path) -> None:
    (tmp_path / "mpi-cpu").mkdir()
    assert refused(tmp_path) == Diagnostic(
        "`mpi-cpu` has not been released yet", hint="run `./bake release mpi-cpu`"
    )


def test_a_mistyped_name(tmp_path: Path) -> None:
    (tmp_path / "mpi-cpu").mkdir()
    told = Diagnostic("unknown image `mpi-cup`", hint="did you mean `mpi-cpu`?")
    assert refused(tmp_path, "mpi-cup") == told


def test_a_name_like_no_other(tmp_path: Path) -> None:
    assert refused(tmp_path / "missing", "x") == Diagnostic(
        "unknown image `x`", hint="`./bake list` shows the images"
    )


def test_a_rehearsal_has_no_address(tmp_path: Path) -> None:
    assert refused(tmp_path, "rehearsal/mpi-cpu") == Diagnostic(
        "`rehearsal/mpi-cpu` was rehearsed, not built: it has no address",
        hint="run `./bake release mpi-cpu`",
    )

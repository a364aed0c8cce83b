"""Addresses for estimators, out of ledgers."""

import subprocess
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bakehouse.catalog import project
from bakehouse.catalog.project import HOME, ProjectSettings
from bakehouse.catalog.registry_settings import RegistrySettings
from bakehouse.errors import Diagnostic, Reason, UsageError
from bakehouse.ledger.image_uris import ImageQuery, candidate, find, retrieve, to_promote
from bakehouse.ledger.releases import LedgerEntry, ReleasedComponent, ReleasedRegion, ReleaseRecord, append
from tests.support.ledgers import CPU, ECR, LOCAL, US, names, release
from tests.support.release_records import a_record

AMPERE, VOLTA, PLAIN = "ml.p4d.24xlarge", "ml.p3.2xlarge", "ml.c5.2xlarge"
TRAINIUM = "ml.trn1.32xlarge"


CUDA_12: dict[str, Any] = {
    "provides": names(pytorch="2.9.1", python="3.11", cuda="12.6"),
    "gpu": True,
    "gpu_architecture": ">=5,<10",
}
CUDA_13: dict[str, Any] = {
    "provides": names(pytorch="2.10.0", python="3.12", cuda="13.0"),
    "gpu": True,
    "gpu_architecture": ">=7.5",
}


@pytest.fixture
def family(tmp_path: Path) -> dict[str, ReleaseRecord]:
    """Three images of one framework."""
    return {
        "cpu": release(tmp_path, "pytorch-cpu", ECR, **CPU),
        "cu126": release(tmp_path, "pytorch-cu126", ECR, **CUDA_12),
        "cu130": release(tmp_path, "pytorch-cu130", ECR, **CUDA_13),
    }


def refusal(directory: Path, image: str = "mpi-cpu", **query: Any) -> Diagnostic:
    with pytest.raises(UsageError) as caught:
        retrieve(image, ledger=directory, **query)
    [diagnostic] = caught.value.diagnostics
    assert diagnostic.facts == (() if "image_scope" in query else (("looked in", str(directory)),))
    return replace(diagnostic, facts=())


def test_the_address_is_pinned_by_digest(tmp_path: Path) -> None:
    record = release(tmp_path)
    assert retrieve("mpi-cpu", ledger=tmp_path) == f"{LOCAL}/bakehouse/mpi-cpu@{record.digest}"


def newest(images: Path, image: str, registry: str = "") -> ReleaseRecord:
    return find(images, image, ImageQuery(registry=registry))


def test_the_newest_release_counts(tmp_path: Path) -> None:
    release(tmp_path)
    last = release(tmp_path, registry=ECR)
    assert newest(tmp_path, "mpi-cpu") == last
    release(tmp_path, candidate=True)
    assert newest(tmp_path, "mpi-cpu") == last


@pytest.mark.parametrize("name", ["mpi-cpu", "pytorch"])
def test_to_release_an_older_one_again_makes_it_no_newer(tmp_path: Path, name: str) -> None:
    old = release(tmp_path, provides=names(pytorch="2.9.1"))
    new = release(tmp_path, provides=names(pytorch="2.9.1"))
    again = replace(old, date="2027-01-02", scanned="2027-01-02T12:30:00Z", gpu_architecture=">=5")
    append(tmp_path / "mpi-cpu" / "releases.json", again, tmp_path / "locks")
    assert retrieve(name, ledger=tmp_path) == new.image_uri


@pytest.mark.parametrize("name", ["mpi-cpu", "pytorch"])
def test_an_older_candidate_that_is_released_last_is_the_newest(tmp_path: Path, name: str) -> None:
    staged = release(tmp_path, provides=names(pytorch="2.9.1"), candidate=True)
    release(tmp_path, provides=names(pytorch="2.9.1"))
    append(tmp_path / "mpi-cpu" / "releases.json", replace(staged, candidate=False), tmp_path / "locks")
    assert retrieve(name, ledger=tmp_path) == staged.image_uri


def test_a_candidate_is_never_given(tmp_path: Path) -> None:
    staged = release(tmp_path, candidate=True, provides=names(pytorch="2.9.1"))
    assert refusal(tmp_path) == Diagnostic(
        "no release of `mpi-cpu` has passed its smoke test",
        hint="smoke-test its candidate, then run `bake promote mpi-cpu`",
    )
    assert refusal(tmp_path, "pytorch").message == "no image with `pytorch` has been released yet"
    assert candidate(tmp_path, "mpi-cpu") == staged


def test_where_nothing_was_staged(tmp_path: Path) -> None:
    release(tmp_path)
    with pytest.raises(UsageError) as caught:
        candidate(tmp_path, "mpi-cpu")
    assert caught.value.diagnostics == (
        Diagnostic("no candidate of `mpi-cpu` was published", hint="run `bake push --candidate mpi-cpu`"),
    )


@pytest.mark.parametrize("query", [ImageQuery(region="us-east-1"), ImageQuery(registry=US)])
def test_a_candidate_is_given_where_it_is_wanted(tmp_path: Path, query: ImageQuery) -> None:
    staged = release(tmp_path, registry=ECR, candidate=True)
    uri = staged.image_uri.replace(ECR, US)
    regions = (ReleasedRegion("eu-west-1", staged.image_uri, "t"), ReleasedRegion("us-east-1", uri, "t"))
    path = tmp_path / "mpi-cpu" / "releases.json"
    append(path, replace(staged, regions=regions), tmp_path / "locks")
    release(tmp_path, registry=ECR, candidate=True)
    assert candidate(tmp_path, "mpi-cpu", query).image_uri == uri


@pytest.mark.parametrize(
    ("query", "why"),
    [
        (ImageQuery(region="us-east-1"), "is in eu-west-1"),
        (ImageQuery(registry="local"), f"is in `{ECR}`"),
        (ImageQuery(version="3"), "has pytorch 2.9.1"),
    ],
)
def test_a_candidate_that_does_not_fit_is_not_given(tmp_path: Path, query: ImageQuery, why: str) -> None:
    release(tmp_path, registry=ECR, candidate=True, provides=names(pytorch="2.9.1"))
    with pytest.raises(UsageError) as caught:
        candidate(tmp_path, "mpi-cpu", query)
    assert caught.value.diagnostics == (
        Diagnostic("no candidate of `mpi-cpu` fits", reasons=(Reason(f"`mpi-cpu` of 2026-11-20 {why}"),)),
    )


def test_an_untested_release_is_passed_over(tmp_path: Path) -> None:
    first = release(tmp_path)
    release(tmp_path, tested=False)
    assert newest(tmp_path, "mpi-cpu") == first


@pytest.mark.parametrize(("registry", "which"), [("local", 2), ("ecr", 1), (ECR, 1), (LOCAL, 2)])
def test_a_registry_can_be_named(tmp_path: Path, registry: str, which: int) -> None:
    records = [release(tmp_path, registry=host) for host in (LOCAL, ECR, LOCAL)]
    assert newest(tmp_path, "mpi-cpu", registry=registry) == records[which]


def test_a_project_has_releases_only_in_its_registry(tmp_path: Path) -> None:
    project = ProjectSettings(tmp_path, (), registry="new.example/team")
    for _ in range(2):
        release(project.images, registry="old.example", provides=names(pytorch="2.9.1"))
    for name, message in (
        ("mpi-cpu", "`mpi-cpu` was never published to `new.example/team`"),
        ("pytorch", "no release with `pytorch` fits"),
    ):
        with pytest.raises(UsageError) as caught:
            find(project.images, name, ImageQuery(project=project))
        assert caught.value.diagnostics[0].message == message

    record = release(project.images, registry="new.example", provides=names(pytorch="2.9.1"))
    release(project.images, registry="old.example", provides=names(pytorch="2.9.1"))
    for name in ("mpi-cpu", "pytorch"):
        assert find(project.images, name, ImageQuery(project=project)) == record


def test_a_registry_of_the_settings_can_be_named(tmp_path: Path) -> None:
    registries = {"dr": RegistrySettings("dr", host="old.example")}
    project = ProjectSettings(tmp_path, (), registry="new.example/team", registries=registries)
    record = release(project.images, registry="old.example")
    release(project.images, registry="new.example")
    assert find(project.images, "mpi-cpu", ImageQuery(registry="dr", project=project)) == record


def test_retrieve_searches_the_registry_of_the_project(tmp_path: Path) -> None:
    settings = '[tool.bakehouse]\nregistry = "new.example/team"\n'
    (tmp_path / "pyproject.toml").write_text(settings)
    record = release(tmp_path / "images", registry="old.example")
    with pytest.raises(UsageError) as caught:
        retrieve("mpi-cpu", ledger=tmp_path)
    assert caught.value.diagnostics[0].hint == (
        "it is in `old.example`; `bake promote mpi-cpu --registry new.example/team` copies its releases"
    )
    assert retrieve("mpi-cpu", ledger=tmp_path, registry="old.example") == record.image_uri
    # A ledger that was copied out of its project has no configured registry
    (tmp_path / "copy").symlink_to(tmp_path / "images")
    assert retrieve("mpi-cpu", ledger=tmp_path / "copy") == record.image_uri


def test_a_region_is_that_of_the_registry(tmp_path: Path) -> None:
    record = release(tmp_path, registry=US)
    release(tmp_path, registry=ECR)
    assert retrieve("mpi-cpu", "us-east-1", ledger=tmp_path) == record.image_uri
    assert refusal(tmp_path, region="eu-north-1") == Diagnostic(
        "no release of `mpi-cpu` fits", reasons=(Reason("`mpi-cpu` of 2026-11-20 is in eu-west-1"),)
    )


def test_where_all_are_untested(tmp_path: Path) -> None:
    release(tmp_path, tested=False)
    assert refusal(tmp_path) == Diagnostic(
        "no release of `mpi-cpu` has passed its smoke test", hint="run `bake release mpi-cpu`"
    )


def test_where_it_was_published_elsewhere(tmp_path: Path) -> None:
    release(tmp_path)
    release(tmp_path, registry="registry.example.com")
    assert refusal(tmp_path, registry="ecr") == Diagnostic(
        "`mpi-cpu` was never published to `ecr`", hint="it is in `127.0.0.1:5050`, `registry.example.com`"
    )


@pytest.mark.parametrize(
    ("query", "image"),
    [
        ({"instance_type": PLAIN}, "cpu"),
        ({"instance_type": "local"}, "cpu"),
        ({"instance_type": AMPERE}, "cu130"),
        ({"instance_type": AMPERE, "version": "2.9"}, "cu126"),
        ({"instance_type": AMPERE, "version": "2.9.1"}, "cu126"),
        ({"instance_type": AMPERE, "py_version": "py311"}, "cu126"),
        ({"instance_type": AMPERE, "py_version": "py3"}, "cu130"),
        ({"instance_type": VOLTA}, "cu126"),
        ({"version": "2.10", "image_scope": "training"}, "cu130"),
    ],
    ids=lambda value: str(value).replace("ml.", ""),
)
def test_the_variant_that_fits_is_chosen(
    tmp_path: Path, family: dict[str, ReleaseRecord], query: dict[str, str], image: str
) -> None:
    assert retrieve("pytorch", region="eu-west-1", ledger=tmp_path, **query) == family[image].image_uri


def test_an_image_for_neuron_devices_is_for_them_only(
    tmp_path: Path, family: dict[str, ReleaseRecord]
) -> None:
    changed = {**CPU, "neuron_architecture": ">=2,<5"}
    neuron = release(tmp_path, "pytorch-neuron", ECR, **changed)
    for instance_type, record in ((TRAINIUM, neuron), (PLAIN, family["cpu"])):
        assert retrieve("pytorch", instance_type=instance_type, ledger=tmp_path) == record.image_uri
    message = "there are releases with `pytorch` for GPUs and for CPUs and for Neuron devices"
    assert refusal(tmp_path, "pytorch").message == message


def test_arguments_have_the_order_of_the_sdk(tmp_path: Path, family: dict[str, ReleaseRecord]) -> None:
    uri = retrieve("pytorch", "eu-west-1", "2.9", "py311", PLAIN, ledger=tmp_path)
    assert uri == family["cpu"].image_uri


def test_the_reason_why_none_fits_is_reported_for_each_image(
    tmp_path: Path, family: dict[str, ReleaseRecord]
) -> None:
    assert refusal(tmp_path, "pytorch", version="2.10", instance_type=VOLTA) == Diagnostic(
        "no release with `pytorch` fits",
        reasons=(
            Reason("`pytorch-cpu` of 2026-11-20 has pytorch 2.9.1"),
            Reason("`pytorch-cu126` of 2026-11-20 has pytorch 2.9.1"),
            Reason(
                "`pytorch-cu130` of 2026-11-20 has code for GPUs of architecture >=7.5, "
                "but `ml.p3.2xlarge` has 7.0"
            ),
        ),
        hint="run `bake releases` to list all releases",
    )


def test_a_traceback_tells_the_reasons_too(tmp_path: Path, family: dict[str, ReleaseRecord]) -> None:
    with pytest.raises(UsageError) as caught:
        retrieve("pytorch", py_version="py38", ledger=tmp_path)
    assert "".join(traceback.format_exception_only(caught.value)) == (
        "bakehouse.errors.UsageError: no release with `pytorch` fits\n"
        f"  looked in: {tmp_path}\n"
        "  `pytorch-cpu` of 2026-11-20 has Python 3.11\n"
        "  `pytorch-cu126` of 2026-11-20 has Python 3.11\n"
        "  `pytorch-cu130` of 2026-11-20 has Python 3.12\n"
        "hint: run `bake releases` to list all releases\n"
    )


def test_without_an_instance_type_nothing_is_guessed(
    tmp_path: Path, family: dict[str, ReleaseRecord]
) -> None:
    assert refusal(tmp_path, "pytorch") == Diagnostic(
        "there are releases with `pytorch` for GPUs and for CPUs",
        hint='add the instance type of the job, as in `instance_type="ml.p4d.24xlarge"`',
    )


def test_an_image_that_is_named_has_to_fit_too(tmp_path: Path, family: dict[str, ReleaseRecord]) -> None:
    diagnostic = refusal(tmp_path, "pytorch-cu130", instance_type=PLAIN)
    assert diagnostic.reasons == (
        Reason("`pytorch-cu130` of 2026-11-20 needs GPUs, but `ml.c5.2xlarge` has none"),
    )


def test_of_like_images_the_one_with_the_fewest_parts_is_chosen(tmp_path: Path) -> None:
    plain = release(tmp_path, "plain", **CPU)
    release(tmp_path, "extended", **CPU, parts=a_record().parts * 2)
    assert retrieve("pytorch", ledger=tmp_path) == plain.image_uri


def test_an_older_release_counts_where_the_newest_does_not_fit(tmp_path: Path) -> None:
    older = release(tmp_path, "pytorch-gpu", **CUDA_12)
    release(tmp_path, "pytorch-gpu", **CUDA_13)
    assert retrieve("pytorch", version="2.9", ledger=tmp_path) == older.image_uri


@pytest.mark.parametrize(
    "otherwise",
    [
        {"tested": False},
        {"candidate": True},
        {"entry_point": "train.py"},
        {"registry": LOCAL},
        {"gpu": False},
        {"gpu_architecture": ">=8.6"},
        {"provides": names(pytorch="2.10.0", python="3.11")},
        {"parts": (ReleasedComponent("python", "3.12", ""),)},
    ],
    ids=lambda otherwise: next(iter(otherwise)),
)
def test_an_older_release_that_fits_is_found_whatever_it_differs_in(
    tmp_path: Path, otherwise: dict[str, Any]
) -> None:
    """Each of these is looked at before a record is read."""
    fields = {
        **CUDA_12,
        "registry": ECR,
        "parts": (ReleasedComponent("nccl", "2.27.3", ""),),
        "entry_point": "",
    }
    old = release(tmp_path, "pytorch-cu126", **fields)
    for _ in range(2):
        release(tmp_path, "pytorch-cu126", **{**fields, **otherwise})
    query = {"version": "2.9", "py_version": "py311", "region": "eu-west-1", "instance_type": AMPERE}
    assert retrieve("pytorch", ledger=tmp_path, **query) == old.image_uri


def test_an_older_release_that_is_in_the_region_is_found(tmp_path: Path) -> None:
    """The newer ones are in another region only."""
    in_us = {**CUDA_12, "registry": US, "regions": ()}
    region = ReleasedRegion("eu-west-1", f"{ECR}/bakehouse/pytorch-cu126@sha256:{0:064x}", "a-tag")
    release(tmp_path, "pytorch-cu126", **{**in_us, "regions": (region,)})
    for _ in range(2):
        release(tmp_path, "pytorch-cu126", **in_us)
    uri = retrieve("pytorch", ledger=tmp_path, region="eu-west-1", instance_type=AMPERE)
    assert uri == region.image_uri


def test_an_image_with_its_own_code_is_only_selected_by_name(tmp_path: Path) -> None:
    churn = release(tmp_path, "churn", **CPU, entry_point="train.py")
    assert refusal(tmp_path, "pytorch").message == "no image with `pytorch` has been released yet"
    assert retrieve("churn", ledger=tmp_path) == churn.image_uri


def test_images_are_for_training(tmp_path: Path) -> None:
    assert refusal(tmp_path, "pytorch", image_scope="inference") == Diagnostic(
        "there are no images for `inference`", hint='use `image_scope="training"`'
    )


def test_an_invalid_version_of_python(tmp_path: Path, family: dict[str, ReleaseRecord]) -> None:
    assert refusal(tmp_path, "pytorch", py_version="python3") == Diagnostic(
        "`python3` is not a Python version", hint="write it as `py311` or `3.11`"
    )


def test_an_image_that_was_not_released_yet(tmp_path: Path) -> None:
    (tmp_path / "mpi-cpu").mkdir()
    assert refusal(tmp_path) == Diagnostic(
        "`mpi-cpu` has not been released yet", hint="run `bake release mpi-cpu`"
    )


def test_an_image_that_has_only_a_recipe(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        find(tmp_path, "churn", ImageQuery(), lambda: ["churn"])
    assert caught.value.diagnostics == (
        Diagnostic("`churn` has not been released yet", hint="run `bake release churn`"),
    )


def test_a_project_without_a_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.bakehouse]\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="no image with `pytorch` has been released yet"):
        retrieve("pytorch")


def test_a_mistyped_name(tmp_path: Path) -> None:
    (tmp_path / "mpi-cpu").mkdir()
    diagnostic = Diagnostic("unknown image `mpi-cup`", hint="did you mean `mpi-cpu`?")
    assert refusal(tmp_path, "mpi-cup") == diagnostic


@pytest.mark.parametrize("name", ["x", "..", "", "../mpi-cpu"])
def test_a_name_like_no_other(tmp_path: Path, name: str) -> None:
    assert refusal(tmp_path, name) == Diagnostic(
        f"unknown image `{name}`",
        hint="run `bake list` to list the images, and `bake release` to release one",
    )


@pytest.mark.parametrize("ledger", ["", "missing"])
def test_a_rehearsal_has_no_address(tmp_path: Path, ledger: str) -> None:
    """No ledger is looked for."""
    with pytest.raises(UsageError) as caught:
        retrieve("rehearsal/mpi-cpu", ledger=tmp_path / ledger)
    assert caught.value.diagnostics == (
        Diagnostic(
            "`rehearsal/mpi-cpu` was rehearsed, not built, so it has no image URI",
            hint="run `bake release mpi-cpu`",
        ),
    )


def test_a_look_up_needs_the_standard_library_and_msgspec_only(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.bakehouse]\n")
    record = release(tmp_path / "images")
    code = "from bakehouse import image_uris; print(image_uris.retrieve('mpi-cpu'))"
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "msgspec").symlink_to(Path(msgspec.__file__).parent)
    # -S leaves every installed package out.
    command = [sys.executable, "-S", "-c", code]
    environment = {"PYTHONPATH": f"{HOME}:{packages}"}
    result = subprocess.run(
        command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
    )
    assert result.stdout.strip() == record.image_uri


@pytest.mark.parametrize("given", ["images", ".", "images/mpi-cpu/releases.json"])
@pytest.mark.parametrize("is_variable", [False, True])
def test_a_ledger_is_found_by_its_path_from_any_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, is_variable: bool
) -> None:
    record = release(tmp_path / "images")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    if is_variable:
        monkeypatch.setenv("BAKEHOUSE_LEDGER", str(tmp_path / given))

    assert retrieve("mpi-cpu", ledger=None if is_variable else f"../{given}") == record.image_uri


def test_an_error_says_where_the_ledger_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project, "IS_CHECKOUT", False)
    monkeypatch.chdir(tmp_path)
    hint = (
        "run it in the project's directory, or set BAKEHOUSE_LEDGER to the path of its `images` "
        "or an `s3://` URL"
    )
    for variable, origin in {"": " (from the current directory)", "nowhere": " (BAKEHOUSE_LEDGER)"}.items():
        monkeypatch.setenv("BAKEHOUSE_LEDGER", variable)
        with pytest.raises(UsageError) as caught:
            retrieve("mpi-cpu")
        place = tmp_path / (variable or "images")
        expected = Diagnostic(
            "the ledger does not exist", facts=(("looked in", f"{place}{origin}"),), hint=hint
        )
        assert caught.value.diagnostics == (expected,)


def test_promoting_an_older_candidate_does_not_make_it_newer(tmp_path: Path) -> None:
    project = ProjectSettings(tmp_path, ())
    older = release(project.images, candidate=True)
    newer = release(project.images, candidate=True)
    append(project.images / "mpi-cpu/releases.json", replace(older, candidate=False), tmp_path / "locks")

    assert to_promote(project, "mpi-cpu") == newer


def test_merged_candidates_are_in_the_order_of_their_first_days(tmp_path: Path) -> None:
    project = ProjectSettings(tmp_path, ())
    newer = release(project.images, candidate=True, date="2026-11-22")
    older = release(project.images, candidate=True, date="2026-11-21")
    scanned = replace(older, date="2026-11-23", scanned="2026-11-23T12:30:00Z")
    append(project.images / "mpi-cpu/releases.json", scanned, tmp_path / "locks")

    assert candidate(project.images, "mpi-cpu") == newer
    assert to_promote(project, "mpi-cpu") == newer
    assert to_promote(project, "mpi-cpu", image_uri=older.image_uri) == scanned


def test_a_candidate_in_another_registry_is_named_with_the_command_that_publishes_it(tmp_path: Path) -> None:
    project = ProjectSettings(tmp_path, ())
    local = release(project.images, registry="127.0.0.1:5050", candidate=True)
    with pytest.raises(UsageError) as raised:
        to_promote(project, "mpi-cpu", registry="ecr")

    assert raised.value.diagnostics == (
        Diagnostic(
            "no candidate of `mpi-cpu` was published to `ecr`",
            reasons=(Reason(f"the newest candidate is `{local.image_uri}`"),),
            hint="run `bake push --candidate mpi-cpu --registry ecr`",
        ),
    )


@pytest.mark.parametrize("registry", ["", "ecr"])
def test_candidates_in_the_registry_of_the_project_precede_others(tmp_path: Path, registry: str) -> None:
    project = ProjectSettings(tmp_path, (), registry=f"{ECR}/team")
    former = release(project.images, registry=US, candidate=True)
    assert to_promote(project, "mpi-cpu", registry=registry) == former
    own = release(project.images, registry=ECR, candidate=True)
    later = release(project.images, registry=US, candidate=True)

    assert to_promote(project, "mpi-cpu", registry=registry) == own
    assert to_promote(project, "mpi-cpu", image_uri=later.image_uri) == later


def test_a_look_up_validates_only_the_records_that_it_reaches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger of 3,000 releases takes 0.1 s of CPU to read, and 0.2 s more if all of them are validated."""
    for day in range(1, 10):
        newest = release(tmp_path, date=f"2026-11-0{day}")
    validated: list[object] = []
    parse = LedgerEntry.parse

    def counted(value: object, path: str = "") -> LedgerEntry:
        validated.append(value)
        return parse(value, path)

    monkeypatch.setattr(LedgerEntry, "parse", counted)

    assert find(tmp_path, "mpi-cpu", ImageQuery()) == newest
    assert len(validated) == 1

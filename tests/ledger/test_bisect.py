"""The search of the release that broke a job."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakehouse.catalog.project import ProjectSettings
from bakehouse.cli.diagnostics import failure_text
from bakehouse.errors import UsageError
from bakehouse.ledger.bisect import bisect, commit_changes, start
from bakehouse.ledger.releases import ReleasedComponent, ReleasedRegion, ReleaseRecord
from tests.support.git_repository import commit
from tests.support.numbered_releases import LINE, release
from tests.support.trees import COMPONENTS, IMAGE

PARTS = tuple(
    ReleasedComponent(*part)
    for part in (
        ("debian", "12", ""),
        ("python", "3.11", ""),
        ("torch", "2.9.0", "cpu-py311"),
        ("toolkit", "5.1", ""),
    )
)


@given(count=st.integers(2, 200), data=st.data())
def test_a_search_ends_at_the_change_within_the_announced_tries(count: int, data: st.DataObject) -> None:
    line = [release(number) for number in range(count)]
    broken = data.draw(st.integers(1, count - 1))
    is_fixed = data.draw(st.booleans())
    if is_fixed:
        # The older releases fail
        line.reverse()
    good, bad = [line[0].digest], [line[-1].digest]
    ordered = line[::-1] if is_fixed else line
    most = bisect(ordered, good, bad).most_tries
    tries = 0
    while (tried := (search := bisect(ordered, good, bad)).next) is not None:
        assert tried in search.between
        (good if line.index(tried) < broken else bad).append(tried.digest)
        tries += 1

    assert (search.good, search.bad) == (line[broken - 1], line[broken])
    assert tries <= most <= count.bit_length()


@given(st.lists(st.sampled_from(["works", "fails", "not tried"]), max_size=12))
def test_results_contradict_each_other_if_a_newer_release_works(results: list[str]) -> None:
    results = ["works", *results, "fails"]
    line = [release(number) for number in range(len(results))]
    good, bad = ([index for index, each in enumerate(results) if each == kind] for kind in ("works", "fails"))
    digests = [line[index].digest for index in good], [line[index].digest for index in reversed(bad)]
    if max(good) > min(bad):
        with pytest.raises(UsageError, match="broke more than once"):
            bisect(line, *digests)
    else:
        search = bisect(line, *digests)
        assert (search.good, search.bad) == (line[max(good)], line[min(bad)])
        assert search.between == tuple(line[max(good) + 1 : min(bad)])


def test_the_middle_release_comes_next() -> None:
    search = bisect(LINE, [LINE[0].digest], [LINE[8].digest])

    assert search.between == LINE[1:8]
    assert (search.next, search.most_tries) == (LINE[4], 3)


def test_candidates_are_tried_only_if_named() -> None:
    line = [LINE[0], replace(LINE[1], candidate=True), LINE[2], replace(LINE[3], candidate=True)]
    search = bisect(line, [line[0].digest], [line[3].digest])

    assert (search.between, search.bad) == ((LINE[2],), line[3])


def test_results_outside_the_two_releases_do_not_matter() -> None:
    good, bad = [LINE[1].digest, LINE[8].digest], [LINE[4].digest, LINE[0].digest]

    assert bisect(LINE, good, bad).between == LINE[2:4]


def failure(*names: str, good: tuple[str, ...] = (), ledger: dict[str, tuple[ReleaseRecord, ...]]) -> str:
    with pytest.raises(UsageError) as caught:
        start(ledger, [names[0], *good], [names[1]])
    return failure_text(caught.value.diagnostics[0])


LEDGER = {"mpi-cpu": LINE}


@pytest.mark.parametrize(
    "name",
    [
        LINE[4].digest,
        "sha256:000500",
        "000500",
        LINE[4].image_uri,
        f"elsewhere.example/mirror@{LINE[4].digest}",
        f"{LINE[4].registry}/{LINE[4].repository}:{LINE[4].tags[0]}",
        LINE[4].tags[0],
    ],
)
def test_a_release_is_named_by_digest_tag_or_uri(name: str) -> None:
    assert start(LEDGER, ["sha256:000100"], [name]).bad == LINE[4]


def test_the_digest_of_the_configuration_and_uris_of_other_regions_name_a_release() -> None:
    uri = f"2.dkr.ecr.eu-west-1.amazonaws.com/b/mpi-cpu@{LINE[1].digest}"
    regions = (ReleasedRegion("eu-west-1", uri, "there"),)
    second = replace(LINE[1], config=f"sha256:{'c' * 64}", regions=regions)
    ledger = {"mpi-cpu": (LINE[0], second)}

    for name in ("cccccccc", "there", "2.dkr.ecr.eu-west-1.amazonaws.com/b/mpi-cpu:there"):
        assert start(ledger, ["000100"], [name]).bad == second


def test_a_tag_of_digits_names_a_release() -> None:
    second = replace(LINE[1], tags=("20261120",))

    assert start({"mpi-cpu": (LINE[0], second)}, ["000100"], ["20261120"]).bad == second


def test_a_moving_tag_names_the_newest_release_that_had_it() -> None:
    moved = [replace(record, tags=(*record.tags, "mpi-cpu")) for record in LINE[:5]]
    # A signature adds a record of an older release
    ledger = {"mpi-cpu": (*moved, moved[2])}

    assert start(ledger, ["000100"], ["mpi-cpu"]).bad == moved[4]


def test_an_unknown_release_is_an_error() -> None:
    assert (
        failure("000100", "nothing", ledger=LEDGER)
        == """\
error: no release is named `nothing`

hint: run `bake releases` to list the releases
"""
    )


def test_an_ambiguous_digest_is_an_error() -> None:
    close = tuple(replace(release(number), date="2026-11-20") for number in range(1, 4))

    assert (
        failure("00000000", close[2].digest, ledger={"mpi-cpu": close})
        == f"""\
error: several releases are named `00000000`
  2026-11-20  {close[0].digest}
  2026-11-20  {close[1].digest}
  2026-11-20  {close[2].digest}

hint: write more of the digest
"""
    )


def test_releases_of_different_images_are_an_error() -> None:
    ledger = {"mpi-cpu": LINE[:1], "pytorch-cpu": LINE[1:2]}

    assert (
        failure("000100", "000200", ledger=ledger)
        == """\
error: the releases are of different images
  000100  mpi-cpu
  000200  pytorch-cpu

hint: run `bake diff IMAGE IMAGE` to compare two images
"""
    )


def test_digests_that_several_images_have_need_a_name() -> None:
    assert (
        failure("000100", "000200", ledger={"mpi-cpu": LINE, "twin": LINE})
        == """\
error: the releases are of several images: `mpi-cpu`, `twin`

hint: name the image after the two releases
"""
    )


def test_a_job_that_broke_twice_is_an_error() -> None:
    with pytest.raises(UsageError) as caught:
        start(LEDGER, ["000100", "000700"], ["000900", "000300"])

    assert (
        failure_text(caught.value.diagnostics[0])
        == f"""\
error: the job broke more than once between these releases
  good  2026-11-20 {LINE[6].digest}
  bad   2026-11-20 {LINE[2].digest}

hint: start again with two of them that have no other result between them
"""
    )


def test_a_release_that_works_and_fails_is_an_error() -> None:
    assert (
        failure("000100", "000100", ledger=LEDGER)
        == f"error: release `{LINE[0].digest}` is named as good and as bad\n"
    )


@pytest.fixture
def project(tmp_path: Path) -> ProjectSettings:
    return ProjectSettings(tmp_path, (tmp_path,))


def committed(project: ProjectSettings, recipe: str) -> str:
    components = {f"components/{name}/component.yaml": text for name, text in COMPONENTS.items()}
    return commit(project.root, {**components, "images/small.yaml": recipe})


def at(revision: str, number: int) -> ReleaseRecord:
    return release(number << 240, image="small", revision=revision, parts=PARTS)


def test_commits_show_changes_that_the_ledger_lacks(project: ProjectSettings) -> None:
    before = committed(project, IMAGE + 'environment: {A: "1"}\n')
    after = committed(project, IMAGE + 'environment: {A: "2"}\npackages: [less]\n')
    found = commit_changes(project, at(before, 1), at(after, 2))

    assert [(change.kind, change.text) for change in found] == [
        ("recipe, environment", "A 1 → 2"),
        ("recipe, packages", "+ less"),
    ]


def test_packages_of_commits_are_compared(project: ProjectSettings) -> None:
    def locked(version: str) -> str:
        lock = f"mine=={version} --hash=sha256:{'a' * 64}  # mine.whl 5\n"
        (project.root / "images").mkdir(exist_ok=True)
        (project.root / "images/own.lock").write_text(lock)
        return committed(project, IMAGE + "requirements: own.lock\n")

    found = commit_changes(project, at(locked("1"), 1), at(locked("2"), 2))

    assert ("Python package", "mine 1 → 2") in [(change.kind, change.text) for change in found]


@pytest.mark.parametrize(
    ("revision", "message"),
    [
        ("", "release sha256:000200000000 has no commit"),
        (f"{'a' * 40}-dirty", "release sha256:000200000000 was published from uncommitted files"),
        ("a" * 40, f"commit `{'a' * 40}` does not exist"),
    ],
)
def test_a_release_without_a_usable_commit_is_not_compared(
    project: ProjectSettings, revision: str, message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        commit_changes(project, at(committed(project, IMAGE), 1), at(revision, 2))

    assert caught.value.diagnostics[0].message == message


def test_the_uncommitted_files_of_a_release_are_the_reason_for_no_comparison(
    project: ProjectSettings,
) -> None:
    dirty = replace(at(f"{'a' * 40}-dirty", 2), uncommitted=("src/train.py", "requirements.txt"))
    with pytest.raises(UsageError) as caught:
        commit_changes(project, at(committed(project, IMAGE), 1), dirty)

    message = "release sha256:000200000000 was published from uncommitted files: "
    assert caught.value.diagnostics[0].message == message + "`src/train.py`, `requirements.txt`"


@pytest.mark.parametrize("recipe", [IMAGE.replace("2.9.0", "2.8.0"), IMAGE.replace("3.11", "4")])
def test_a_commit_without_the_versions_of_the_release_is_not_compared(
    project: ProjectSettings, recipe: str
) -> None:
    first = committed(project, IMAGE)
    second = committed(
        project, recipe.replace('torch: "*"', 'torch: "2.8.0"').replace('variants: {torch: "cpu-*"}\n', "")
    )
    with pytest.raises(UsageError) as caught:
        commit_changes(project, at(first, 1), at(second, 2))

    assert caught.value.diagnostics[0].message == (
        f"commit {second[:12]} does not give the versions of release sha256:000200000000"
    )

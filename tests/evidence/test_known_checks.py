"""Results that count for an image, missing ones, and the answer of the gate."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.verify import Outcome
from bakehouse.catalog.apt_lock import Deb
from bakehouse.catalog.project import HOME, ProjectSettings
from bakehouse.cluster.check_keys import long_definitions
from bakehouse.cluster.smoke_report import CheckResult
from bakehouse.errors import SmokeError
from bakehouse.evidence import check_rows
from bakehouse.evidence.known_checks import MAX_AGE, KnownChecks, known_checks
from bakehouse.evidence.versions import VerifiedImages
from bakehouse.plan.model import BootstrappedBase, Image, ImageKey, InstalledComponent
from bakehouse.plan.workspace import open_workspace, select
from bakehouse.util.oci import ContentId
from tests.support import fake_engine
from tests.support.built_images import BUILT, CONTENT, TOOLKIT, results
from tests.support.errors import raised
from tests.support.trees import IMAGE, Tree

FAILS = '\nraise SystemExit("always fails")\n'
ON_A_GPU = replace(TOOLKIT, gpus=1)
OLD = (datetime.now(UTC) - timedelta(days=31)).isoformat()


@pytest.fixture
def project(tmp_path: Path) -> ProjectSettings:
    return ProjectSettings(tmp_path, (), state_directory=tmp_path / "state")


@pytest.fixture
def tested(tmp_path: Path) -> Image:
    """An image for GPUs with a component that has a check."""
    (tmp_path / "a.py").write_text("def installed(): return '1.0'\n\ndef check_it(): pass\n")
    part = InstalledComponent("a", "1.0", "", tmp_path / "a.py")
    return replace(
        fake_engine.image(parts=(part,), gpu=True, launchers=("torchrun",)), required=("nccl_all_reduce",)
    )


def known(project: ProjectSettings, of: Image, *rows: CheckResult) -> KnownChecks:
    check_rows.record(project.state, CONTENT, rows)
    return known_checks(project, of, CONTENT)


def test_an_image_without_results_was_never_tested(project: ProjectSettings, tested: Image) -> None:
    state = known_checks(project, tested, CONTENT)

    assert state.blockers == ("it was never smoke-tested",)
    assert (state.has_passed, state.summary, state.date) == (False, "", "")


def test_results_of_two_machines_release_an_image_together(project: ProjectSettings, tested: Image) -> None:
    here = known(project, tested, *results(tested, machine="builder"))
    assert here.has_passed
    assert here.blockers == (
        "`nccl_all_reduce` is required but was not tested: no GPU was given; use `--gpus`",
    )

    both = known(project, tested, *results(tested, ON_A_GPU, machine="gpu-1"))
    assert both.blockers == ()
    assert (both.machine, both.transport) == ("builder, gpu-1", "nccl")


def test_an_image_with_the_same_bytes_needs_no_new_test(project: ProjectSettings, tested: Image) -> None:
    known(project, tested, *results(tested), *results(tested, ON_A_GPU))
    key = ImageKey("b" * 64)
    upgraded = replace(tested, name="other", summary="x", labels={"a": "b"}, key=key, recipe_key=key)

    assert known_checks(project, upgraded, CONTENT).blockers == ()


def test_a_changed_check_has_no_result_until_it_runs_again(
    project: ProjectSettings, tested: Image, tmp_path: Path
) -> None:
    rows = (*results(tested), *results(tested, ON_A_GPU))
    assert known(project, tested, *rows).missing == ()
    with (tmp_path / "a.py").open("a") as file:
        file.write(FAILS)

    state = known_checks(project, tested, CONTENT)
    assert (state.missing, state.changed) == (("components.a",), ("components.a",))
    assert state.blockers == ("`components.a` changed after the test",)
    assert state.summary.endswith(" checks; missing: `components.a`")

    failed = known(project, tested, *results(tested, failed=("components.a",)))
    assert failed.blockers == ("its smoke test failed: `components.a`",)


def test_a_new_check_has_no_result(project: ProjectSettings, tested: Image, tmp_path: Path) -> None:
    known(project, tested, *results(tested), *results(tested, ON_A_GPU))
    (tmp_path / "b.py").write_text("def check_it(): pass\n")
    part = InstalledComponent("b", "", "", tmp_path / "b.py")
    more = replace(tested, all_parts=(*tested.all_parts, part))

    assert known_checks(project, more, CONTENT).blockers == ("`components.b` has no result",)


def test_a_check_that_changed_back_has_its_result_again(
    project: ProjectSettings, tested: Image, tmp_path: Path
) -> None:
    before = known(project, tested, *results(tested))
    text = (tmp_path / "a.py").read_text()
    (tmp_path / "a.py").write_text(text + FAILS)
    assert known_checks(project, tested, CONTENT) != before
    (tmp_path / "a.py").write_text(text)

    assert known_checks(project, tested, CONTENT) == before


def test_a_failure_counts_until_a_later_pass(project: ProjectSettings, tested: Image) -> None:
    day = datetime.now(UTC)
    dates = [(day - timedelta(hours=hours)).isoformat() for hours in (3, 2, 1)]
    failure = results(tested, date=dates[1], failed=("torchrun_1x2",))

    assert known(project, tested, *results(tested, date=dates[0]), *failure).failed == ("torchrun_1x2",)
    assert known(project, tested, *results(tested, ON_A_GPU, date=dates[2])).failed == ("torchrun_1x2",)
    assert known(project, tested, *results(tested, date=dates[2])).failed == ()


def test_a_failure_on_other_hosts_still_counts(project: ProjectSettings, tested: Image) -> None:
    failed = results(tested, ON_A_GPU, failed=("nccl_all_reduce",))
    passed = results(tested, replace(TOOLKIT, gpus=2))

    assert known(project, tested, *failed, *passed).failed == ("nccl_all_reduce",)


def test_a_check_that_only_other_hosts_ran_does_not_replace_a_changed_one(
    project: ProjectSettings, tested: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hosts are an obstacle for the job of one host, but not for this machine."""
    remote = replace(TOOLKIT, is_remote=True)
    known(project, tested, *results(tested), *results(tested, remote))
    monkeypatch.setattr("bakehouse.cluster.smoke_checks._LOGGED_ENVIRONMENT", {"A": "1"})
    pytorch = replace(
        tested, environment={"SAGEMAKER_TRAINING_MODULE": "sagemaker_pytorch_container.training:main"}
    )

    state = known_checks(project, pytorch, CONTENT)
    assert "torchrun_2x2" in state.missing


def test_old_passes_are_no_results_for_promote_and_old_failures_are(
    project: ProjectSettings, tested: Image
) -> None:
    old = known(project, tested, *results(tested, date=OLD, failed=("torchrun_1x2",)))
    assert old.failed == ("torchrun_1x2",)

    state = known_checks(project, tested, CONTENT, max_age=MAX_AGE)
    outcomes = {check.name: check for check in state.checks if check.date}
    assert outcomes["torchrun_1x2"].outcome is Outcome.FAILED
    assert outcomes["train_success"].outcome is Outcome.NOT_TESTED
    assert outcomes["train_success"].reason == f"its result of {OLD[:10]} is older than 30 days"


def test_a_long_check_alone_is_no_result_of_its_component(
    project: ProjectSettings, tested: Image, tmp_path: Path
) -> None:
    with (tmp_path / "a.py").open("a") as file:
        file.write("\ndef long_check_more(): pass\n")
    [(name, definition)] = long_definitions(tested, TOOLKIT).items()
    long = CheckResult(name, Outcome.PASSED, 1.0, key=definition.key, setup=TOOLKIT, date=OLD)

    state = known(project, tested, long)
    assert "components.a" in state.missing
    assert name in {check.name for check in state.checks}


def test_a_removed_check_is_neither_failed_nor_missing(project: ProjectSettings, tested: Image) -> None:
    known(project, tested, *results(tested, failed=("components.a",)))
    less = replace(tested, all_parts=tuple(part for part in tested.all_parts if part.component != "a"))

    state = known_checks(project, less, CONTENT)
    assert (state.failed, state.missing) == ((), ())


def test_a_changed_check_voids_its_row_in_every_image_that_has_it() -> None:
    """And nothing else, in all images of the catalogue."""
    selection = select(open_workspace(HOME), ["mpi-cpu", "pytorch-cpu", "tensorflow-cpu"])
    for image in selection.plan.images:
        before = results(image)
        parts = tuple(
            replace(part, smoke=part.smoke.with_name("component.yaml"))
            if part.smoke and part.component == "mpi4py"
            else part
            for part in image.all_parts
        )
        after = {row.name: row.key for row in results(replace(image, all_parts=parts))}
        voided = {row.name for row in before if after[row.name] != row.key}
        assert voided == {"components.mpi4py"} & {row.name for row in before}


DATES = st.sampled_from(
    ["2026-11-20T10:00:00+00:00", "2026-11-21T10:00:00+00:00", "2026-11-21T11:00:00+01:00"]
)
ROWS = st.lists(
    st.builds(
        CheckResult,
        name=st.sampled_from("ab"),
        outcome=st.sampled_from(Outcome),
        seconds=st.just(1.0),
        key=st.sampled_from(["1", "2"]),
        date=DATES,
    ),
    max_size=8,
)


@given(ROWS, ROWS)
def test_the_order_of_results_does_not_matter(one: list[CheckResult], two: list[CheckResult]) -> None:
    merged = check_rows.merge((*one, *two))

    assert merged == check_rows.merge((*two, *one)) == check_rows.merge((*check_rows.merge(one), *two))
    for row in merged:
        same = [other for other in (*one, *two) if (other.name, other.key) == (row.name, row.key)]
        ran = [other for other in same if other.outcome is not Outcome.NOT_TESTED]
        last = max((datetime.fromisoformat(other.date) for other in ran), default=None)
        at_last = {other.outcome for other in ran if datetime.fromisoformat(other.date) == last}
        assert (Outcome.FAILED in at_last) == (row.outcome is Outcome.FAILED)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"rows": 3}', '{"rows": [{"name": "a"}]}'])
def test_damaged_results_are_an_error(project: ProjectSettings, text: str) -> None:
    path = project.state / "checks" / f"{CONTENT.removeprefix('sha256:')}.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)

    [diagnostic] = raised(SmokeError, check_rows.load, project.state, CONTENT).diagnostics
    assert diagnostic.message == f"`{path}` has no valid results of checks"
    assert diagnostic.hint == "remove it, then run `bake smoke` again"


def test_versions_are_verified_again_when_their_program_or_the_content_changes(
    project: ProjectSettings, tested: Image, tmp_path: Path
) -> None:
    memory, built = VerifiedImages(project.state), replace(BUILT, image=tested)
    assert not memory.has(built)
    memory.add(built)
    assert memory.has(built)
    assert memory.has(replace(built, image=replace(tested, name="other", summary="x")))
    assert not memory.has(replace(built, content=ContentId("sha256:" + "1" * 64)))
    assert known_checks(project, tested, built.content).blockers == ("it was never smoke-tested",)
    (tmp_path / "a.py").write_text("def installed(): return '2.0'\n")
    assert not memory.has(built)


@pytest.mark.parametrize("tail", ["", 'run: ["true"]\n'], ids=["no step", "a step of the user"])
def test_packages_that_are_laid_out_do_not_change_the_versions_of_components(
    project: ProjectSettings, tree: Tree, tail: str
) -> None:
    def image(version: str) -> BuiltImage:
        line = f"mine=={version} --hash=sha256:{version * 64}  # mine-{version}-py3-none-any.whl 5\n"
        tree.write("images/own.lock", line)
        tree.image(f"{IMAGE}requirements: own.lock\n{tail}")
        planned = tree.planned_image()
        assert isinstance(planned.base, BootstrappedBase)
        base = replace(planned.base, debs=(Deb("libc6", "1", "0" * 64, 1, "pool/libc6.deb"),))
        return replace(BUILT, image=replace(planned, base=base), content=ContentId(f"sha256:{version * 64}"))

    memory = VerifiedImages(project.state)
    memory.add(image("1"))
    assert memory.has(image("1"))
    # A step of the user can change anything
    assert memory.has(image("2")) == (not tail)

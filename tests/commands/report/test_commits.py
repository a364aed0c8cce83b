"""Comparison of the images of the page with a commit, in a repository of git."""

import pytest

from bakehouse.builder.verify import Outcome
from bakehouse.cluster.smoke_report import CheckResult
from bakehouse.commands.report.commits import ChangedImage, Comparison
from bakehouse.commands.report.fleet import read_fleet
from bakehouse.errors import UsageError
from bakehouse.ledger.releases import ReleasedCheck
from bakehouse.plan.diff import PackageChanges
from bakehouse.util.value_change import ValueChange
from tests.commands.report.sites import Site, build
from tests.support.git_repository import commit
from tests.support.trees import COMPONENTS, IMAGE


def since(site: Site, revision: str, *patterns: str) -> Comparison:
    comparison = read_fleet(site.workspace, patterns, revision).since
    assert comparison
    return comparison


def changed(site: Site, revision: str) -> ChangedImage:
    [change] = since(site, revision, "small").changed
    return change


def lock(site: Site, version: str, size: int) -> None:
    site.tree.write("images/own.lock", f"mine=={version} --hash=sha256:{'a' * 64}  # mine.whl {size}\n")
    site.tree.image(f"{IMAGE}requirements: own.lock\n")


def test_an_image_that_is_equal_is_counted(site: Site) -> None:
    revision = commit(site.tree.root, {})

    assert since(site, revision) == Comparison(revision, revision, (), (), (), 1)


def test_components_and_recipes_that_differ(site: Site) -> None:
    revision = commit(site.tree.root, {})
    site.tree.image(IMAGE.replace(', toolkit: "*"', "") + "environment: {A: x}\n")

    change = changed(site, revision)
    assert change.components == (ValueChange("toolkit", "5.1", None),)
    assert change.recipe == ("+ environment A x",)


def test_packages_that_differ_with_their_bytes(site: Site) -> None:
    lock(site, "1.0", 10)
    revision = commit(site.tree.root, {})
    lock(site, "2.0", 30)

    assert changed(site, revision).packages == (
        PackageChanges("Python", (ValueChange("mine", "1.0", "2.0"),), 10, 30),
    )


def test_what_a_component_provides_differs_where_its_version_is_the_same(site: Site) -> None:
    revision = commit(site.tree.root, {})
    site.tree.component("debian", COMPONENTS["debian"].replace('glibc: "2.36"', 'glibc: "2.37"'))

    change = changed(site, revision)
    assert (change.components, change.recipe) == ((), ("debian provides glibc 2.36 → 2.37",))


def test_added_and_removed_images(site: Site) -> None:
    site.tree.image(IMAGE, "old")
    revision = commit(site.tree.root, {})
    (site.tree.root / "images/old.yaml").unlink()
    site.tree.image(IMAGE, "new")

    comparison = since(site, revision)
    assert (comparison.added, comparison.removed, comparison.same) == (("new",), ("old",), 1)
    assert since(site, revision, "new").removed == ()


def test_tests_and_sizes_are_those_of_each_build_key(site: Site) -> None:
    site.render()
    passed = ReleasedCheck("train_success", "passed")
    site.publish({"checks": (passed, ReleasedCheck("sshd", "passed")), "bytes": 500})
    ledger = (site.tree.root / "images/small/releases.json").read_text()
    revision = commit(site.tree.root, {})
    lock(site, "1.0", 10)
    site.tree.write("images/small/releases.json", ledger)
    build(site, CheckResult("train_success", Outcome.FAILED, 1.0))

    change = changed(site, revision)
    assert change.tests == (
        ValueChange("train_success", "passed", "failed"),
        ValueChange("sshd", "passed", None),
    )
    assert (change.bytes_before, change.bytes_after) == (500, None)


def test_results_that_one_side_lacks_are_not_recorded(site: Site) -> None:
    site.render()
    revision = commit(site.tree.root, {})
    lock(site, "1.0", 10)

    change = changed(site, revision)
    assert change.tests is None
    assert (change.bytes_before, change.bytes_after) == (None, None)


def test_an_image_with_another_key_only_was_changed(site: Site) -> None:
    site.render()
    lock_file = site.tree.root / "images/small/lock.json"
    text = lock_file.read_text().replace(site.planned.key, "0" * 64)
    revision = commit(site.tree.root, {"images/small/lock.json": text})

    assert changed(site, revision) == ChangedImage("small", tests=None)


def test_an_image_that_the_commit_cannot_resolve(site: Site) -> None:
    site.tree.image(IMAGE.replace('python: "3.11"', 'python: "9"'))
    revision = commit(site.tree.root, {})
    site.tree.image(IMAGE)

    assert changed(site, revision).problem == "no versions satisfied it at the commit"


def test_an_image_whose_lock_at_the_commit_cannot_be_read_is_not_known(site: Site) -> None:
    site.tree.image(f"{IMAGE}requirements: own.txt\n")
    revision = commit(site.tree.root, {"images/own.txt": "mine\n", "images/own.txt.lock": "# format 9\n"})
    site.tree.image(IMAGE)

    reason = f"`own.txt.lock` was written by a newer Bakehouse at {revision}"
    assert changed(site, revision) == ChangedImage("small", f"not known, because {reason}")


def test_an_image_that_cannot_be_planned_now(site: Site) -> None:
    revision = commit(site.tree.root, {})
    site.tree.image(IMAGE.replace('python: "3.11"', 'python: "9"'))
    site.tree.image(IMAGE, "other")

    [change] = since(site, revision).changed
    assert change == ChangedImage("small", "it cannot be planned now")


def test_an_unknown_commit_is_a_mistake(site: Site) -> None:
    commit(site.tree.root, {})

    with pytest.raises(UsageError, match="commit `gone` does not exist"):
        since(site, "gone")

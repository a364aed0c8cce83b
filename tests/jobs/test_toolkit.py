"""Rules of the SageMaker Training Toolkit by release."""

import pytest

from bakehouse.jobs.toolkit import Releases, toolkit_rules

FIRST = {
    *("ml.g4dn.8xlarge", "ml.g4dn.12xlarge", "ml.g5.48xlarge", "ml.p3dn.24xlarge", "ml.p4d.24xlarge"),
}


@pytest.mark.parametrize(
    ("version", "provider", "rdma"),
    [
        ("4.2.6", set(), set()),
        ("4.2.7", FIRST, FIRST),
        ("4.3.0", FIRST | {"ml.trn1.32xlarge"}, FIRST | {"ml.trn1.32xlarge"}),
        (
            "4.4.1",
            FIRST | {"ml.trn1.32xlarge", "ml.p4de.24xlarge"},
            {"ml.p4d.24xlarge", "ml.p4de.24xlarge", "ml.trn1.32xlarge"},
        ),
        (
            "5.1.1",
            FIRST | {"ml.trn1.32xlarge", "ml.p4de.24xlarge", "ml.p5.48xlarge", "ml.p6e-gb200.36xlarge"},
            {"ml.p4d.24xlarge", "ml.p4de.24xlarge", "ml.trn1.32xlarge", "ml.p6e-gb200.36xlarge"},
        ),
        ("5.1.4", {*toolkit_rules().provider}, {*toolkit_rules().rdma} - FIRST | {"ml.p4d.24xlarge"}),
    ],
)
def test_the_types_of_a_release(version: str, provider: set[str], rdma: set[str]) -> None:
    """The lists of the toolkit's `__init__.py`."""
    facts = toolkit_rules()
    assert {name for name, releases in facts.provider.items() if releases.contains(version)} == provider
    assert {name for name, releases in facts.rdma.items() if releases.contains(version)} == rdma


@pytest.mark.parametrize(
    ("version", "is_shell"),
    [("3.9.2", False), ("4.0.0", True), ("5.1.2", True), ("5.1.3", False), ("", None)],
)
def test_a_shell_starts_the_script(version: str, is_shell: bool | None) -> None:
    assert toolkit_rules().shell.contains(version) is is_shell


def test_smddp_became_optional() -> None:
    rule = toolkit_rules().without_smddp
    assert [rule.contains(version) for version in ("4.7.1", "4.7.2", "")] == [False, True, None]


def test_an_unknown_release_has_what_all_have() -> None:
    assert Releases("4.2.7").contains("") is True
    assert Releases("4.2.7", "5.0.0").contains("") is None
    assert Releases("4.8.1").contains("") is None
    assert Releases("4.8.1").contains("newest") is None

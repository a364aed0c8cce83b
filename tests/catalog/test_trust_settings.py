"""Settings of signing and of the policy."""

from typing import get_args

import pytest

from bakehouse.catalog import project
from bakehouse.catalog.trust_settings import CONTENTS, Policy, ScanRules
from bakehouse.errors import RecipeError
from bakehouse.trust.findings import ContentKind
from tests.support.errors import error_text
from tests.support.trees import Tree

ARN = "arn:aws:kms:eu-west-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"


def settings(tree: Tree, text: str, **environment: str) -> project.ProjectSettings:
    tree.write("pyproject.toml", f"[tool.bakehouse]\n{text}")
    return project.find(tree.root, environment)


def mistakes(tree: Tree, text: str) -> str:
    with pytest.raises(RecipeError) as caught:
        settings(tree, text)
    return error_text(caught.value)


def test_a_path_starts_at_the_project(empty: Tree) -> None:
    assert settings(empty, 'signing_key = "keys/signing.pem"').signing_key == str(
        empty.root / "keys/signing.pem"
    )


def test_a_key_of_kms_is_named_by_its_arn(empty: Tree) -> None:
    assert settings(empty, f'signing_key = "awskms:///{ARN}"').key_address == f"awskms:///{ARN}"


def test_the_environment_selects_another_key_or_none(empty: Tree) -> None:
    text = 'signing_key = "signing.pem"'

    assert settings(empty, text, BAKEHOUSE_SIGNING_KEY="/run/key.pem").signing_key == "/run/key.pem"
    assert settings(empty, text, BAKEHOUSE_SIGNING_KEY="").signing_key == ""
    assert settings(empty, "").signing_key == ""


@pytest.mark.parametrize("key", ["awskms://alias/signing", f"awskms:///{ARN}/..", "awskms:signing"])
def test_an_invalid_key_of_kms(empty: Tree, key: str) -> None:
    assert f"`signing_key` in [tool.bakehouse] is invalid: `{key}`" in mistakes(
        empty, f'signing_key = "{key}"\n'
    )


def test_a_policy_names_keys_and_requirements(empty: Tree) -> None:
    empty.write("keys/a.pub", "")
    empty.write("keys/b.pub", "")
    text = '[tool.bakehouse.policy]\nkeys = ["keys/a.pub", "keys/b.pub"]\nrequire = ["tests"]\nrebuilds = 1\n'

    keys = (empty.root / "keys/a.pub", empty.root / "keys/b.pub")
    assert settings(empty, text).policy == Policy(keys, ("tests",), 1)
    assert settings(empty, "").policy is None


MISTAKEN = """\
[tool.bakehouse]
[tool.bakehouse.policy]
keys = ["gone.pub"]
require = ["test", "scans"]
rebuilds = 2
signers = 1
"""
MISTAKES = """\
error: `keys` in [tool.bakehouse.policy] names `gone.pub`, which is not a file
  --> pyproject.toml:3:1
   |
 3 | keys = ["gone.pub"]
   | ^^^^

error: unknown requirement `test` in [tool.bakehouse.policy]
  --> pyproject.toml:4:1
   |
 4 | require = ["test", "scans"]
   | ^^^^^^^

hint: did you mean `tests`?

error: unknown requirement `scans` in [tool.bakehouse.policy]
  --> pyproject.toml:4:1
   |
 4 | require = ["test", "scans"]
   | ^^^^^^^

hint: did you mean `scan`?

error: `rebuilds` in [tool.bakehouse.policy] must be a number of keys, at most 1 as in `keys`
  --> pyproject.toml:5:1
   |
 5 | rebuilds = 2
   | ^^^^^^^^

error: unknown key `signers` in [tool.bakehouse.policy]
  --> pyproject.toml:6:1
   |
 6 | signers = 1
   | ^^^^^^^

hint: use one of `keys`, `rebuilds`, `require`, `scan`
"""


def test_mistakes_in_a_policy(empty: Tree) -> None:
    empty.write("pyproject.toml", MISTAKEN)
    with pytest.raises(RecipeError) as caught:
        project.find(empty.root, {})

    assert error_text(caught.value) == MISTAKES


def test_a_policy_without_keys(empty: Tree) -> None:
    text = mistakes(empty, '[tool.bakehouse.policy]\nrequire = ["tests"]\n')

    assert text.startswith("error: [tool.bakehouse.policy] has no `keys`\n  --> pyproject.toml:2:17\n")
    assert text.endswith('hint: name the public keys: `keys = ["signing.pub"]`\n')


SCANNED = """\
[tool.bakehouse.policy]
keys = ["a.pub"]
require = ["scan"]
"""


def test_rules_for_scans(empty: Tree) -> None:
    empty.write("a.pub", "")
    rules = 'max_severity = "MEDIUM"\nmax_age = 30\naccept_not_scanned = ["files", "run"]\n'
    read = settings(empty, f"{SCANNED}[tool.bakehouse.policy.scan]\n{rules}").policy
    default = settings(empty, SCANNED).policy

    assert read
    assert default
    assert read.scan == ScanRules("MEDIUM", 30, ("files", "run"))
    assert default.scan == ScanRules("", 7, ())


def test_the_contents_that_a_policy_accepts_are_those_of_reports() -> None:
    assert get_args(ContentKind) == CONTENTS


def test_mistakes_in_rules_for_scans(empty: Tree) -> None:
    empty.write("a.pub", "")
    rules = 'max_severity = "medium"\nmax_age = 0\naccept_not_scanned = ["python"]\nmax = 1\n'
    text = mistakes(empty, f"{SCANNED}[tool.bakehouse.policy.scan]\n{rules}")

    assert [line for line in text.splitlines() if line.startswith(("error", "hint"))] == [
        "error: `max_severity` in [tool.bakehouse.policy.scan] is invalid: `medium`",
        "hint: use `CRITICAL`, `HIGH`, `MEDIUM`, `LOW`",
        "error: `max_age` in [tool.bakehouse.policy.scan] must be a number of days from 1 to 365",
        "error: `accept_not_scanned` in [tool.bakehouse.policy.scan] has an invalid item: `python`",
        "hint: use `Debian`, `Python`, `base`, `files`, `run`",
        "error: unknown key `max` in [tool.bakehouse.policy.scan]",
        "hint: use one of `accept_not_scanned`, `max_age`, `max_severity`",
    ]


def test_rules_for_scans_that_nothing_requires(empty: Tree) -> None:
    empty.write("a.pub", "")
    table = '[tool.bakehouse.policy]\nkeys = ["a.pub"]\n[tool.bakehouse.policy.scan]\nmax_age = 30\n'
    text = mistakes(empty, table)

    assert text.startswith(
        "error: [tool.bakehouse.policy.scan] has no effect, because `require` does not contain `scan`\n"
        "  --> pyproject.toml:4:24\n"
    )
    assert text.endswith("hint: add `scan` to `require`\n")

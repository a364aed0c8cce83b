"""Settings of signing and of the policy."""

import pytest

from bakehouse.catalog import project
from bakehouse.catalog.trust_settings import Policy
from bakehouse.errors import RecipeError
from tests.support.data import text_of
from tests.support.errors import refusal
from tests.support.trees import Tree

ARN = "arn:aws:kms:eu-west-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"


def settings(tree: Tree, text: str, **environment: str) -> project.ProjectSettings:
    tree.write("pyproject.toml", f"[tool.bakehouse]\n{text}")
    return project.find(tree.root, environment)


def mistakes(tree: Tree, text: str) -> str:
    return refusal(RecipeError, settings, tree, text)


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
require = ["test", "sboms"]
rebuilds = 2
signers = 1
"""
MISTAKES = text_of(__file__, "mistakes")


def test_mistakes_in_a_policy(empty: Tree) -> None:
    empty.write("pyproject.toml", MISTAKEN)
    assert refusal(RecipeError, project.find, empty.root, {}) == MISTAKES


def test_a_policy_without_keys(empty: Tree) -> None:
    text = mistakes(empty, '[tool.bakehouse.policy]\nrequire = ["tests"]\n')

    assert text.startswith("error: [tool.bakehouse.policy] has no `keys`\n  --> pyproject.toml:2:17\n")
    assert text.endswith('hint: name the public keys: `keys = ["signing.pub"]`\n')

"""The tables of `[tool.bakehouse.registries]`, and each mistake in them at its place."""

import json
import re

import pytest

from bakehouse.catalog import project
from bakehouse.catalog.project import HOME
from bakehouse.catalog.registry_settings import CREATE, KEYS, Creation, RegistrySettings
from bakehouse.errors import RecipeError
from tests.support.data import text_of
from tests.support.errors import raised
from tests.support.trees import Tree

TEAM = text_of(__file__, "team")


def read(tree: Tree, text: str) -> dict[str, RegistrySettings]:
    tree.write("pyproject.toml", text)
    return dict(project.find(tree.root, {}).registries)


def test_a_registry_of_several_regions_and_another_one(empty: Tree) -> None:
    assert read(empty, TEAM) == {
        "team": RegistrySettings(
            name="team",
            account="123456789012",
            regions=("eu-west-1", "us-east-1"),
            prefix="team/images",
            role="arn:aws:iam::123456789012:role/Pusher",
            profile="ci",
            fips=True,
            scan="HIGH",
            create=Creation(
                scan_on_push=True,
                encryption="arn:aws:kms:eu-west-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab",
                tags={"team": "ml"},
                untagged_days=14,
                pull_accounts=("210987654321",),
                pull_organization="o-a1b2c3d4e5",
            ),
        ),
        "own": RegistrySettings(name="own", host="registry.example.com:5000"),
    }


def test_the_account_is_that_of_the_role(empty: Tree) -> None:
    table = 'role = "arn:aws-cn:iam::210987654321:role/a/b"\nregions = ["cn-north-1"]\n'

    assert read(empty, f"[tool.bakehouse.registries.team]\n{table}")["team"].account == "210987654321"


@pytest.mark.parametrize(
    ("lines", "position", "message", "hint"),
    [
        ("regoins = []", (4, 1), "unknown key `regoins` in [{}]", "did you mean `regions`?"),
        (
            'role = "Pusher"',
            (4, 1),
            "`role` in [{}] is invalid: `Pusher`",
            "such as `arn:aws:iam::123456789012:role/Pusher`",
        ),
        (
            'host = "registry.example.com"',
            (2, 1),
            "`account` in [{}] applies to Amazon ECR only, but `host` names another registry",
            "set `account` and `regions` for a registry in Amazon ECR",
        ),
        (
            '  prefix = "Team"',
            (4, 3),
            "`Team` is not a valid repository name",
            "registries accept 2 to 256 characters: lower-case letters and digits, "
            "joined by `.`, `_`, `-` or `/`",
        ),
        (
            'scan = "bad"',
            (4, 1),
            "`scan` in [{}] is invalid: `bad`",
            "one of CRITICAL, HIGH, MEDIUM, LOW, INFORMATIONAL, UNDEFINED",
        ),
        ("fips = 1", (4, 1), "`fips` in [{}] must be true or false", ""),
        ("create = 1", (4, 1), "`create` in [{}] must be a table", ""),
        ("profile = 1", (4, 1), "`profile` in [{}] must be a string", ""),
        (
            "create = {pull_accounts = ['12']}",
            (4, 1),
            "`pull_accounts` in [{}.create] has an invalid item: `12`",
            "12 digits",
        ),
        (
            "[tool.bakehouse.registries.team.create]\nencryption = 'mine'",
            (5, 1),
            "`encryption` in [{}.create] is invalid: `mine`",
            "`AES256`, `KMS`, or the ARN of a key",
        ),
        (
            "[tool.bakehouse.registries.team.create]\nuntagged_days = 0",
            (5, 1),
            "`untagged_days` in [{}.create] must be a whole number above 0",
            "",
        ),
        (
            "[tool.bakehouse.registries.team.create]\nlifecycle = 'none.json'",
            (5, 1),
            "cannot read `none.json`: no such file or directory",
            "",
        ),
    ],
)
def test_a_mistake_is_reported_with_its_location(
    lines: str, position: tuple[int, int], message: str, hint: str, empty: Tree
) -> None:
    start = '[tool.bakehouse.registries.team]\naccount = "123456789012"\nregions = ["eu-west-1"]\n'
    diagnostic = raised(RecipeError, read, empty, f"{start}{lines}\n").diagnostics[0]
    assert (diagnostic.message, diagnostic.hint) == (message.format("tool.bakehouse.registries.team"), hint)
    assert diagnostic.location
    assert (diagnostic.location.line, diagnostic.location.column) == position


def test_a_table_that_names_no_registry(empty: Tree) -> None:
    error = raised(RecipeError, read, empty, '[tool.bakehouse.registries.team]\nprefix = "team"\n')

    [diagnostic] = error.diagnostics
    assert diagnostic.message == "[tool.bakehouse.registries.team] needs `account`, `role` or `host`"
    assert diagnostic.location
    assert (diagnostic.location.line, diagnostic.location.column) == (1, 28)


@pytest.mark.parametrize("name", ["local", "ecr", "Team", "a.b"])
def test_names_that_mean_something_else(name: str, empty: Tree) -> None:
    with pytest.raises(RecipeError) as caught:
        read(empty, f'[tool.bakehouse.registries."{name}"]\nhost = "registry.example.com"\n')

    assert caught.value.diagnostics[0].message == f"`{name}` is not a registry name"


def test_a_lifecycle_policy_may_expire_untagged_images_alone(empty: Tree) -> None:
    rule = {"rulePriority": 1, "action": {"type": "expire"}}
    days = {"countType": "sinceImagePushed", "countUnit": "days", "countNumber": 14}
    table = (
        '[tool.bakehouse.registries.team]\naccount = "123456789012"\nregions = ["eu-west-1"]\n'
        '[tool.bakehouse.registries.team.create]\nlifecycle = "policy.json"\n'
    )
    fine = {"rules": [{**rule, "selection": {**days, "tagStatus": "untagged"}}]}
    empty.write("policy.json", json.dumps(fine))
    assert read(empty, table)["team"].create.lifecycle == empty.root / "policy.json"

    empty.write("policy.json", json.dumps({"rules": [{**rule, "selection": {**days, "tagStatus": "any"}}]}))
    assert raised(RecipeError, read, empty, table).diagnostics[0].message == (
        "`policy.json` has a rule for any images, which would expire released images"
    )


def test_the_settings_in_the_docs_are_read(empty: Tree) -> None:
    text = (HOME / "docs/how-to/use-ecr.md").read_text()
    _, block = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    registries = read(empty, block)

    assert registries["team"].regions == ("eu-west-1", "us-east-1")
    assert registries["own"].host == "registry.example.com:5000"
    documented = set(re.findall(r"(?m)^(\w+) = ", block))
    assert documented == {*KEYS, *CREATE} - {"create", "lifecycle"}

"""Generated pipelines: their files, their schemas, zizmor, and the order and conditions of their commands.

`bake` is a stub here, which records how it is called. tests/integration/test_pipelines.py runs the real one.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis
import jsonschema
import pytest
import yaml
from hypothesis import strategies as st

from bakehouse.catalog.ci_settings import CiSettings, read_ci
from bakehouse.catalog.project import HOME
from bakehouse.cli import main
from bakehouse.commands.ci import render
from bakehouse.commands.ci.pipeline import Pipeline
from bakehouse.errors import Problems, UsageError
from bakehouse.plan import workspace
from bakehouse.util.toml_table import TomlTable
from tests.support import own_recipes, pipelines
from tests.support.data import text_of
from tests.support.errors import raised
from tests.support.git_repository import commit, git
from tests.support.pipelines import ACTIONS, CodeBuild, CommandError, GitHub, GitLab, Job, Machines
from tests.support.requirements_locks import locked_heading
from tests.support.trees import Tree


def allows(policy: Mapping[str, Any], action: str, resource: str, context: Mapping[str, str]) -> bool:
    """Return whether a policy allows an action on a resource; an empty resource is that of a trust policy."""
    effects = {
        statement["Effect"]
        for statement in policy["Statement"]
        if _is_about(statement, action, resource)
        and all(
            _holds(operator, context.get(key), expected)
            for operator, keys in statement.get("Condition", {}).items()
            for key, expected in keys.items()
        )
    }
    return effects == {"Allow"}


def _is_about(statement: Mapping[str, Any], action: str, resource: str) -> bool:
    unknown = statement.keys() - {"Sid", "Effect", "Action", "Resource", "Condition", "Principal"}
    assert not unknown, f"the evaluator does not know {unknown}"
    places = _texts(statement.get("Resource", ""))
    return any(_matches(pattern, action, re.IGNORECASE) for pattern in _texts(statement["Action"])) and any(
        _matches(pattern, resource) for pattern in places
    )


def _holds(operator: str, value: str | None, expected: object) -> bool:
    match operator:
        case "StringEquals":
            return value is not None and value in _texts(expected)
        case "StringLike":
            return value is not None and any(_matches(pattern, value) for pattern in _texts(expected))
        case "Null":
            return (value is None) == (expected == "true")
        case "ForAllValues:StringEquals":
            return value is None or value in _texts(expected)
    message = f"the evaluator does not know {operator}"
    raise AssertionError(message)


def _texts(value: object) -> list[str]:
    return [value] if isinstance(value, str) else [*map(str, value)] if isinstance(value, list) else []


def _matches(pattern: str, text: str, flags: int = 0) -> bool:
    """Compare a text with a pattern in which `*` is any text, also with slashes, and `?` any character."""
    words = {"*": ".*", "?": "."}
    parts = (words.get(part) or re.escape(part) for part in re.split("([*?])", pattern))
    return re.fullmatch("".join(parts), text, flags | re.DOTALL) is not None


BUILDSPEC = json.loads(Path(__file__).with_name("buildspec.schema.json").read_text())
WHEEL = f"https://example.com/bakehouse-1.0-py3-none-any.whl#sha256={'0' * 64}"
REQUIREMENT = f'[tool.bakehouse.ci]\nrequirement = "{WHEEL}"\n'
PUBLISHING = """\
registry = "team"
ledger = "s3://our-ledger/releases"

[tool.bakehouse.registries.team]
account = "123456789012"
regions = ["eu-west-1", "us-east-1"]
prefix = "team"
"""
CI = f"""
[tool.bakehouse.ci]
repository = "example/tiny"
requirement = "{WHEEL}"
"""
EVERYTHING = f"""{CI}
images = ["tiny", "mpi-cpu", "pytorch-2.10-cu128-py312-efa", "pytorch-1.13-cu117-py39-extended"]
test = "echo 'a: test' \\"#\\""
shards = 2
runner = "big"
branch = "release/1"
role = "arn:aws:iam::210987654321:role/team/publisher"
create = true
code_scanning = true
"""
GPU = f"""{PUBLISHING}{CI}
images = ["tiny", "pytorch-2.10-cu128-py312-efa", "pytorch-1.13-cu117-py39-extended"]
shards = 1

[tool.bakehouse.ci.gpu]
"""
SAGEMAKER = f"""{GPU}
instance_type = "ml.g6.12xlarge"
instance_count = 2
output = "s3://our-smoke-tests/ci"
"""
RUNNER = f"""{GPU}
runner = "gpu-box"
gpus = 8
"""
PROJECTS = {
    "local": REQUIREMENT,
    "publishing": PUBLISHING + CI,
    "everything": PUBLISHING + EVERYTHING,
    "gpu": PUBLISHING + CI + 'images = ["pytorch-2.10-cu128-py312-efa"]\n',
    "sagemaker": SAGEMAKER,
    "runner": RUNNER,
}
SECRETS = f"""{SAGEMAKER}
[tool.bakehouse.ci.secrets]
pull-request-check = ["INDEX_TOKEN"]
pull-request-build = ["INDEX_TOKEN"]
plan = ["INDEX_TOKEN"]
build = ["INDEX_TOKEN", "HF_TOKEN"]
gpu = ["GPU_TOKEN"]
promote = ["PROMOTE_TOKEN"]
upgrade = ["INDEX_TOKEN"]

[tool.bakehouse.ci.variables]
pull-request-check = ["INDEX"]
build = ["INDEX"]
promote = ["CHANNEL"]
upgrade = ["INDEX"]
"""
PROJECTS["secrets"] = SECRETS
SYSTEMS = ("github", "gitlab", "codebuild")
each_system_before_a_release = pytest.mark.parametrize(
    "system",
    ["gitlab", *(pytest.param(system, marks=pytest.mark.release) for system in ("github", "codebuild"))],
)
COMPONENT = """\
summary: A tool of this project
upstream: {pypi: [tool]}
releases:
  - version: "1.0"
    source: https://example.org/tool
"""
BAKE = text_of(__file__, "bake")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    tree = Tree(tmp_path / "project")
    tree.write("mine/images/tiny.yaml", 'summary: Tiny\nbase: {debian: "12"}\n')
    tree.write("mine/components/tool/component.yaml", COMPONENT)
    monkeypatch.chdir(tree.root)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(workspace, "open_workspace", own_recipes.opened)
    return tree


def configure(project: Tree, settings: str) -> None:
    project.write("pyproject.toml", f'[tool.bakehouse]\nrecipes = ["mine"]\n{settings}')


def contents(project: Tree) -> dict[str, bytes]:
    files = (path for path in project.root.rglob("*") if path.is_file() and ".git" not in path.parts)
    return {str(path.relative_to(project.root)): path.read_bytes() for path in files}


GENERATED: dict[str, dict[str, bytes]] = {}


def generate(project: Tree, settings: str, system: str) -> list[Path]:
    """Write a pipeline and return its YAML files; an equal project without pipelines gets the same files."""
    configure(project, settings)
    before = contents(project)
    key = f"{system} {before}"
    for path, content in GENERATED.get(key, {}).items():
        project.write(path, content)
    if key not in GENERATED:
        assert main.run(("ci", system)) == 0
        if not any(path.startswith(".") for path in before):
            GENERATED[key] = {path: text for path, text in contents(project).items() if path not in before}
    return sorted((project.root / f".{system}").rglob("*.yml"))


def generate_all(project: Tree, system: str) -> list[Path]:
    """Write the pipelines of all projects, each below a directory with its name, and return the files."""
    files: list[Path] = []
    for name, settings in PROJECTS.items():
        directory = project.root.parent / "generated" / name
        for file in generate(project, settings, system):
            copy = directory / file.relative_to(project.root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            files.append(file.rename(copy))
    return files


def test_workflows_are_valid_and_zizmor_finds_nothing(project: Tree) -> None:
    files = generate_all(project, "github")

    check_schema("vendor.github-workflows", files)
    # The strictest persona also reports what is only a matter of taste.
    command = [
        str(Path(sys.executable).with_name("zizmor")),
        "--offline",
        "--persona=auditor",
        "--no-progress",
    ]
    result = subprocess.run([*command, *map(str, files)], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout
    for file in files:
        workflow = yaml.safe_load(file.read_text())
        assert workflow["permissions"] == {}
        assert all("permissions" in job for job in workflow["jobs"].values())
        # Only runs that publish nothing are cut.
        cancels = workflow["concurrency"]["cancel-in-progress"]
        assert cancels == (file.name == "bakehouse-pull-request.yml")


def test_pipelines_of_gitlab_are_valid(project: Tree) -> None:
    check_schema("vendor.gitlab-ci", generate_all(project, "gitlab"))


@pytest.mark.parametrize("name", [name for name in PROJECTS if name != "runner"])
def test_buildspecs_are_valid(project: Tree, name: str) -> None:
    settings = PROJECTS[name]
    for file in generate(project, settings, "codebuild"):
        jsonschema.validate(yaml.safe_load(file.read_text()), BUILDSPEC)


def check_schema(name: str, files: list[Path]) -> None:
    program = str(Path(sys.executable).with_name("check-jsonschema"))
    command = [program, "--builtin-schema", name, *map(str, files)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


def test_every_action_of_the_table_is_used_at_its_commit(project: Tree) -> None:
    text = "".join(file.read_text() for file in generate(project, PROJECTS["everything"], "github"))
    text += "".join(file.read_text() for file in generate(project, PROJECTS["publishing"], "github"))

    used = {line.split("uses: ")[1] for line in text.splitlines() if "uses: " in line}

    assert used == {f"{name}@{pin['commit']} # {pin['version']}" for name, pin in ACTIONS.items()}


def test_bakehouse_has_its_own_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HOME)

    assert main.run(("ci", "github", "--check")) == 0


def test_a_missing_or_stale_file_fails_the_check(project: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = generate(project, REQUIREMENT, "github")
    first.unlink()
    text = second.read_text().replace("contents: write # to push the branch", "contents: write", 1)
    second.write_text(text)
    capsys.readouterr()

    assert main.run(("ci", "github", "--check")) == 4
    assert capsys.readouterr().err == (
        "nothing publishes: `registry` is not a table of [tool.bakehouse.registries] with `account`\n"
        "error: `.github/workflows/bakehouse-pull-request.yml` is missing\n"
        "  --> .github/workflows/bakehouse-pull-request.yml:1:1\n"
        "\nhint: run `bake ci github`, then commit the files\n"
        "\n"
        "error: `.github/workflows/bakehouse-upgrade.yml` is out of date\n"
        "  --> .github/workflows/bakehouse-upgrade.yml:1:1\n"
        "    | --- .github/workflows/bakehouse-upgrade.yml\n"
        "    | +++ .github/workflows/bakehouse-upgrade.yml\n"
        "    | @@ -78,3 +78,3 @@\n"
        "    |      permissions:\n"
        "    | -      contents: write\n"
        "    | +      contents: write # to push the branch\n"
        "    |        pull-requests: write # to open the pull request\n"
        "\nhint: run `bake ci github`, then commit the files\n"
        "\n2 errors\n"
    )


@pytest.mark.parametrize("system", SYSTEMS)
def test_files_that_published_are_removed_with_the_registry(
    project: Tree, capsys: pytest.CaptureFixture[str], system: str
) -> None:
    own = project.write(f".{system}/bakehouse-own.yml", "# Not generated\n")
    publishing = {*generate(project, PROJECTS["publishing"], system)}
    configure(project, REQUIREMENT)
    capsys.readouterr()

    assert main.run(("ci", system, "--check")) == 4
    assert "bakehouse/publish-trust.json` was removed from the pipeline\n" in capsys.readouterr().err
    left = {*generate(project, REQUIREMENT, system)}
    assert own in left < publishing
    assert [*(project.root / f".{system}/bakehouse").iterdir()] == []
    assert main.run(("ci", system, "--check")) == 0


@pytest.mark.parametrize(
    ("system", "settings", "message"),
    [
        ("githib", "", "unknown CI system `githib`\n\nhint: did you mean `github`?\n"),
        ("jenkins", "", "unknown CI system `jenkins`\n\nhint: use one of `codebuild`, `github`, `gitlab`\n"),
        (
            "github",
            PUBLISHING.replace('ledger = "s3://our-ledger/releases"\n', "") + REQUIREMENT,
            "a pipeline that publishes needs a ledger in S3, because its machines keep no files\n\n"
            'hint: set `ledger` in [tool.bakehouse], such as `ledger = "s3://our-bucket/releases"`\n',
        ),
        (
            "github",
            PUBLISHING + REQUIREMENT,
            "the repository that may publish images is unknown\n\n"
            'hint: set `repository = "owner/name"` in [tool.bakehouse.ci]\n',
        ),
    ],
)
def test_mistakes_are_reported(
    project: Tree, capsys: pytest.CaptureFixture[str], system: str, settings: str, message: str
) -> None:
    configure(project, settings)

    assert main.run(("ci", system)) == 64
    assert capsys.readouterr().err == f"error: {message}"


@pytest.mark.parametrize("key", ["requirement", "test"])
@pytest.mark.parametrize(
    ("system", "expression"), [("GitHub", "${{ github.head_ref }}"), ("GitLab", "$[[ inputs.x ]]")]
)
def test_an_expression_of_a_ci_system_is_a_mistake(
    project: Tree, capsys: pytest.CaptureFixture[str], key: str, system: str, expression: str
) -> None:
    configure(project, f"[tool.bakehouse.ci]\n{key} = '{expression}'\n")

    assert main.run(("ci", "github")) == 2
    assert capsys.readouterr().err == (
        f"error: `{key}` in [tool.bakehouse.ci] contains an expression of {system}: `{expression}`\n"
        f"  --> pyproject.toml:4:1\n   |\n 4 | {key} = '{expression}'\n   | {'^' * len(key)}\n"
        "\nhint: use a variable of the shell, such as `$CI`\n"
    )


MADE = Pipeline(CiSettings(test="make test"), ("1e3",), (), "bake", "", None, (), None, False, {}, False, ())
COMMAND_TEXTS = st.text(st.characters(exclude_categories=["Cc", "Cs"]) | st.sampled_from("${}[]:#'\"\\ "))


@pytest.fixture(scope="module")
def usual() -> dict[str, dict[str, str]]:
    return {system: render.render(system, MADE) for system in SYSTEMS}


@hypothesis.settings(deadline=None, max_examples=30)
@hypothesis.example("\U0001f600 'a: b' \"#\" \\ - {x} [y] & * ! | > % @ `")
@hypothesis.given(COMMAND_TEXTS)
def test_a_command_reaches_each_ci_system_unchanged_or_is_refused(
    usual: dict[str, dict[str, str]], command: str
) -> None:
    table = TomlTable({"ci": {"test": command}}, "tool.bakehouse", Path("none"), Problems())
    ci = read_ci(table)
    if table.problems:
        return

    for system in SYSTEMS:
        for name, text in render.render(system, replace(MADE, settings=ci)).items():
            before, after = (yaml.load(text, yaml.CSafeLoader) for text in (usual[system][name], text))
            assert replaced(before, "make test", ci.test) == after, (system, name)
            assert text.count("${{") == usual[system][name].count("${{")


def test_the_name_of_an_image_stays_a_text() -> None:
    [text] = (text for name, text in render.render("gitlab", MADE).items() if "images" in name)

    assert yaml.safe_load(text)["build"]["variables"]["IMAGES"] == "1e3"


def replaced(value: Any, old: str, new: str) -> Any:
    """Return a document in which one text is another; without a command, the step or item is absent."""
    if isinstance(value, dict):
        return {key: replaced(item, old, new) for key, item in value.items()}
    if isinstance(value, list):
        steps = (old, {"name": "Test", "run": old})
        return [replaced(item, old, new) for item in value if new or item not in steps]
    return new if value == old else value


@pytest.mark.parametrize(("system", "expression"), [("github", "${{ x }}"), ("gitlab", "$[[ x ]]")])
def test_no_text_of_a_pipeline_is_an_expression(system: str, expression: str) -> None:
    """Each field has a reader that refuses it; this holds for the next field, too."""
    made = Pipeline(
        CiSettings(), (), (), "bake", "", None, (), None, False, {}, False, (f"locks/{expression}",)
    )

    error = raised(UsageError, render.render, system, made)

    message = f"`locks/{expression}` contains `{expression[:3]}`, which {system} evaluates as an expression"
    assert error.diagnostics[0].message == message


def test_a_requirement_with_a_password_is_refused_without_repeating_it(
    project: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    requirement = "--index-url https://me:pass@host/simple bakehouse"
    configure(project, f'[tool.bakehouse.ci]\nrequirement = "{requirement}"\n')

    assert main.run(("ci", "github")) == 2
    assert capsys.readouterr().err == (
        "error: `requirement` in [tool.bakehouse.ci] contains a URL with a password, "
        "which the pipeline would repeat\n"
        "  --> pyproject.toml:4:1\n"
        "\n"
        "hint: remove it, and pass PIP_EXTRA_INDEX_URL in [tool.bakehouse.ci.secrets]\n"
    )


SIGNED = (
    PROJECTS["everything"]
    .replace(
        'registry = "team"\n',
        'registry = "team"\nsigning_key = "awskms:///arn:aws:kms:eu-west-1:123456789012:key/release"\n',
    )
    .replace(
        "create = true\n",
        'create = true\nsigning_key = "awskms:///arn:aws:kms:eu-west-1:123456789012:key/build"\n',
    )
)
ECR = "arn:aws:ecr:eu-west-1:123456789012:repository"
LEDGER = "arn:aws:s3:::our-ledger"
KEY = "arn:aws:kms:eu-west-1:123456789012:key"
ADDED = {"s3:if-none-match": "*"}
ALL, BUILD_ONLY, PUBLISH_ONLY, NONE = {"build", "publish"}, {"build"}, {"publish"}, set[str]()


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize(
    ("action", "resource", "context", "roles"),
    [
        ("ecr:PutImage", f"{ECR}/team/candidates/tiny", {}, ALL),
        ("ecr:PutImage", f"{ECR}/team/tiny", {}, PUBLISH_ONLY),
        ("ecr:UploadLayerPart", f"{ECR}/team/tiny", {}, PUBLISH_ONLY),
        ("ecr:BatchGetImage", f"{ECR}/team/tiny", {}, ALL),
        ("ecr:PutImage", f"{ECR}/other/tiny", {}, NONE),
        ("ecr:PutImage", f"{ECR}/teammate/candidates/tiny", {}, NONE),
        ("ecr:BatchDeleteImage", f"{ECR}/team/tiny", {}, NONE),
        ("ecr:BatchDeleteImage", f"{ECR}/team/candidates/tiny", {}, NONE),
        ("ecr:PutImageTagMutability", f"{ECR}/team/tiny", {}, NONE),
        ("ecr:CreateRepository", f"{ECR}/team/tiny", {}, PUBLISH_ONLY),
        ("ecr:SetRepositoryPolicy", f"{ECR}/team/tiny", {}, PUBLISH_ONLY),
        ("s3:PutObject", f"{LEDGER}/releases/tiny/candidates/1.json", ADDED, ALL),
        ("s3:PutObject", f"{LEDGER}/releases/tiny/1.json", ADDED, PUBLISH_ONLY),
        ("s3:PutObject", f"{LEDGER}/releases/tiny/1.json", {}, NONE),
        ("s3:PutObject", f"{LEDGER}/releases/tiny/candidates/1.json", {}, NONE),
        ("s3:PutObject", f"{LEDGER}/other/tiny/candidates/1.json", ADDED, NONE),
        ("s3:DeleteObject", f"{LEDGER}/releases/tiny/1.json", {}, NONE),
        ("s3:GetObject", f"{LEDGER}/releases/tiny/1.json", {}, ALL),
        ("s3:GetObject", f"{LEDGER}/secrets/1.json", {}, NONE),
        ("s3:ListBucket", LEDGER, {"s3:prefix": "releases/tiny/"}, ALL),
        ("s3:ListBucket", LEDGER, {"s3:prefix": ""}, NONE),
        ("kms:Sign", f"{KEY}/release", {}, PUBLISH_ONLY),
        ("kms:Sign", f"{KEY}/build", {}, BUILD_ONLY),
        ("kms:Decrypt", f"{KEY}/release", {}, NONE),
        ("iam:PassRole", "arn:aws:iam::123456789012:role/admin", {}, NONE),
    ],
)
def test_only_the_role_of_promotions_can_release(
    project: Tree, system: str, action: str, resource: str, context: dict[str, str], roles: set[str]
) -> None:
    generate(project, SIGNED, system)

    directory = project.root / f".{system}/bakehouse"
    policies = {
        role: json.loads((directory / f"{role}-permissions.json").read_text())
        for role in ("build", "publish", "pull")
    }
    assert {name for name, policy in policies.items() if allows(policy, action, resource, context)} == roles


GITHUB_TOKEN = "token.actions.githubusercontent.com:"
TOKENS = {
    "github": [
        ("repo:example/tiny:environment:release", "refs/heads/release/1", PUBLISH_ONLY),
        ("repo:example/tiny:environment:release", "refs/heads/other", NONE),
        ("repo:example/tiny:ref:refs/heads/release/1", "refs/heads/release/1", BUILD_ONLY),
        ("repo:example/tiny:ref:refs/heads/other", "refs/heads/other", NONE),
        ("repo:example/tiny:pull_request", "refs/pull/1/merge", {"pull"}),
        ("repo:other/tiny:environment:release", "refs/heads/release/1", NONE),
    ],
    "gitlab": [
        ("project_path:example/tiny:ref_type:branch:ref:release/1:environment:release", "", {*ALL, "pull"}),
        ("project_path:example/tiny:ref_type:branch:ref:release/1:environment:test", "", {"build", "pull"}),
        ("project_path:example/tiny:ref_type:branch:ref:release/1", "", {"build", "pull"}),
        ("project_path:example/tiny:ref_type:branch:ref:release/10", "", {"pull"}),
        ("project_path:example/tiny:ref_type:branch:ref:other:environment:release", "", {"pull"}),
        ("project_path:other/tiny:ref_type:branch:ref:release/1:environment:release", "", NONE),
    ],
}


@pytest.mark.parametrize("environments", [False, True])
@pytest.mark.parametrize(
    ("system", "subject", "ref", "roles"),
    [(system, *token) for system, tokens in TOKENS.items() for token in tokens],
)
def test_roles_are_assumed_by_their_jobs_only(
    project: Tree, system: str, subject: str, ref: str, roles: set[str], environments: bool
) -> None:
    secrets = '[tool.bakehouse.ci.secrets]\nbuild = ["X_TOKEN"]\n' if environments else ""
    generate(project, SIGNED + secrets, system)

    host = {"github": "token.actions.githubusercontent.com", "gitlab": "gitlab.com"}[system]
    context = {f"{host}:aud": "sts.amazonaws.com", f"{host}:sub": subject, f"{host}:ref": ref}
    assumed = {
        role
        for role in ("build", "publish", "pull")
        if allows(
            json.loads((project.root / f".{system}/bakehouse/{role}-trust.json").read_text()),
            "sts:AssumeRoleWithWebIdentity",
            "",
            context,
        )
    }
    assert assumed == roles
    # A job with secrets has an environment, whose tokens are for the branch, too
    subject = "repo:example/tiny:environment:bakehouse-build"
    trust = json.loads((project.root / f".{system}/bakehouse/build-trust.json").read_text())
    for branch in ("release/1", "other"):
        token = {**context, f"{host}:sub": subject, f"{host}:ref": f"refs/heads/{branch}"}
        is_allowed = allows(trust, "sts:AssumeRoleWithWebIdentity", "", token)
        assert is_allowed == (environments and system == "github" and branch == "release/1")


@pytest.mark.parametrize("role", ["build", "publish", "pull", "smoke-job"])
def test_services_assume_roles_for_the_own_account_only(project: Tree, role: str) -> None:
    base = SAGEMAKER.replace('"tiny", ', '"tiny", ')
    generate(project, base, "codebuild")

    trust = json.loads((project.root / f".codebuild/bakehouse/{role}-trust.json").read_text())
    own, other = ({"aws:SourceAccount": account} for account in ("123456789012", "210987654321"))
    assert allows(trust, "sts:AssumeRole", "", own)
    assert not allows(trust, "sts:AssumeRole", "", other)
    assert not allows(trust, "sts:AssumeRole", "", {})


@pytest.mark.parametrize("system", SYSTEMS)
def test_only_commands_that_sign_get_a_key(project: Tree, system: str) -> None:
    text = "".join(file.read_text() for file in generate(project, SIGNED, system))

    lines = [line.strip() for line in text.splitlines() if "BAKEHOUSE_SIGNING_KEY" in line]
    commands = [re.sub(r".*BAKEHOUSE_SIGNING_KEY=\S*key/", "", line).split(" --")[0] for line in lines]
    assert {*commands} == {
        "build xargs -r -I IMAGE bake smoke IMAGE",
        "build xargs -r bake push",
        'release bake promote "$image"',
    }
    assert "export BAKEHOUSE_SIGNING_KEY" not in text


def test_a_policy_needs_a_key_of_the_jobs_that_build(
    project: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write("a.pub", "")
    policy = '[tool.bakehouse.policy]\nkeys = ["a.pub"]\nrequire = ["provenance"]\n'
    configure(project, re.sub('signing_key = ".*/build"\n', "", SIGNED) + policy)

    assert main.run(("ci", "github")) == 64
    assert capsys.readouterr().err == (
        "error: the policy requires statements of the build, and the jobs that build have no key\n\n"
        "hint: set `signing_key` in [tool.bakehouse.ci], and add its public key to `keys` of the policy\n"
    )


@pytest.mark.parametrize(
    ("region", "partition"),
    [("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov"), ("eusc-de-east-1", "aws-eusc")],
)
def test_arns_have_the_partition_of_the_region(project: Tree, region: str, partition: str) -> None:
    settings = PROJECTS["publishing"].replace('["eu-west-1", "us-east-1"]', f'["{region}"]')
    generate(project, settings, "github")

    policies = [file.read_text() for file in (project.root / ".github/bakehouse").iterdir()]
    arns = {arn for policy in policies for arn in re.findall('"arn:([^:]+):', policy)}
    assert arns == {partition}
    workflow = (project.root / ".github/workflows/bakehouse-publish.yml").read_text()
    assert f"arn:{partition}:iam::123456789012:role/bakehouse-publish" in workflow


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize(
    ("requirement", "arguments"),
    [
        (WHEEL, [WHEEL]),
        (
            f"git+https://git.example/it's;a&b.git@{COMMIT}",
            [f"git+https://git.example/it's;a&b.git@{COMMIT}"],
        ),
        ("-r ci/requirements.txt", ["--require-hashes", "-r", "ci/requirements.txt"]),
    ],
    ids=["wheel", "commit", "file"],
)
def test_pip_gets_the_requirement_as_it_is(
    project: Tree, tmp_path: Path, system: str, requirement: str, arguments: list[str]
) -> None:
    project.write("ci/requirements.txt", f"bakehouse @ {WHEEL} --hash=sha256:{'0' * 64}\n")
    files = generate(project, CI.replace(WHEEL, requirement), system)
    [install] = {
        line.strip()
        for file in files
        for command in pipelines.every_command([yaml.safe_load(file.read_text())])
        for line in command.splitlines()
        if "pip install" in line
    }
    python = tmp_path / "bakehouse/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    python.chmod(0o755)
    places = {"RUNNER_TEMP": str(tmp_path), "HOME": str(tmp_path), "CI_PROJECT_DIR": f"{tmp_path}/x"}
    (tmp_path / "x.tmp").symlink_to(tmp_path)

    result = subprocess.run(["sh", "-c", install], env=places, capture_output=True, text=True, check=True)

    assert result.stdout.splitlines()[4:] == arguments


@pytest.mark.parametrize("mode", [(), ("--check",)])
@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize(("settings", "line"), [("", "1:7"), ("[tool.bakehouse.ci]\nshards = 2\n", "3:17")])
def test_without_a_requirement_there_is_no_pipeline(
    project: Tree,
    capsys: pytest.CaptureFixture[str],
    system: str,
    mode: tuple[str, ...],
    settings: str,
    line: str,
) -> None:
    configure(project, settings)

    assert main.run(("ci", system, *mode)) == 64
    error = capsys.readouterr().err
    assert [text for text in error.splitlines() if text and " |" not in text] == [
        "error: [tool.bakehouse.ci] has no `requirement`, so jobs cannot install Bakehouse",
        f"  --> pyproject.toml:{line}",
        "  because Bakehouse is not on any package index; a package of that name is not from its authors",
        "hint: use the URL of a wheel with `#sha256=…`, `git+https://HOST/REPOSITORY@COMMIT`, "
        "or `-r FILE` with hashes",
    ]
    assert not (project.root / f".{system}").exists()


@pytest.mark.parametrize(
    ("requirement", "reason"),
    [
        *(
            (name, "Bakehouse is not on any package index; a package of that name is not from its authors")
            for name in (
                "bakehouse",
                "bakehouse==1.0",
                "bakehouse>=1.0,<2",
                "--no-deps bakehouse==1.0",
                "bakehouse==1.0 --hash=sha256:abc",
                "http://example.com/bakehouse-1.0-py3-none-any.whl#sha256=" + "0" * 64,
                "./wheels/bakehouse-1.0-py3-none-any.whl",
                "-r a.txt -r b.txt",
            )
        ),
        *(
            (f"git+https://git.example/bakehouse.git{end}",
             "a branch or a tag can move: only a commit has 40 hexadecimal digits")
            for end in ("", "@main", "@v1.0", "@0123456", f"@{COMMIT[:-1]}")
        ),
        (f"git+ssh://git@git.example/x.git@{COMMIT}", "jobs can read a repository by `git+https://` only"),
        (
            f"git+http://git.example/bakehouse.git@{COMMIT}",
            "jobs can read a repository by `git+https://` only",
        ),
        ("https://example.com/bakehouse-1.0.tar.gz", "the URL does not end with the name of a wheel"),
        ("https://[example.com/x", "the URL is invalid"),
        (
            f"https://example.com/bakehouse_x-1.0-py3-none-any.whl#sha256={'0' * 64}",
            "the wheel contains `bakehouse-x`",
        ),
        (
            f"https://me@example.com/bakehouse-1.0-py3-none-any.whl#sha256={'0' * 64}",
            "the URL contains a user, which the pipeline would repeat",
        ),
        *(
            (f"https://example.com/bakehouse-1.0-py3-none-any.whl{end}",
             "the URL does not end with `#sha256=` and a checksum")
            for end in ("", "#sha256=0", f"#md5={'0' * 32}", f"#sha256={'0' * 64}&x=y")
        ),
    ],
)  # fmt: skip
def test_a_requirement_that_identifies_no_file_is_a_mistake(
    project: Tree, capsys: pytest.CaptureFixture[str], requirement: str, reason: str
) -> None:
    configure(project, f'[tool.bakehouse.ci]\nrequirement = "{requirement}"\n')
    shown = re.sub("(?<=//)me(?=@)", "**", requirement)

    assert main.run(("ci", "github")) == 2
    assert capsys.readouterr().err == (
        f"error: `requirement` in [tool.bakehouse.ci] does not identify a file of Bakehouse: `{shown}`\n"
        "  --> pyproject.toml:4:1\n"
        "   |\n"
        f' 4 | requirement = "{shown}"\n'
        "   | ^^^^^^^^^^^\n"
        f"  because {reason}\n"
        "\nhint: use the URL of a wheel with `#sha256=…`, `git+https://HOST/REPOSITORY@COMMIT`, "
        "or `-r FILE` with hashes\n"
    )


@pytest.mark.parametrize(
    ("content", "messages"),
    [
        (
            None,
            [
                "error: `requirement` in [tool.bakehouse.ci] names `ci.txt`, "
                "which is not a file of the project",
                "  --> pyproject.toml:4:1",
            ],
        ),
        (
            f"bakehouse @ {WHEEL}\npyyaml==6.0\n",
            [
                "error: `bakehouse` has no hash",
                "  --> ci.txt:1:1",
                "hint: add `--hash=sha256:…` to each package; `uv pip compile --generate-hashes` writes them",
                "error: `pyyaml` has no hash",
                "  --> ci.txt:2:1",
                "hint: add `--hash=sha256:…` to each package; `uv pip compile --generate-hashes` writes them",
                "2 errors",
            ],
        ),
        (
            f"pyyaml==6.0 --hash=sha256:{'0' * 64}\n",
            [
                "error: `ci.txt` does not contain Bakehouse",
                "  --> pyproject.toml:4:1",
                "hint: add a line such as `./wheels/bakehouse-1.0-py3-none-any.whl --hash=sha256:…`",
            ],
        ),
    ],
    ids=["missing", "without-hashes", "without-bakehouse"],
)
def test_mistakes_in_the_requirements_file_are_reported(
    project: Tree, capsys: pytest.CaptureFixture[str], content: str | None, messages: list[str]
) -> None:
    configure(project, '[tool.bakehouse.ci]\nrequirement = "-r ci.txt"\n')
    if content is not None:
        project.write("ci.txt", content)

    assert main.run(("ci", "github")) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [
        line for line in lines if line.startswith(("error", "  -->", "hint")) or " errors" in line
    ] == messages


def test_the_role_may_scan_and_assume_the_role_of_the_registry(project: Tree) -> None:
    role = "arn:aws:iam::123456789012:role/Pusher"
    registry = f'prefix = "team"\nscan = "HIGH"\nrole = "{role}"\n'
    generate(project, PROJECTS["publishing"].replace('prefix = "team"\n', registry), "github")

    policy = json.loads((project.root / ".github/bakehouse/publish-permissions.json").read_text())
    statements = {each["Sid"]: each for each in policy["Statement"]}
    assert "ecr:StartImageScan" in statements["PublishImages"]["Action"]
    assert statements["AssumeRegistryRole"]["Resource"] == [role]


@pytest.mark.parametrize(
    ("key", "granted"),
    [
        ("", None),
        ("signing.pem", None),
        ("awskms:///arn:aws:kms:eu-west-1:123456789012:key/1234abcd", "key/1234abcd"),
    ],
)
def test_the_role_may_sign_with_a_key_of_kms_only(project: Tree, key: str, granted: str | None) -> None:
    generate(project, f'signing_key = "{key}"\n{PROJECTS["publishing"]}', "github")

    policy = json.loads((project.root / ".github/bakehouse/publish-permissions.json").read_text())
    signing = [each for each in policy["Statement"] if any("kms:" in action for action in each["Action"])]
    arn = f"arn:aws:kms:eu-west-1:123456789012:{granted}"
    expected = {"Sid": "SignReleases", "Effect": "Allow", "Action": ["kms:Sign", "kms:GetPublicKey"]}
    assert signing == ([{**expected, "Resource": [arn]}] if granted else [])


def test_the_role_of_gpu_tests_may_sign_its_reports(project: Tree) -> None:
    arn = "arn:aws:kms:eu-west-1:123456789012:key/1234abcd"
    settings = SAGEMAKER.replace("shards = 1\n", f'shards = 1\nsigning_key = "awskms:///{arn}"\n')
    generate(project, f'signing_key = "awskms:///{arn}0"\n{settings}', "github")

    policy = json.loads((project.root / ".github/bakehouse/smoke-permissions.json").read_text())
    [signing] = [each for each in policy["Statement"] if each["Sid"] == "SignReports"]
    assert (signing["Action"], signing["Resource"]) == (["kms:Sign", "kms:GetPublicKey"], [arn])


class Ci:
    """A CI system with a project whose `bake` is a stub."""

    def __init__(self, project: Tree, directory: Path, settings: str, system: str) -> None:
        self.files = {
            file.stem.removeprefix("bakehouse-"): file for file in generate(project, settings, system)
        }
        self.base = commit(project.root, {})
        self.head = commit(project.root, {"mine/images/tiny.yaml": "summary: Changed\n"})
        self.origin = directory / "origin.git"
        pipelines.bare_origin(project.root, self.origin)
        environment = pipelines.stub_programs(directory, WHEEL, BAKE)
        self.log = directory / "bake.log"
        self.log.touch()
        self.environment = {**environment, "STUB_LOG": str(self.log)}
        self.machines = Machines(self.origin, directory, self.environment)

    @property
    def called(self) -> list[str]:
        """The command lines of `bake` since the last look."""
        # Reports are outside of the repository, in a directory of each job.
        lines = re.sub(r"--report \S*/", "--report ", self.log.read_text()).splitlines()
        self.log.write_text("")
        return lines

    def switch(self, name: str, value: str = "1") -> None:
        self.machines.environment = {**self.environment, name: value}


CHECK = (
    "lint tiny --sarif build/ci/lint.sarif",
    "ci {system} --check",
    "render --check",
    "lock tiny --check",
    "plan tiny --from {base} --names",
    "diff tiny --from {base}",
)
BUILD = ("plan tiny --from {base} --shard 1/1 --names", "build tiny", "smoke tiny", "sizes tiny")
PUBLISH = (
    "plan tiny --missing release --shard 1/1 --names",
    "build tiny",
    "smoke tiny --report tiny.json",
    "push --candidate --attest --registry team/team/candidates tiny",
)
PROMOTE = ("promote tiny --report tiny.json", "releases tiny --notes")


def expected(ci: Ci, system: str, *groups: tuple[str, ...]) -> list[str]:
    return [line.format(base=ci.base, system=system) for lines in groups for line in lines]


@pytest.fixture
def assumed() -> list[str]:
    """The roles that jobs assumed, with the subject of their tokens."""
    return []


@pytest.fixture
def github(project: Tree, tmp_path: Path) -> Ci:
    return Ci(project, tmp_path, PROJECTS["publishing"], "github")


def test_a_pull_request_checks_and_builds_what_it_affects(github: Ci) -> None:
    run = GitHub(github.machines, "pull_request", github.head, base=github.base)
    run.run(github.files["pull-request"])

    assert github.called == expected(github, "github", CHECK, BUILD)
    assert sorted(path.name for path in run.artifacts.iterdir()) == ["lint", "smoke-0"]
    assert "## Affected images" in run.summary


@each_system_before_a_release
def test_a_mistake_in_the_base_does_not_fail_its_correction(
    project: Tree, tmp_path: Path, system: str
) -> None:
    ci = Ci(project, tmp_path, PROJECTS["publishing"], system)
    git(ci.origin, "update-ref", "refs/heads/main", ci.base)
    ci.switch("STUB_BROKEN_BASE")

    if system == "github":
        GitHub(ci.machines, "pull_request", ci.head, base=ci.base).run(ci.files["pull-request"])
    elif system == "gitlab":
        request = {"CI_PIPELINE_SOURCE": "merge_request_event", "CI_COMMIT_BRANCH": ""}
        base = {"CI_MERGE_REQUEST_DIFF_BASE_SHA": ci.base}
        GitLab(ci.machines, ci.head, {**request, **base}).run(".gitlab/bakehouse.yml")
    else:
        webhook = {"CODEBUILD_WEBHOOK_BASE_REF": "refs/heads/main"}
        CodeBuild(ci.machines, ci.head, webhook).run(ci.files["pull-request"])

    assert ci.called == expected(ci, system, CHECK, BUILD)


def test_a_pull_request_that_affects_no_image_builds_none(github: Ci) -> None:
    github.switch("STUB_NOTHING")
    GitHub(github.machines, "pull_request", github.head, base=github.base).run(github.files["pull-request"])

    assert github.called == expected(github, "github", CHECK[:-1])


def test_findings_are_kept_if_a_check_fails(github: Ci) -> None:
    github.switch("STUB_MISTAKE")
    run = GitHub(github.machines, "pull_request", github.head, base=github.base)

    with pytest.raises(CommandError, match=r"^Check ended with 1"):
        run.run(github.files["pull-request"])

    assert (run.artifacts / "lint/lint.sarif").exists()
    assert github.called == [CHECK[0]]


def test_a_fork_gets_no_credentials(project: Tree, tmp_path: Path) -> None:
    images = 'images = ["tiny", "pytorch-1.13-cu117-py39-extended"]\nshards = 1\ncode_scanning = true\n'
    ci = Ci(project, tmp_path, PROJECTS["publishing"] + images, "github")
    roles: list[str] = []

    def assume(role: str, subject: str, region: str) -> dict[str, str]:
        roles.append(f"{role} {subject}")
        return {}

    for fork in ("another/fork", ""):
        run = GitHub(ci.machines, "pull_request", ci.head, base=ci.base, fork=fork, aws=assume)
        run.run(ci.files["pull-request"])

    assert roles == ["arn:aws:iam::123456789012:role/bakehouse-pull repo:example/tiny:pull_request"]


def test_main_publishes_and_promotes_what_was_tested(github: Ci, assumed: list[str]) -> None:
    def assume(role: str, subject: str, region: str) -> dict[str, str]:
        assumed.append(subject)
        return {}

    run = GitHub(github.machines, "push", github.head, aws=assume)
    run.run(github.files["publish"])

    plan = "plan tiny --missing release --names"
    assert github.called == expected(github, "github", (plan,), PUBLISH, PROMOTE, ("report tiny",))
    assert (run.artifacts / "fleet-report/index.html").exists()
    assert run.summary == "## tiny\n"
    branch = "repo:example/tiny:ref:refs/heads/main"
    assert assumed == [branch, branch, branch, "repo:example/tiny:environment:release"]


def test_only_the_branch_publishes(github: Ci) -> None:
    run = GitHub(github.machines, "workflow_dispatch", github.head, ref="refs/heads/other")
    run.run(github.files["publish"])

    assert github.machines.jobs == []


UPGRADE = ("lock tiny --upgrade", "render", "diff tiny --from HEAD", "outdated tiny")
UPDATE = ("update --write", "render")


def test_upgrades_and_updates_are_proposed_as_pull_requests(github: Ci, tmp_path: Path) -> None:
    GitHub(github.machines, "schedule", github.head).run(github.files["upgrade"])

    assert github.called == [*UPGRADE, *UPDATE]
    assert git(github.origin, "show", "bakehouse/upgrade:mine/apt/bookworm.packages") == "new"
    assert git(github.origin, "show", "bakehouse/update:mine/components/tool/component.yaml") == "newer"
    for branch in ("upgrade", "update"):
        assert git(github.origin, "rev-parse", f"bakehouse/{branch}~1") == github.head
    called = [line.split()[:2] for line in (tmp_path / "gh.log").read_text().splitlines()]
    assert called == [["auth", "setup-git"], ["pr", "list"], ["pr", "create"]] * 2
    [body] = [path.read_text() for path in tmp_path.glob("runner-4/body.md")]
    assert body == (
        "New releases of components, with the evidence for each value:\n\n    tool 2.0; made from 1.0\n"
    )


def test_an_open_pull_request_gets_the_evidence_of_its_new_commit(github: Ci, tmp_path: Path) -> None:
    github.switch("STUB_PULL_REQUEST", "7")
    GitHub(github.machines, "schedule", github.head).run(github.files["upgrade"])

    changed = (tmp_path / "gh.log").read_text().splitlines()[-1]
    assert changed == (
        "api --silent --method PATCH repos/example/tiny/pulls/7 "
        f"--field body=@{tmp_path / 'runner-4' / 'body.md'}"
    )


def test_a_component_that_fails_does_not_hold_back_other_updates(github: Ci) -> None:
    github.switch("STUB_UPDATE_FAILS")

    with pytest.raises(CommandError, match=r"^Update components ended with 1"):
        GitHub(github.machines, "schedule", github.head).run(github.files["upgrade"])

    assert git(github.origin, "show", "bakehouse/update:mine/components/tool/component.yaml") == "newer"


def test_a_project_without_components_has_none_to_update(project: Tree) -> None:
    (project.root / "mine/components/tool/component.yaml").unlink()
    (project.root / "mine/components/tool").rmdir()

    texts = [
        file.read_text() for system in ("github", "gitlab") for file in generate(project, REQUIREMENT, system)
    ]

    assert any("lock $IMAGES --upgrade" in text for text in texts)
    assert not any("bake update" in text for text in texts)


def test_gitlab_runs_the_same_commands(project: Tree, tmp_path: Path, assumed: list[str]) -> None:
    ci = Ci(project, tmp_path, PROJECTS["publishing"], "gitlab")

    def token(role: str, subject: str) -> str:
        assumed.append(subject)
        return "a-token"

    common = {
        "CI_SERVER_HOST": "gitlab.example.com",
        "CI_PROJECT_URL": "https://gitlab.example.com:8443/example/tiny",
    }
    request = {
        **common,
        "CI_PIPELINE_SOURCE": "merge_request_event",
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": ci.base,
        "CI_COMMIT_BRANCH": "",
    }
    GitLab(ci.machines, ci.head, request, token).run(".gitlab/bakehouse.yml")
    assert ci.called == expected(ci, "gitlab", CHECK, BUILD)
    assert assumed == []

    # git sends the push to the repository of the test.
    ci.machines.environment = {
        **ci.environment,
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.file://{ci.origin}.insteadOf",
        "GIT_CONFIG_VALUE_0": "https://gitlab.example.com:8443/example/tiny.git",
    }
    git(ci.origin, "config", "receive.advertisePushOptions", "true")
    main = {
        **common,
        "CI_PIPELINE_SOURCE": "schedule",
        "CI_COMMIT_BRANCH": "main",
        "CI_COMMIT_SHA": ci.head,
        "CI_PIPELINE_URL": "https://gitlab.example.com/pipeline",
    }
    scoped = {"bakehouse-propose": {"BAKEHOUSE_PUSH_TOKEN": "secret"}}
    run = GitLab(ci.machines, ci.head, main, token, scoped=scoped)
    run.run(".gitlab/bakehouse.yml")

    with_token = [job for job, variables in run.environments.items() if "BAKEHOUSE_PUSH_TOKEN" in variables]
    assert with_token == ["bakehouse-propose-upgrade", "bakehouse-propose-update"]
    tokens = [*tmp_path.glob("clone-*.tmp/token")]
    assert [token.stat().st_mode & 0o777 for token in tokens] == [0o600] * 2
    report = ("report tiny --to build/ci",)
    nightly = (UPGRADE[:2], UPDATE)
    assert ci.called == expected(ci, "gitlab", PUBLISH, PROMOTE, report, ("releases --verify",), *nightly)
    branch = "project_path:example/tiny:ref_type:branch:ref:main"
    assert (len(assumed), assumed[-1]) == (2, f"{branch}:environment:release")
    assert git(ci.origin, "show", "bakehouse/upgrade:mine/apt/bookworm.packages") == "new"
    assert git(ci.origin, "log", "--format=%B", "-1", "bakehouse/update") == "Update components"
    assert (
        run.artifacts / "bakehouse-update/build/ci/update/changes.txt"
    ).read_text() == "tool 2.0; made from 1.0\n"
    files = [yaml.safe_load(file.read_text()) for file in ci.files.values()]
    assert {*pipelines.every_command(files)} == {*ci.machines.commands}


def test_gitlab_warns_if_the_environment_has_no_token(project: Tree, tmp_path: Path) -> None:
    ci = Ci(project, tmp_path, REQUIREMENT, "gitlab")
    schedule = {"CI_PIPELINE_SOURCE": "schedule", "CI_COMMIT_BRANCH": "main", "CI_COMMIT_SHA": ci.head}

    run = GitLab(ci.machines, ci.head, schedule)
    run.run(".gitlab/bakehouse.yml")

    assert {*run.warnings} == {"bakehouse-propose-upgrade", "bakehouse-propose-update"}
    assert ci.machines.job("bakehouse-propose-upgrade").output == (
        "error: the environment bakehouse-propose has no variable BAKEHOUSE_PUSH_TOKEN\n"
    )
    assert git(ci.origin, "branch", "--list", "bakehouse/*") == ""


def test_a_component_that_fails_does_not_hold_back_other_updates_of_gitlab(
    project: Tree, tmp_path: Path
) -> None:
    ci = Ci(project, tmp_path, REQUIREMENT, "gitlab")
    ci.switch("STUB_UPDATE_FAILS")

    proposal = gitlab_proposals(ci)
    with pytest.raises(CommandError, match=r"^bakehouse-update ended with 1"):
        proposal.run(".gitlab/bakehouse.yml")

    assert [*proposal.failures] == ["bakehouse-update"]
    assert git(ci.origin, "show", "bakehouse/update:mine/components/tool/component.yaml") == "newer"


def gitlab_proposals(ci: Ci) -> GitLab:
    """Return the nightly run of GitLab, whose token can push to the repository of the test."""
    git(ci.origin, "config", "receive.advertisePushOptions", "true")
    schedule = {
        "CI_PIPELINE_SOURCE": "schedule",
        "CI_COMMIT_BRANCH": "main",
        "CI_COMMIT_SHA": ci.head,
        "CI_PROJECT_URL": f"file://{ci.origin}".removesuffix(".git"),
        "CI_SERVER_HOST": "gitlab.example.com",
        "CI_PIPELINE_URL": "https://gitlab.example.com/pipeline",
    }
    scoped = {"bakehouse-propose": {"BAKEHOUSE_PUSH_TOKEN": "secret"}}
    return GitLab(ci.machines, ci.head, schedule, scoped=scoped)


def test_git_gets_the_token_of_gitlab_from_a_helper(project: Tree, tmp_path: Path) -> None:
    ci = Ci(project, tmp_path, REQUIREMENT, "gitlab")
    log = tmp_path / "arguments"
    # git asks its helpers in the same way before it fetches and pushes.
    stub = f"""#!/bin/sh
printf '%s\\n' "$@" >> {log}
if [ "$1" = push ]; then
  printf 'protocol=https\\nhost=gitlab.example.com\\n\\n' | {shutil.which("git")} credential fill
fi
exec {shutil.which("git")} "$@"
"""
    (tmp_path / "programs/git").write_text(stub)
    (tmp_path / "programs/git").chmod(0o755)

    gitlab_proposals(ci).run(".gitlab/bakehouse.yml")

    output = ci.machines.job("bakehouse-propose-upgrade").output
    assert "username=bakehouse\npassword=secret\n" in output
    arguments = log.read_text()
    assert "merge_request.create\n" in arguments
    assert "secret" not in arguments


@pytest.mark.parametrize("settings", ["publishing", "secrets"])
def test_only_jobs_without_code_of_others_can_write(project: Tree, settings: str) -> None:
    for file in [*generate(project, PROJECTS[settings], "github"), *HOME.glob(".github/workflows/*.yml")]:
        for name, job in yaml.safe_load(file.read_text())["jobs"].items():
            permissions = job["permissions"]
            writes = {key for key, value in permissions.items() if value == "write"} - {"id-token"}
            [checkout] = [step for step in job["steps"] if "actions/checkout@" in step.get("uses", "")]
            assert checkout["with"]["persist-credentials"] is False
            if not name.startswith("propose-"):
                assert writes == set(), (file.name, name)
                assert permissions["contents"] == "read"
                assert "GH_TOKEN" not in str(job)
                continue
            assert permissions == {"contents": "write", "pull-requests": "write"}
            assert [step["name"] for step in job["steps"]] == [
                "Check out", "Fetch the changes", "Open a pull request"
            ]  # fmt: skip
            assert not {*job} & {"env", "environment"}
            assert_runs_no_code(job["steps"][-1]["run"])
    jobs = yaml.safe_load((generate(project, PROJECTS[settings], "gitlab")[-1]).read_text())
    proposals = [
        name for name, job in jobs.items() if job.get("environment", {}).get("name") == "bakehouse-propose"
    ]
    assert proposals == ["bakehouse-propose-upgrade", "bakehouse-propose-update"]
    for name in proposals:
        assert jobs[name]["before_script"] == []
        assert "extends" not in jobs[name]
        [script] = jobs[name]["script"]
        assert_runs_no_code(script)


def assert_runs_no_code(script: str) -> None:
    """Assert that a script starts only git, GitHub's command and tools of the machine."""
    lines = script.replace("\\\n", " ").splitlines()
    first = {line.split()[0] for line in lines if line.strip() and not line.strip().startswith("#")}
    commands = {word for word in first if re.fullmatch("[a-z][a-z_-]*", word)}
    assert commands <= {"git", "gh", "tr", "echo", "head", "cd", "trap", "exit", "if", "else", "fi"} | {
        "sed",
        "LC_ALL=C",
    }, commands


BLOB = "0000000000000000000000000000000000000000"
NEW = "diff --git a/{0} b/{0}\nnew file mode {1}\n--- /dev/null\n+++ b/{0}\n@@ -0,0 +1 @@\n+{2}\n"
ALLOWED = {
    "mine/apt/bookworm.packages": 0o644,
    "mine/bases/x.txt": 0o644,
    "mine/pins.yaml": 0o644,
    "mine/components/tool/component.yaml": 0o644,
    "mine/components/tool/locks/2.0-py312.txt": 0o644,
    "requirements.txt.lock": 0o644,
    "images/README.md": 0o644,
    "images/tiny/Dockerfile": 0o644,
    "images/tiny/.gitignore": 0o644,
    "images/tiny/inputs/bin/finish-layer": 0o755,
}
REFUSED = {
    "workflow": NEW.format(".github/workflows/new.yml", "100644", "on: push"),
    "pipeline of GitLab": NEW.format(".gitlab/bakehouse.yml", "100644", "x"),
    "settings": NEW.format("pyproject.toml.new", "100644", "x"),
    "recipe": NEW.format("mine/images/other.yaml", "100644", "x"),
    "script of a component": NEW.format("mine/components/tool/smoke.py", "100644", "x"),
    "template of a component": NEW.format("mine/components/tool/install.j2", "100644", "x"),
    "another lock": NEW.format("uv.lock", "100644", "x"),
    "ledger": NEW.format("images/tiny/releases.json", "100644", "[]"),
    "runs": NEW.format("images/runs.json", "100644", "[]"),
    "attributes": NEW.format("images/.gitattributes", "100644", "* -diff"),
    "file next to rendered files": NEW.format("images/tiny/run", "100755", "x"),
    "link": NEW.format("images/tiny/inputs/link", "120000", "/etc/passwd") + "\\ No newline at end of file\n",
    "submodule": NEW.format("images/tiny/inputs/module", "160000", f"Subproject commit {BLOB[:-1]}1"),
    "hook": NEW.format(".git/hooks/pre-push", "100755", "#!/bin/sh"),
    "hook below images": NEW.format("images/tiny/inputs/.git/hooks/pre-push", "100755", "#!/bin/sh"),
    "file outside": NEW.format("../outside", "100644", "x"),
    "absolute path": NEW.format("/tmp/outside", "100644", "x"),
    "renamed file": (
        "diff --git a/mine/components/tool/component.yaml b/.github/workflows/new.yml\n"
        "similarity index 100%\n"
        "rename from mine/components/tool/component.yaml\nrename to .github/workflows/new.yml\n"
    ),
    "renamed recipe": (
        "diff --git a/mine/images/tiny.yaml b/mine/apt/tiny.packages\nsimilarity index 100%\n"
        "rename from mine/images/tiny.yaml\nrename to mine/apt/tiny.packages\n"
    ),
    "deleted recipe": (
        "diff --git a/mine/images/tiny.yaml b/mine/images/tiny.yaml\ndeleted file mode 100644\n"
        "--- a/mine/images/tiny.yaml\n+++ /dev/null\n@@ -1 +0,0 @@\n-summary: Changed\n"
    ),
    "file that becomes a link": (
        "diff --git a/mine/components/tool/component.yaml b/mine/components/tool/component.yaml\n"
        "deleted file mode 100644\n--- a/mine/components/tool/component.yaml\n+++ /dev/null\n"
        "@@ -1,5 +0,0 @@\n"
        + "".join(f"-{line}\n" for line in COMPONENT.splitlines())
        + NEW.format("mine/components/tool/component.yaml", "120000", "x")
    ),
    "nothing": "",
}


class Proposal:
    """The job that proposes an upgrade, with files of the job before it."""

    def __init__(self, ci: Ci, system: str, directory: Path) -> None:
        self.ci, self.directory = ci, directory
        name = "upgrade" if system == "github" else "bakehouse"
        document = yaml.safe_load(ci.files[name].read_text())
        if system == "github":
            self.script = document["jobs"]["propose-upgrade"]["steps"][-1]["run"]
            self.changes = directory / "runner/changes"
            self.workspace = ci.machines.clone(ci.head, 1)
        else:
            [self.script] = document["bakehouse-propose-upgrade"]["script"]
            self.workspace = directory / "empty"
            self.changes = self.workspace / "build/ci/upgrade"
        self.environment = {
            "RUNNER_TEMP": str(directory / "runner"),
            "GITHUB_REPOSITORY": "example/tiny",
            "TARGET": "main",
            "CI_PROJECT_DIR": str(self.workspace),
            "CI_PROJECT_URL": f"file://{ci.origin}".removesuffix(".git"),
            "CI_PIPELINE_URL": "https://gitlab.example.com/pipeline",
            "CI_SERVER_HOST": "gitlab.example.com",
            "CI_COMMIT_BRANCH": "main",
            "CI_COMMIT_SHA": ci.head,
            "BAKEHOUSE_PUSH_TOKEN": "secret",
            "BRANCH": "bakehouse/upgrade",
        }
        git(ci.origin, "config", "receive.advertisePushOptions", "true")
        self.changes.mkdir(parents=True)

    def run(self, patch: str, text: str = "") -> Job:
        (self.changes / "changes.patch").write_text(patch)
        (self.changes / "changes.txt").write_text(text, newline="")
        job = Job("propose")
        self.ci.machines.bash(job, self.script, self.workspace, self.environment)
        return job

    @property
    def branches(self) -> str:
        return git(self.ci.origin, "branch", "--list", "bakehouse/*")


def test_an_upgrade_may_drop_rows_of_layers_that_no_image_asks_for(project: Tree) -> None:
    def allows() -> bool:
        texts = (file.read_text() for file in generate(project, REQUIREMENT, "gitlab"))
        return any("'images/layers.txt'" in text.replace(":(exclude,glob)", "") for text in texts)

    before = allows()
    project.write("images/layers.txt", "# format 1\n")
    assert (before, allows()) == (False, True)


@pytest.mark.parametrize("system", ["github", "gitlab"])
def test_an_upgrade_may_change_the_keys_of_a_project_that_has_them(project: Tree, system: str) -> None:
    def texts(settings: str) -> str:
        return "".join(file.read_text() for file in generate(project, settings, system))

    assert "'images/keys.txt'" not in texts(REQUIREMENT).replace(":(exclude,glob)", "")
    assert "'images/keys.txt'" in texts(f'commit = ["tiny"]\n{REQUIREMENT}').replace(":(exclude,glob)", "")


@pytest.fixture(params=["github", "gitlab"])
def proposal(request: pytest.FixtureRequest, project: Tree, tmp_path: Path) -> Proposal:
    project.write("requirements.txt", "iniconfig\n")
    project.write("requirements.txt.lock", locked_heading(b"iniconfig\n", "tiny") + "\n")
    recipe = 'base: {debian: "12"}\ncomponents: {python: "*"}\nrequirements: ../../requirements.txt\n'
    project.write("mine/images/tiny.yaml", f"summary: Tiny\n{recipe}")
    return Proposal(Ci(project, tmp_path, REQUIREMENT, request.param), request.param, tmp_path)


def test_locks_components_and_rendered_files_are_proposed(proposal: Proposal) -> None:
    clone = proposal.ci.machines.clone(proposal.ci.head, 1)
    for name, mode in ALLOWED.items():
        path = clone / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("text\n")
        path.chmod(mode)
    git(clone, "add", "--all")
    patch = subprocess.run(
        ["git", "-C", str(clone), "diff", "--cached", "--binary"], capture_output=True, text=True, check=True
    ).stdout

    proposal.run(patch)

    changes = git(proposal.ci.origin, "diff", "--raw", "main", "bakehouse/upgrade").splitlines()
    modes = {line.split("\t")[1]: int(line.split()[1][3:], 8) for line in changes}
    assert modes == ALLOWED


@pytest.mark.parametrize(
    ("proposal", "name"),
    [
        # Both systems run the same script in other words: each patch goes to one of them daily.
        pytest.param(system, name, marks=() if (number + turn) % 2 else pytest.mark.release)
        for number, name in enumerate(REFUSED)
        for turn, system in enumerate(("github", "gitlab"))
    ],
    indirect=["proposal"],
)
def test_a_patch_of_other_files_is_refused(proposal: Proposal, name: str) -> None:
    allowed = NEW.format("mine/apt/bookworm.packages", "100644", "text") if REFUSED[name] else ""

    if name == "nothing" and "bakehouse-upgrade left" in proposal.script:
        assert proposal.run("").output == "bakehouse-upgrade left no changes\n"
    else:
        with pytest.raises(CommandError, match=r"error: |fatal: "):
            proposal.run(allowed + REFUSED[name])

    assert proposal.branches == ""
    assert not [
        path for path in proposal.directory.rglob("*") if path.name in ("pre-push", "outside", "link")
    ]


def test_hooks_of_the_repository_do_not_run(proposal: Proposal) -> None:
    ran = proposal.directory / "ran"
    for name in ("pre-commit", "commit-msg", "post-commit", "pre-push", "reference-transaction"):
        hook = proposal.workspace / ".git/hooks" / name
        hook.parent.mkdir(parents=True, exist_ok=True)
        hook.write_text(f"#!/bin/sh\necho {name} >> {ran}\n")
        hook.chmod(0o755)

    proposal.run(NEW.format("mine/apt/bookworm.packages", "100644", "text"))

    assert proposal.branches.strip() == "bakehouse/upgrade"
    assert not ran.exists()


COMMANDS = (
    "\r/merge\n```\r\n@team Fixes #1, closes GH-2 [skip ci] <b> https://github.com/o/r/issues/3\n"
    "~~~\n/label x\n"
)


def test_a_text_of_code_of_others_commands_nothing(proposal: Proposal) -> None:
    proposal.run(NEW.format("mine/apt/bookworm.packages", "100644", "text"), COMMANDS * 3)

    message = git(proposal.ci.origin, "log", "--format=%B", "-1", "bakehouse/upgrade")
    assert message == "Upgrade locked packages"
    body = proposal.directory / "runner/body.md"
    if not body.exists():
        # GitLab's merge request has a link instead.
        return
    first, empty, *lines = body.read_bytes().decode().split("\n")[:-1]
    assert (first[-1], empty) == (":", "")
    assert len(lines) == 5 * 3
    for line in lines:
        assert line.startswith("    ")
        assert not re.search(r"\r|@\w|#\d|\[skip|GH-\d|/issues/\d", line)


def test_codebuild_runs_the_same_commands(project: Tree, tmp_path: Path) -> None:
    ci = Ci(project, tmp_path, PROJECTS["publishing"], "codebuild")
    git(ci.origin, "update-ref", "refs/heads/main", ci.base)

    webhook = {"CODEBUILD_WEBHOOK_BASE_REF": "refs/heads/main"}
    CodeBuild(ci.machines, ci.head, webhook).run(ci.files["pull-request"])
    assert ci.called == expected(ci, "codebuild", CHECK, BUILD)

    CodeBuild(ci.machines, ci.head).run(ci.files["publish"])
    assert ci.called == expected(ci, "codebuild", PUBLISH, ("releases --verify",))
    CodeBuild(ci.machines, ci.head).run_build(ci.files["promote"])
    assert ci.called == expected(ci, "codebuild", PROMOTE)
    files = [yaml.safe_load(file.read_text()) for file in ci.files.values()]
    assert {*pipelines.every_command(files)} == {*ci.machines.commands}


def test_codebuild_publishes_nothing_if_the_ledger_cannot_be_read(project: Tree, tmp_path: Path) -> None:
    images = 'images = ["tiny", "pytorch-2.10-cu128-py312-efa"]\n'
    ci = Ci(project, tmp_path, PROJECTS["publishing"] + images, "codebuild")
    ci.switch("STUB_NO_LEDGER")

    with pytest.raises(CommandError, match=r"^build_1 ended with 1"):
        CodeBuild(ci.machines, ci.head).run(ci.files["publish"])

    assert not any(line.startswith("build") for line in ci.called)


def test_secrets_of_github_reach_their_jobs_only(project: Tree, tmp_path: Path) -> None:
    ci = Ci(project, tmp_path, SECRETS, "github")
    secrets = {
        name: f"a-{name}" for name in ("INDEX_TOKEN", "HF_TOKEN", "GPU_TOKEN", "PROMOTE_TOKEN", "OTHER")
    }
    variables = {"INDEX": "an-index", "CHANNEL": "stable", "UNUSED": "x"}
    given = {*secrets, *variables}

    def passed(run: GitHub) -> dict[str, dict[str, str]]:
        return {
            job: {name: value for name, value in environment.items() if name in given}
            for job, environment in run.environments.items()
        }

    def run(event: str, file: str, fork: str = "") -> dict[str, dict[str, str]]:
        github = GitHub(
            ci.machines, event, ci.head, base=ci.base, fork=fork, aws=lambda *_: {},
            secrets=secrets, variables=variables,
        )  # fmt: skip
        github.run(ci.files[file])
        return passed(github)

    index = {"INDEX_TOKEN": "a-INDEX_TOKEN"}
    assert run("pull_request", "pull-request") == {"check": {**index, "INDEX": "an-index"}, "build": index}
    # Also if the repository sends its secrets to forks.
    assert run("pull_request", "pull-request", "a/fork") == {
        "check": {"INDEX_TOKEN": "", "INDEX": ""}, "build": {"INDEX_TOKEN": ""}
    }  # fmt: skip
    promote = {"PROMOTE_TOKEN": "a-PROMOTE_TOKEN", "CHANNEL": "stable"}
    assert run("schedule", "publish") == {
        "plan": index,
        "build": {**index, "HF_TOKEN": "a-HF_TOKEN", "INDEX": "an-index"},
        "promote": promote,
        "gpu": {"GPU_TOKEN": "a-GPU_TOKEN"},
        "promote-gpu": promote,
    }
    upgrade = {**index, "INDEX": "an-index"}
    assert run("schedule", "upgrade") == {
        "upgrade": upgrade, "update": upgrade, "propose-upgrade": {}, "propose-update": {}
    }  # fmt: skip


def test_jobs_with_secrets_assume_roles_from_their_environment(project: Tree, tmp_path: Path) -> None:
    images = 'images = ["tiny", "pytorch-1.13-cu117-py39-extended"]\nshards = 1\n'
    jobs = ("pull-request-build", "plan", "build", "gpu", "promote", "upgrade")
    secrets = "[tool.bakehouse.ci.secrets]\n" + "".join(f'{job} = ["X_TOKEN"]\n' for job in jobs)
    gpu = SAGEMAKER.partition(GPU)[2]
    settings = f"{PUBLISHING}{CI}{images}[tool.bakehouse.ci.gpu]\n{gpu}{secrets}"
    ci = Ci(project, tmp_path, settings, "github")
    assumed: set[tuple[str, str]] = set()

    def assume(role: str, subject: str, region: str) -> dict[str, str]:
        assumed.add((role.rpartition("/")[2].removeprefix("bakehouse-"), subject))
        return {}

    for event, file in (("pull_request", "pull-request"), ("schedule", "publish"), ("schedule", "upgrade")):
        GitHub(ci.machines, event, ci.head, base=ci.base, aws=assume).run(ci.files[file])

    environment = "repo:example/tiny:environment:"
    assert assumed == {
        ("pull", f"{environment}bakehouse-pull-request-build"),
        ("build", f"{environment}bakehouse-plan"),
        ("build", f"{environment}bakehouse-build"),
        ("publish", f"{environment}release"),
        ("smoke", f"{environment}bakehouse-gpu"),
    }
    for role in ("pull", "build", "publish", "smoke"):
        policy = json.loads((project.root / f".github/bakehouse/{role}-trust.json").read_text())
        conditions = policy["Statement"][0]["Condition"]["StringEquals"]
        subjects = conditions["token.actions.githubusercontent.com:sub"]
        assert sorted(subjects) == sorted(subject for name, subject in assumed if name == role)


def test_secrets_of_gitlab_belong_to_the_environment_of_a_job(project: Tree) -> None:
    files = [yaml.safe_load(file.read_text()) for file in generate(project, SECRETS, "gitlab")]

    environments = {
        (number, name): job["environment"]
        for number, file in enumerate(files)
        for name, job in file.items()
        if isinstance(job, dict) and "environment" in job
    }
    propose = {"name": "bakehouse-propose", "action": "access"}
    assert environments == {
        (0, "build"): {"name": "bakehouse-pull-request-build", "action": "access"},
        (1, "build"): {"name": "bakehouse-build", "action": "access"},
        (1, "promote"): "release",
        (1, "gpu"): {"name": "bakehouse-gpu", "action": "access"},
        (1, "promote-gpu"): "release",
        (2, "bakehouse-check"): {"name": "bakehouse-pull-request-check", "action": "access"},
        (2, "bakehouse-upgrade"): {"name": "bakehouse-upgrade", "action": "access"},
        (2, "bakehouse-update"): {"name": "bakehouse-upgrade", "action": "access"},
        (2, "bakehouse-propose-upgrade"): propose,
        (2, "bakehouse-propose-update"): propose,
    }


def test_secrets_of_codebuild_come_from_aws_and_its_roles_may_read_them(project: Tree) -> None:
    files = {file.stem: yaml.safe_load(file.read_text()) for file in generate(project, SECRETS, "codebuild")}

    stores = ("secrets-manager", "parameter-store")
    assert {name: [[*spec["env"].get(store, {})] for store in stores] for name, spec in files.items()} == {
        "bakehouse-pull-request": [["INDEX_TOKEN"], ["INDEX"]],
        "bakehouse-build": [["INDEX_TOKEN"], []],
        "bakehouse-publish": [["INDEX_TOKEN"], []],
        "bakehouse-candidates": [["HF_TOKEN", "INDEX_TOKEN"], ["INDEX"]],
        "bakehouse-gpu": [["GPU_TOKEN"], []],
        "bakehouse-promote": [["PROMOTE_TOKEN"], ["CHANNEL"]],
    }
    assert files["bakehouse-build"]["env"]["secrets-manager"] == {"INDEX_TOKEN": "bakehouse/INDEX_TOKEN"}
    assert files["bakehouse-promote"]["env"]["parameter-store"] == {"CHANNEL": "/bakehouse/CHANNEL"}
    readable = {
        role: {
            each["Sid"]: {arn.rpartition("bakehouse/")[2].removesuffix("-??????") for arn in each["Resource"]}
            for each in json.loads(
                (project.root / f".codebuild/bakehouse/{role}-permissions.json").read_text()
            )["Statement"]
            if each["Sid"] in ("ReadSecrets", "ReadVariables")
        }
        for role in ("pull", "build", "publish")
    }
    assert readable == {
        "pull": {"ReadSecrets": {"INDEX_TOKEN"}, "ReadVariables": {"INDEX"}},
        "build": {"ReadSecrets": {"INDEX_TOKEN", "HF_TOKEN", "GPU_TOKEN"}, "ReadVariables": {"INDEX"}},
        "publish": {"ReadSecrets": {"PROMOTE_TOKEN"}, "ReadVariables": {"CHANNEL"}},
    }


def test_builds_of_pull_requests_in_codebuild_have_no_login_of_git(project: Tree) -> None:
    files = generate(project, SECRETS, "codebuild")

    assert [file.name for file in files if "git-credential-helper" in file.read_text()] == []
    commands = [
        each for file in files for each in pipelines.every_command([yaml.safe_load(file.read_text())])
    ]
    assert [each for each in commands if re.search(r"git (fetch|pull|clone|push)", each)] == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            '[tool.bakehouse.ci.secrets]\nlock = ["X"]\n',
            "unknown key `lock` in [tool.bakehouse.ci.secrets]\n  --> pyproject.toml:6:1\n"
            "hint: use one of `build`, `gpu`, `plan`, `promote`, `pull-request-build`, `pull-request-check`, "
            "`upgrade`",
        ),
        (
            '[tool.bakehouse.ci.variables]\nupgrad = ["X"]\n',
            "unknown key `upgrad` in [tool.bakehouse.ci.variables]\n  --> pyproject.toml:6:1\n"
            "hint: did you mean `upgrade`?",
        ),
        *(
            (
                f'[tool.bakehouse.ci.secrets]\nbuild = ["{name}"]\n',
                f"`build` in [tool.bakehouse.ci.secrets] has an invalid item: `{name}`\n"
                "  --> pyproject.toml:6:1\n"
                "hint: use capital letters, digits and `_`; variables of the CI system and the pipeline are "
                "reserved",
            )
            for name in (
                "x", "1X", "A-B", "A B", "A: b", "${{ x }}", "", "GITHUB_TOKEN", "GH_TOKEN", "CI_JOB_TOKEN",
                "CI", "AWS_ACCESS_KEY_ID", "BAKEHOUSE_PUSH_TOKEN", "BAKEHOUSE_TOKEN", "PATH", "IMAGES",
                "CPU_IMAGES", "SHARD", "NO", "NULL", "BASE", "ACTIONS_RUNTIME_TOKEN", "CODEBUILD_SRC_DIR",
            )
        ),
        (
            '[tool.bakehouse.ci]\nsecrets = {build = "X"}\n',
            "`build` in [tool.bakehouse.ci.secrets] must be a list of strings\n  --> pyproject.toml:6:1",
        ),
        (
            '[tool.bakehouse.ci]\nsecrets = ["X"]\n',
            "`secrets` in [tool.bakehouse.ci] must be a table of jobs, each with a list of names\n"
            "  --> pyproject.toml:6:1",
        ),
        (
            '[tool.bakehouse.ci.secrets]\nbuild = ["X"]\n[tool.bakehouse.ci.variables]\nbuild = ["X"]\n',
            "`X` is both a secret and a variable of the job `build`\n  --> pyproject.toml:8:1",
        ),
    ],
)  # fmt: skip
def test_mistakes_in_secrets_and_variables_are_reported(
    project: Tree, capsys: pytest.CaptureFixture[str], settings: str, message: str
) -> None:
    header = "" if settings.startswith("[tool.bakehouse.ci]") else REQUIREMENT
    if not header:
        settings = settings.replace("[tool.bakehouse.ci]\n", REQUIREMENT)
    configure(project, f"{header}{settings}")

    assert main.run(("ci", "github")) == 2
    error = capsys.readouterr().err
    lines = [line for line in error.splitlines() if line.startswith(("error: ", "  -->", "hint: "))]
    assert "\n".join(lines).removeprefix("error: ") == message.replace(
        ":6:1", ":5:1" if not header else ":6:1"
    )


def test_names_that_look_like_numbers_stay_texts(project: Tree) -> None:
    settings = PUBLISHING + CI + 'branch = "1.10"\nrunner = "64"\n'
    workflows = [yaml.safe_load(file.read_text()) for file in generate(project, settings, "github")]
    gitlab = [yaml.safe_load(file.read_text()) for file in generate(project, settings, "gitlab")]

    events = [event for workflow in workflows for event in workflow[True].values() if event]
    branches = [event["branches"] for event in events if "branches" in event]
    assert branches == [["1.10"]] * 2
    assert {job["runs-on"] for workflow in workflows for job in workflow["jobs"].values()} == {"64"}
    assert {tag for document in gitlab for tag in document[".bakehouse"]["tags"]} == {"64"}


def test_an_upgrade_is_proposed_for_the_branch_of_the_settings(project: Tree, tmp_path: Path) -> None:
    ci = Ci(project, tmp_path, CI + 'branch = "release/1"\n', "github")

    GitHub(ci.machines, "workflow_dispatch", ci.head, "refs/heads/release/1").run(ci.files["upgrade"])

    lines = (tmp_path / "gh.log").read_text().splitlines()
    created = [line.split(" --title")[0] for line in lines if line.startswith("pr create")]
    assert created == [
        f"pr create --base release/1 --head bakehouse/{each}" for each in ("upgrade", "update")
    ]


def test_a_job_that_runs_again_replaces_its_artifacts(project: Tree) -> None:
    workflows = [
        yaml.safe_load(file.read_text()) for file in generate(project, PROJECTS["publishing"], "github")
    ]

    uploads = [
        step["with"]
        for workflow in workflows
        for job in workflow["jobs"].values()
        for step in job["steps"]
        if step.get("uses", "").startswith("actions/upload-artifact@")
    ]
    assert len(uploads) == 7
    assert all(upload["overwrite"] for upload in uploads)


@pytest.mark.parametrize("system", SYSTEMS)
def test_images_for_gpus_stay_candidates(project: Tree, system: str) -> None:
    text = "".join(file.read_text() for file in generate(project, PROJECTS["everything"], system))

    gpu = 'GPU_IMAGES: "pytorch-1.13-cu117-py39-extended pytorch-2.10-cu128-py312-efa"'
    assert gpu in text
    assert 'CPU_IMAGES: "mpi-cpu tiny"\n' in text
    assert "plan $GPU_IMAGES --missing candidate" in text
    assert all("GPU_IMAGES" not in line for line in text.splitlines() if "promote" in line)


SECOND, FIRST = "pytorch-2.10-cu128-py312-efa", "pytorch-1.13-cu117-py39-extended"
JOB = (
    "--on sagemaker --instance-type ml.g6.12xlarge --instance-count 2 "
    "--role arn:aws:iam::123456789012:role/bakehouse-smoke-job "
    """--job {"max_run":3600,"output":"s3://our-smoke-tests/ci"}"""
)
ON_SAGEMAKER = (
    f"plan {FIRST} {SECOND} --missing release --shard 1/1 --names",
    *(f"smoke {image} {JOB} --report {image}.json" for image in (FIRST, SECOND)),
)
ON_RUNNER = (
    ON_SAGEMAKER[0],
    "aws ecr get-login-password --region eu-west-1",
    "docker login --username AWS --password-stdin 123456789012.dkr.ecr.eu-west-1.amazonaws.com",
    *(
        line
        for image in (FIRST, SECOND)
        for line in (
            f"uri {image} --candidate",
            f"docker pull --quiet registry/{image}@sha256:1",
            f"smoke {image} --gpus 8 --image-uri registry/{image}@sha256:1 --report {image}.json",
        )
    ),
)
PROMOTE_GPU = tuple(
    line
    for image in (FIRST, SECOND)
    for line in (f"promote {image} --report {image}.json", f"releases {image} --notes")
)


def publish(ci: Ci, system: str, aws: Callable[..., object]) -> str:
    """Run the pipeline of the branch, and return the summary of GitHub."""
    if system == "github":
        run = GitHub(ci.machines, "schedule", ci.head, aws=aws)
        run.run(ci.files["publish"])
        return run.summary
    if system == "gitlab":
        branch = {"CI_PIPELINE_SOURCE": "push", "CI_COMMIT_BRANCH": "main"}
        GitLab(ci.machines, ci.head, branch, aws).run(".gitlab/bakehouse.yml")
    else:
        try:
            CodeBuild(ci.machines, ci.head).run(ci.files["publish"])
        finally:
            CodeBuild(ci.machines, ci.head).run_build(ci.files["promote"])
    return ""


@pytest.mark.parametrize(
    ("system", "settings", "tests"),
    [
        pytest.param("github", SAGEMAKER, ON_SAGEMAKER, id="github-sagemaker"),
        pytest.param("gitlab", RUNNER, ON_RUNNER, id="gitlab-runner"),
        pytest.param("codebuild", SAGEMAKER, ON_SAGEMAKER, id="codebuild-sagemaker"),
        pytest.param("gitlab", SAGEMAKER, ON_SAGEMAKER, id="gitlab-sagemaker", marks=pytest.mark.release),
        pytest.param("github", RUNNER, ON_RUNNER, id="github-runner", marks=pytest.mark.release),
    ],
)
def test_candidates_are_tested_on_gpus_before_they_are_promoted(
    project: Tree, tmp_path: Path, system: str, settings: str, tests: tuple[str, ...]
) -> None:
    ci = Ci(project, tmp_path, settings, system)
    roles: list[str] = []

    def aws(role: str, subject: str, region: str = "") -> Any:
        roles.append(f"{role.rpartition('/')[2]} {subject.rpartition('/')[2].rpartition(':')[2]}")
        return {} if system == "github" else "a-token"

    summary = publish(ci, system, aws)

    called = ci.called
    push = called.index(f"push --candidate --attest --registry team/team/candidates tiny {FIRST} {SECOND}")
    start = called.index(tests[0], push)
    # Both ends of a pipe are called at the same time.
    assert sorted(called[start : start + len(tests)]) == sorted(tests)
    promoted = [line for line in called[start:] if line.startswith(("promote pytorch", "releases pytorch"))]
    assert promoted == [*PROMOTE_GPU]
    assert set(PROMOTE) <= {*called}
    ran, files = ci.machines.commands, [yaml.safe_load(file.read_text()) for file in ci.files.values()]
    published = [file for file in files if any("gpu" in each for each in pipelines.every_command(file))]
    assert published
    assert {each for file in published for each in pipelines.every_command(file)} <= {*ran}
    if system == "github":
        assert [line for line in summary.splitlines() if line] == ["## tiny", f"## {FIRST}", f"## {SECOND}"]
    # The jobs on GPUs can neither push nor promote.
    smoke = [role for role in roles if role.startswith("bakehouse-smoke")]
    assert smoke == ([] if system == "codebuild" else ["bakehouse-smoke main"])


@each_system_before_a_release
def test_an_image_that_fails_on_gpus_does_not_hold_back_the_others(
    project: Tree, tmp_path: Path, system: str
) -> None:
    ci = Ci(project, tmp_path, SAGEMAKER, system)
    ci.switch("STUB_FAILING", FIRST)

    with pytest.raises(CommandError):
        publish(ci, system, lambda *_: {} if system == "github" else "a-token")

    called = ci.called
    assert set(ON_SAGEMAKER[1:]) <= {*called}
    assert f"releases {FIRST} --notes" not in called
    assert f"releases {SECOND} --notes" in called
    assert "releases tiny --notes" in called


def test_a_candidate_of_an_earlier_run_is_tested_again(project: Tree, tmp_path: Path) -> None:
    ci = Ci(project, tmp_path, SAGEMAKER.replace('"tiny", ', ""), "github")
    ci.switch("STUB_PUBLISHED")

    run = GitHub(ci.machines, "schedule", ci.head, aws=lambda *_: {})
    run.run(ci.files["publish"])

    assert [*run.results] == ["plan", "gpu", "promote-gpu"]
    assert [line for line in ci.called if line.startswith("promote")] == [*PROMOTE_GPU[::2]]


def test_no_candidate_is_tested_if_a_build_failed(project: Tree, tmp_path: Path) -> None:
    ci = Ci(project, tmp_path, SAGEMAKER, "github")
    run = GitHub(ci.machines, "push", ci.head, aws=lambda *_: {})
    stub = tmp_path / "programs/stub-bake"
    stub.write_text(stub.read_text() + 'case "$*" in "build "*) exit 1 ;; esac\n')

    with pytest.raises(CommandError, match=r"^Build 1/1 ended with"):
        run.run(ci.files["publish"])

    assert [*run.results] == ["plan"]


@pytest.mark.parametrize("words", [ON_SAGEMAKER[1], ON_RUNNER[-1]])
def test_bake_has_the_options_of_the_tests_on_gpus(
    project: Tree, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    configure(project, SAGEMAKER.replace('ledger = "s3://our-ledger/releases"\n', ""))

    main.run(words.split())

    # The options were read; neither a candidate nor an image is there.
    error = capsys.readouterr().err
    assert re.search("no candidate of|the engine has no image|container engine", error), error


def test_the_role_of_gpu_tests_can_only_send_smoke_tests(project: Tree) -> None:
    generate(project, SAGEMAKER, "github")

    directory = project.root / ".github/bakehouse"
    trust = json.loads((directory / "smoke-trust.json").read_text())["Statement"][0]
    subjects = trust["Condition"]["StringEquals"]["token.actions.githubusercontent.com:sub"]
    assert subjects == ["repo:example/tiny:ref:refs/heads/main"]
    policy = json.loads((directory / "smoke-permissions.json").read_text())
    statements = {each["Sid"]: each for each in policy["Statement"]}
    actions = {action for each in statements.values() for action in each["Action"]}
    assert actions == {
        "s3:GetObject", "s3:PutObject", "s3:ListBucket", "iam:PassRole",
        "sagemaker:CreateTrainingJob", "sagemaker:DescribeTrainingJob", "sagemaker:StopTrainingJob",
        "logs:DescribeLogStreams", "logs:GetLogEvents",
    }  # fmt: skip
    assert all("*" not in each["Resource"] for each in statements.values())
    assert statements["SendSmokeTests"]["Resource"] == [
        "arn:aws:sagemaker:eu-west-1:123456789012:training-job/smoke-*"
    ]
    assert statements["SendSmokeTests"]["Condition"] == {
        "Null": {"sagemaker:InstanceTypes": "false"},
        "ForAllValues:StringEquals": {"sagemaker:InstanceTypes": ["ml.g6.12xlarge"]},
    }
    assert statements["PassJobRole"]["Resource"] == ["arn:aws:iam::123456789012:role/bakehouse-smoke-job"]
    assert statements["ReadLedger"]["Action"] == ["s3:GetObject"]
    assert statements["ExchangeFiles"]["Resource"] == ["arn:aws:s3:::our-smoke-tests/ci/*"]
    publish = (directory / "publish-permissions.json").read_text()
    assert "sagemaker" not in publish


def test_the_execution_role_of_gpu_tests_can_only_pull_and_write_results(project: Tree) -> None:
    generate(project, SAGEMAKER, "github")

    policy = json.loads((project.root / ".github/bakehouse/smoke-job-permissions.json").read_text())
    statements = {each["Sid"]: each for each in policy["Statement"]}
    assert [name for name, each in statements.items() if each["Resource"] == ["*"]] == [
        "LogIn",
        "WriteMetrics",
    ]
    assert statements["PullCandidates"]["Resource"] == [
        "arn:aws:ecr:eu-west-1:123456789012:repository/team/candidates/*"
    ]
    assert statements["ExchangeFiles"]["Resource"] == ["arn:aws:s3:::our-smoke-tests/ci/*"]
    trust = json.loads((project.root / ".github/bakehouse/smoke-job-trust.json").read_text())
    assert trust["Statement"][0]["Principal"] == {"Service": "sagemaker.amazonaws.com"}


def test_the_role_of_a_gpu_runner_can_only_pull(project: Tree) -> None:
    generate(project, RUNNER, "gitlab")

    policy = json.loads((project.root / ".gitlab/bakehouse/smoke-permissions.json").read_text())
    actions = {action for each in policy["Statement"] for action in each["Action"]}
    assert actions == {
        "ecr:GetAuthorizationToken", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer",
        "s3:GetObject", "s3:ListBucket",
    }  # fmt: skip
    assert not (project.root / ".gitlab/bakehouse/smoke-job-permissions.json").exists()


def test_builds_in_codebuild_can_send_smoke_tests(project: Tree) -> None:
    generate(project, SAGEMAKER, "codebuild")

    policy = json.loads((project.root / ".codebuild/bakehouse/build-permissions.json").read_text())
    names = [each["Sid"] for each in policy["Statement"]]
    assert {"SendSmokeTests", "PassJobRole", "PublishCandidates"} <= {*names}
    assert len(names) == len({*names})


def test_settings_select_the_images_and_the_job(project: Tree) -> None:
    role = "arn:aws:iam::123456789012:role/SageMaker"
    settings = f'{SAGEMAKER}images = ["pytorch-2*"]\nspot = true\nmax_run = 600\nrole = "{role}"\n'

    text = "".join(file.read_text() for file in generate(project, settings, "github"))

    assert f'GPU_TESTED_IMAGES: "{SECOND}"\n' in text
    job = '{"max_run":600,"output":"s3://our-smoke-tests/ci","spot":true}'
    assert f"--role {role} --job '{job}' --report" in text


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            "",
            "[tool.bakehouse.ci.gpu] needs either `instance_type` or `runner`\n"
            "hint: set `instance_type` to test on SageMaker, or `runner` to the label of a runner with GPUs",
        ),
        (
            'instance_type = "ml.g6.12xlarge"\nrunner = "box"',
            "[tool.bakehouse.ci.gpu] needs either `instance_type` or `runner`\n"
            "hint: set `instance_type` to test on SageMaker, or `runner` to the label of a runner with GPUs",
        ),
        (
            'instance_type = "ml.g6.12xlarge"',
            "`instance_type` in [tool.bakehouse.ci.gpu] needs `output`\n"
            "hint: name an S3 location for scripts and results, such as `s3://our-bucket/smoke`",
        ),
        (
            'instance_type = "ml.g6.12xlarge"\noutput = "s3://bucket"\ngpus = 2',
            "`gpus` in [tool.bakehouse.ci.gpu] needs `runner`",
        ),
        (
            'runner = "box"',
            "`runner` in [tool.bakehouse.ci.gpu] needs `gpus`\n"
            "hint: set it to the number of GPUs of the runner",
        ),
        ('runner = "box"\ngpus = 2\nspot = true', "`spot` in [tool.bakehouse.ci.gpu] needs `instance_type`"),
        (
            'instance_type = "ml.g6.12xlarge"\noutput = "bucket/smoke"',
            "`output` in [tool.bakehouse.ci.gpu] is invalid: `bucket/smoke`\n"
            "hint: name an S3 location for scripts and results, such as `s3://our-bucket/smoke`",
        ),
        (
            'instance_type = "ml.g6.12xlarg"\noutput = "s3://bucket"',
            "unknown instance type `ml.g6.12xlarg`\nhint: did you mean `ml.g6.12xlarge`?",
        ),
        (
            'runner = "box"\ngpus = 2\nimages = ["tiny"]',
            "`tiny` matches no image of the pipeline with checks that need GPUs\n"
            "hint: correct `images` in [tool.bakehouse.ci.gpu], or remove the table",
        ),
    ],
)
def test_mistakes_in_the_settings_of_gpu_tests_are_reported(
    project: Tree, capsys: pytest.CaptureFixture[str], settings: str, message: str
) -> None:
    configure(project, f"{GPU}{settings}\n")

    assert main.run(("ci", "github")) in (2, 64)
    lines = capsys.readouterr().err.splitlines()
    assert [lines[0].removeprefix("error: "), *(each for each in lines if each.startswith("hint: "))] == (
        message.splitlines()
    )


def test_codebuild_has_no_runners_with_gpus(project: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    configure(project, RUNNER)

    assert main.run(("ci", "codebuild")) == 64
    assert capsys.readouterr().err == (
        "error: a pipeline for CodeBuild tests GPUs only on SageMaker\n\n"
        "hint: set `instance_type` and `output` in [tool.bakehouse.ci.gpu] instead of `runner`\n"
    )

"""Secrets among the variables of a recipe."""

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.catalog.recipe import load_recipes, read_recipes
from bakehouse.catalog.secrets import kind_of_secret
from bakehouse.errors import RecipeError
from tests.conftest import Tree, error_text
from tests.recipes.test_recipes import catalog

KEY = "AKIA" + "QWERTYUIOPASDFGH"


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("X", KEY, "an AWS access key"),
        ("X", "ghp_" + 36 * "a", "a GitHub token"),
        ("X", "glpat-" + 20 * "a", "a GitLab token"),
        ("X", "hf_" + 34 * "a", "a Hugging Face token"),
        ("X", "sk-ant-" + 30 * "a", "a key of OpenAI or Anthropic"),
        ("X", "xoxb-" + 12 * "1", "a Slack token"),
        ("X", "npm_" + 36 * "a", "a token of a package registry"),
        ("X", "-----BEGIN RSA PRIVATE KEY-----", "a private key"),
        ("DATABASE", "postgres://me:pass@host/db", "a URL with a password"),
        ("AWS_SECRET_ACCESS_KEY", "short", "a secret, by its name"),
        ("WANDB_API_KEY", 40 * "a", "a secret, by its name"),
        ("db_password", "hunter2", "a secret, by its name"),
        ("X", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXAMPLEKEY2", "a random key"),
        ("HF_TOKEN", "", ""),
        ("HF_TOKEN_PATH", "/root/token", ""),
        ("TOKENIZERS_PARALLELISM", "false", ""),
        ("MAX_TOKENS", "4096", ""),
        ("USE_TOKEN", "true", ""),
        ("COMMIT", "9c51f49aa3e161e2ac1cbc99e8f6384adc224ea0", ""),
        ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", ""),
        ("PROXY", "http://proxy.example:3128", ""),
    ],
)
def test_secrets_are_known_by_name_form_and_entropy(name: str, value: str, kind: str) -> None:
    assert kind_of_secret(name, value) == kind


def test_a_secret_is_refused_without_repeating_it(tree: Tree) -> None:
    tree.image(f"summary: x\nbase: debian\nenvironment:\n  A: b\n  KEY: {KEY}\n")
    with pytest.raises(RecipeError) as caught:
        tree.recipes()

    text = error_text(caught.value)
    assert text.startswith(
        "error: `KEY` in `environment` looks like an AWS access key; "
        "everybody who pulls the image can read it\n"
    )
    assert text.endswith(
        "small.yaml:5:3\n\n"
        "hint: set it when the job starts; if it is not secret, add `KEY` to `public_environment`\n"
    )
    assert KEY not in text


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        ("pip install --index-url https://me:pass@host/simple x", "a URL with a password"),
        (f"aws configure set aws_access_key_id {KEY}", "an AWS access key"),
    ],
)
def test_a_secret_in_a_step_is_refused_without_repeating_it(tree: Tree, step: str, kind: str) -> None:
    tree.image(f"summary: x\nbase: debian\nrun:\n  - {step}\n")
    with pytest.raises(RecipeError) as caught:
        tree.recipes()

    assert error_text(caught.value) == (
        f"error: a step of `run` contains {kind}; everybody who pulls the image can read it\n"
        "  --> images/small.yaml:4:5\n"
        "\n"
        "hint: remove it; packages of `requirements` are downloaded with the logins of this machine\n"
    )


def test_a_variable_in_the_url_of_a_step_is_not_a_secret(tree: Tree) -> None:
    step = "git clone https://me:${TOKEN}@host/a https://me:$TOKEN@host/b"
    tree.image(f"summary: x\nbase: debian\nrun: ['{step}']\n")

    assert tree.recipes()["small"].content.run == (step,)


def test_a_variable_can_be_declared_public(tree: Tree) -> None:
    environment = f"environment: {{KEY: {KEY}}}\npublic_environment: [KEY]\n"
    tree.image(f"summary: x\nbase: debian\n{environment}")

    assert tree.recipes()["small"].content.environment == (("KEY", KEY),)


def test_the_recipes_of_bakehouse_have_none() -> None:
    assert load_recipes([HOME / "recipes"], catalog())


@pytest.mark.parametrize(
    "content",
    [
        "files: [{from: ../../other/a.txt, to: /a.txt}]",
        "files: [{from: ../linked, to: /opt/a}]",
        "code: {directory: ../../other, entry_point: a.txt}",
        "requirements: ../../other/a.txt",
    ],
)
def test_files_from_outside_the_project_are_refused(tree: Tree, content: str) -> None:
    project = tree.root / "project"
    tree.write("other/a.txt", "# nothing\n")
    Tree(project).write("linked/b.txt", "")
    (project / "linked" / "a.txt").symlink_to("/etc/hostname")
    recipe = Tree(project).write("images/small.yaml", f"summary: x\nbase: debian\n{content}\n")
    components = tree.catalog()

    def mistakes() -> list[str]:
        recipes = read_recipes([project], components, project=project, locked=False)
        return [mistake.message for broken in recipes.broken for mistake in broken.mistakes]

    [message] = mistakes()
    assert message.endswith(" outside the project")
    recipe.write_text(recipe.read_text() + "outside_project: true\n")
    assert mistakes() == []

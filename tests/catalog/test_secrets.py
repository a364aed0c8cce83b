"""Secrets among the variables of a recipe."""

import io
import random
import re
import string
from pathlib import Path

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.catalog.recipe import load_recipes, read_recipes
from bakehouse.catalog.secrets import Secret, kind_of_secret, secret_in, secret_in_file
from bakehouse.errors import RecipeError
from bakehouse.plan.workspace import conflict_text
from tests.support.errors import refusal
from tests.support.own_recipes import catalog
from tests.support.trees import Tree

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
    text = refusal(RecipeError, tree.recipes)
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
    assert refusal(RecipeError, tree.recipes) == (
        f"error: a step of `run` contains {kind}; everybody who pulls the image can read it\n"
        "  --> images/small.yaml:4:5\n"
        "\n"
        "hint: remove it; packages of `requirements` are downloaded with the logins of this machine\n"
    )


def test_a_variable_in_the_url_of_a_step_is_not_a_secret(tree: Tree) -> None:
    step = "git clone https://me:${TOKEN}@host/a https://me:$TOKEN@host/b"
    tree.image(f"summary: x\nbase: debian\nrun: ['{step}']\n")

    assert [*map(str, tree.recipes()["small"].content.run)] == [step]


def test_a_variable_can_be_declared_public(tree: Tree) -> None:
    environment = f"environment: {{KEY: {KEY}}}\npublic_environment: [KEY]\n"
    tree.image(f"summary: x\nbase: debian\n{environment}")

    assert tree.recipes()["small"].content.environment == (("KEY", KEY),)


def test_the_recipes_of_bakehouse_have_none() -> None:
    assert load_recipes([HOME / "recipes"], catalog(), refusal_of=conflict_text)


@pytest.mark.parametrize(
    "content",
    [
        "files: [{from: ../../other/a.txt, to: /a.txt}]",
        "files: [{from: ../linked, to: /opt/a}]",
        "code: {directory: ../../other, entry_point: a.txt}",
        "requirements: ../../other/a.txt",
    ],
)
def test_files_from_outside_the_repository_are_refused(tree: Tree, content: str) -> None:
    project = tree.root / "project"
    tree.write("other/a.txt", "# nothing\n")
    Tree(project).write("linked/b.txt", "")
    (project / "linked" / "a.txt").symlink_to("/etc/hostname")
    Tree(project).write("images/small.yaml", f"summary: x\nbase: debian\n{content}\n")
    components = tree.catalog()

    def mistakes() -> list[str]:
        recipes = read_recipes([project], components, project=project, locked=False)
        return [mistake.message for broken in recipes.broken for mistake in broken.mistakes]

    [message] = mistakes()
    assert " outside the " in message
    (tree.root / ".git").mkdir()
    assert len(mistakes()) == ("linked" in content)


def found(path: str, content: str | bytes) -> Secret | None:
    return secret_in_file(io.BytesIO(content.encode() if isinstance(content, str) else content), path)


# Joined here, so that scanners do not find them in this file
PRIVATE = "-----BEGIN " + "{}PRIVATE KEY-----"
BODY = "MIIEpAIBAAKCAQEA7bq0\n"
TEXTS = {
    f"id = '{KEY}'": "an AWS access key",
    "AWS_SECRET_ACCESS_KEY=" + 20 * "aB": "an AWS secret access key",
    'aws_secret_access_key = "' + 20 * "a/" + '"': "an AWS secret access key",
    '"SecretAccessKey": "' + 20 * "a+" + '"': "an AWS secret access key",
    "ghp_" + 36 * "a": "a GitHub token",
    "github_pat_" + 22 * "a": "a GitHub token",
    "glpat-" + 20 * "a": "a GitLab token",
    "hf_" + 34 * "a": "a Hugging Face token",
    "xoxb-" + 12 * "1": "a Slack token",
    "AIza" + 35 * "a": "a Google API key",
    "GOCSPX-" + 28 * "a": "a Google client secret",
    "ya29." + 50 * "a": "a Google access token",
    "npm_" + 36 * "a": "a token of a package registry",
    "sk-ant-" + 30 * "a": "a key of OpenAI or Anthropic",
    "sk-" + 20 * "a" + "T3BlbkFJ" + 20 * "a": "a key of OpenAI or Anthropic",
    "dapi" + 32 * "0": "a Databricks token",
    "sk_live_" + 12 * "a": "a Stripe key",
    PRIVATE.format("RSA ") + "\n" + BODY: "a private key",
    PRIVATE.format("OPENSSH ") + "\n" + BODY: "a private key",
    PRIVATE.format("ENCRYPTED ") + "\r\n" + BODY: "a private key",
    PRIVATE.format("RSA ") + "\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0A\n\n" + BODY: "a private key",
    '{"type": "service_account", "private_key": "' + PRIVATE.format("") + "\\n" + BODY: "a private key",
    "K = ('" + PRIVATE.format("") + "\\n'\n    '" + BODY: "a private key",
    "postgres://me:s3cr3t@db.internal/x": "a URL with a password",
    "redis://:s3cr3t@cache:6379": "a URL with a password",
    "extraheader = AUTHORIZATION: basic eDp5": "a password of Git",
}
RANDOM = random.Random(48)


def some(pattern: str) -> str:
    """Return a random text of a pattern: literals, and `{characters:count}`."""
    kinds = {"hex": "0123456789abcdef", "digit": string.digits, "word": string.ascii_letters + string.digits}
    kinds |= {"upper": string.ascii_uppercase + string.digits, "base64": kinds["word"] + "+/"}

    def chosen(match: re.Match[str]) -> str:
        # A key of chance has each kind of character
        text = "".join(RANDOM.choices(kinds[match[1]], k=int(match[2])))
        return ("aZ19" + text)[: int(match[2])] if match[1] in ("word", "base64") else text

    return re.sub(r"\{(\w+):(\d+)\}", chosen, pattern)


SAMPLES = {
    "a random key, by its name": (
        *("WANDB_API_KEY={hex:40}", 'COMET_API_KEY = "{word:25}"', "export NEPTUNE_API_TOKEN='{base64:60}'"),
        *('os.environ["WANDB_API_KEY"] = "{hex:40}"', 'environ.setdefault("DD_API_KEY", "{hex:32}")'),
        *('{"api_key": "{word:32}"}', "api-key: {hex:64}", "client_secret: '{word:40}'", "apiKey={word:39}"),
        *("WANDB_KEY={hex:40}", "COMET_KEY={word:25}"),
        *("secret_key := {base64:44}", "HEROKU_API_KEY={hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}"),
    ),
    "a random key, by its option": (
        *("train --api-key {hex:40}", "wandb --key='{hex:40}'", "run --hub-token {word:34} x"),
    ),
    "a key of Azure": (
        "DefaultEndpointsProtocol=https;AccountName=data;AccountKey={base64:86}==;EndpointSuffix=core",
        "Endpoint=sb://x.servicebus.windows.net/;SharedAccessKeyName=root;SharedAccessKey={base64:43}=",
        *("https://data.blob.core.windows.net/c?sv=2024&sig={word:43}%3D", "secret = {word:3}8Q~{word:34}"),
    ),
    "the URL of a webhook": (
        "https://hooks.slack.com/services/T{upper:10}/B{upper:10}/{word:24}",
        "https://hooks.slack.com/workflows/T{upper:10}/A{upper:10}/{digit:18}/{word:24}",
        *("https://discord.com/api/webhooks/{digit:19}/{word:68}",),
        "https://ptb.discordapp.com/api/webhooks/{digit:18}/{word:68}",
        "https://team.webhook.office.com/webhookb2/{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}@{hex:8}-{hex:4}"
        "-{hex:4}-{hex:4}-{hex:12}/IncomingWebhook/{hex:32}/{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}",
        "https://chat.googleapis.com/v1/spaces/{word:11}/messages?key={word:39}&token={word:43}",
        *("https://hooks.zapier.com/hooks/catch/{digit:7}/{word:7}/",),
        *("https://maker.ifttt.com/trigger/done/with/key/{word:43}",),
        *("https://api.telegram.org/bot{digit:10}:AA{word:33}/sendMessage",),
        "https://open.feishu.cn/open-apis/bot/v2/hook/{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}",
        "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key={hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}",
        "https://chat.team.net/hooks/b7{hex:24}",
    ),
    "a token of a service": (
        *(
            "SG.{word:22}.{word:43}",
            "dop_v1_{hex:64}",
            "hvs.{word:95}",
            "dckr_pat_{word:27}",
            "gsk_{word:52}",
        ),
        *(
            "glsa_{word:32}_{hex:8}",
            "NRAK-{upper:27}",
            "lin_api_{word:40}",
            "ATATT3{word:186}",
            "pul-{hex:40}",
        ),
        *("PMAK-{hex:24}-{hex:34}", "rubygems_{hex:48}", "ABSK{base64:120}", "r8_{word:37}", "key-{hex:32}"),
        *("pplx-{word:48}", "lsv2_pt_{hex:32}_{hex:10}", "shpat_{hex:32}", "AGE-SECRET-KEY-1{upper:58}"),
        *("xapp-1-A{upper:10}-{digit:13}-{hex:64}", "nvapi-{word:64}", "sk-or-v1-{hex:64}", "xai-{word:80}"),
        *("tgp_v1_{word:43}", "pcsk_{word:5}_{word:60}", "jina_{hex:32}{word:28}", "csk-{word:48}"),
        *("tskey-auth-{word:12}-{word:32}", "ntn_{word:46}", "sbp_{hex:40}"),
    ),
    "a login in a header": (
        "curl -H 'Authorization: Bearer {word:40}' https://api.example",
        'headers = {"Authorization": "Basic {base64:32}"}',
    ),
    "a JSON web token": ("ey{word:34}.ey{word:60}.{word:43}",),
    "a key of Weights & Biases": ("wandb login {hex:40}", 'wandb.login(key="{hex:40}")'),
}
PASSWORDS = {
    "app.toml": (
        'password = "hunter2"',
        "db = {user = 'app', password = 'correcthorse'}",
        'db_password="x#y{1}"',
        'user_password = """hunter2"""',
        'pass = "hunter2"',
        'api_token = "hunter2"',
    ),
    "compose.yml": ("  - POSTGRES_PASSWORD=hunter2",),
    "run.sh": ("export DB_PASSWORD=hunter2", 'export PGPASSWORD="hunter2x"'),
    "Dockerfile": ("ENV DB_PASSWORD=hunter2",),
    "conf.xml": ("<password>hunter2</password>",),
    "app.ini": ("password = hunter2", "smtp-password: s3cr3t", "PASSWD=hunter"),
    "app.properties": ("spring.datasource.password=hunter2",),
    "app.yaml": ("  password: hunter2", 'db: {password: "p@ss!"}', "db_password: '12345'  # of the test"),
    "app.json": ('{"user": "app", "password": "hunter2"}',),
    "prod.tfvars": ('db_password = "hunter2"',),
}
NO_PASSWORDS = {
    "app.toml": (
        "password = '${DB_PASSWORD}'",
        'password = ""',
        "password = true",
        "password_file = '/run/x1'",
    ),
    "app.ini": (
        "password = %(password)s",
        "password = <your password>",
        "; no password: none",
        "password = ",
    ),
    "app.yaml": ("password: {type: string}", "password: string", "password: !vault |", "password: Passwort"),
    "app.json": ('"password": "{{ password1 }}"', '"password": "Ihr neues Passwort 2"', '"bos_token": "<s>"'),
    "nsswitch.conf": ("passwd:         files systemd",),
    "train.py": ('password = "hunter2"',),
    "run.sh": ("PASSWORD=$1", 'DB_PASSWORD="$(cat /run/x1)"', "read -p password=", "PASSWORD="),
    "Dockerfile": ("ARG DB_PASSWORD", "ENV DB_PASSWORD=${DB_PASSWORD1}"),
    "conf.xml": ("<password>${db.password1}</password>", "<password></password>"),
    "setup.cfg": ("pass = true", "secret_token = %(token1)s", "access_key = "),
}


@pytest.mark.parametrize(("kind", "pattern"), [(kind, text) for kind in SAMPLES for text in SAMPLES[kind]])
def test_each_kind_of_key_is_recognized_by_samples_of_chance(kind: str, pattern: str) -> None:
    for _ in range(20):
        sample = some(pattern)
        for text in (sample, f"x = 1; {sample}; y", f'"{sample}",'):
            assert found("notes.txt", f"\n{text}\n") == Secret(kind, 2), text
    assert found("notes.txt", re.sub(r"\{(\w+):(\d+)\}", lambda match: "x" * int(match[2]), pattern)) is None


def test_a_key_in_the_environment_or_a_step_is_recognized_too() -> None:
    connection = some("AccountName=data;AccountKey={base64:86}==")

    assert kind_of_secret("STORAGE", connection) == "a key of Azure"
    assert secret_in(some("export WANDB_API_KEY={hex:40}")) == "a random key, by its name"
    assert secret_in("curl -H 'Authorization: Bearer ${TOKEN}' https://x") == ""


@pytest.mark.parametrize(("path", "line"), [(path, line) for path in PASSWORDS for line in PASSWORDS[path]])
def test_passwords_in_settings_are_recognized(path: str, line: str) -> None:
    assert found(path, f"a = 1\n{line}\n") == Secret("a password", 2)


@pytest.mark.parametrize(
    ("path", "line"), [(path, line) for path in NO_PASSWORDS for line in NO_PASSWORDS[path]]
)
def test_variables_types_and_words_in_settings_are_not_passwords(path: str, line: str) -> None:
    assert found(path, f"a = 1\n{line}\n") is None


def test_packages_have_few_false_alarms() -> None:
    """Sources of packages and their settings, as a user's code may have them."""
    site = Path(pytest.__file__).parents[1]
    paths = [
        path for path in sorted(site.rglob("*")) if path.suffix in (".py", ".json", ".toml", ".cfg", ".txt")
    ]
    alarms = []
    for path in paths[::100]:
        if path.is_file() and path.stat().st_size < 200_000:
            with path.open("rb") as file:
                alarms += [str(path)] if secret_in_file(file, str(path)) else []

    assert len(paths) > 4_000
    assert len(alarms) <= 1, alarms


HARMLESS = (
    *(f"sha = '{some('{hex:40}')}'", f"token=sha256:{some('{hex:64}')}", "api_key: TheNameOfAClassAndField2"),
    *("arn:aws:secretsmanager:us-west-2:123456789012:secret:MyTestDatabaseSecret-a1b2c3", "key-value-store"),
    *(
        "from x.tokens import Deb822Token, Deb822FieldNameTokenOfOtherKind",
        "api_key = settings.API_KEY_2_OF_X",
    ),
    *("AKIAIOSFODNN7EXAMPLE", "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    *(
        "ghp_" + 36 * "x",
        "hf_your" + 30 * "a",
        ".sk-toggleable__label-arrow",
        "sklearn-sk-estimator-container-x",
    ),
    *(
        PRIVATE.format(""),
        f"if line == '{PRIVATE.format('RSA ')}':\n    pass",
        "-----BEGIN PUBLIC KEY-----\n" + BODY,
    ),
    *(
        "-----BEGIN CERTIFICATE-----\n" + BODY,
        "https://user:password@host/",
        "https://{user}:{password}@host/",
    ),
    *("postgres://${USER}:${PASSWORD}@db/x", "postgres://postgres:postgres@db/x", "http://a:b@localhost:80/"),
    *(
        "https://<user>:<token>@github.com",
        "ssh://git@github.com/x/y",
        "http://host:8080/a@b",
        "s3://a/b:c@d",
    ),
    *("password = getpass()", "token = os.environ['HF_TOKEN']", "sha256:" + 64 * "a", ""),
)


@pytest.mark.parametrize("text", TEXTS)
def test_secrets_in_files_are_known_by_their_form(text: str) -> None:
    assert found("train.py", f"# First\n\n{text}\n") == Secret(TEXTS[text], 3)
    assert found("train.py", f"{text.rstrip()}  # gitleaks:allow\n") is None or "\n" in text.rstrip()


@pytest.mark.parametrize("text", HARMLESS)
def test_examples_and_placeholders_in_files_are_not_secrets(text: str) -> None:
    assert found("train.py", f"{text}\n") is None


@pytest.mark.parametrize(
    ("path", "content"),
    [
        (".env", "A=b\n"),
        ("conf/.env.production", "export A=b\n"),
        (".ssh/id_rsa", "x"),
        ("keys/id_ed25519", "x"),
        ("a.ppk", "PuTTY-User-Key-File-2: ssh-rsa\n"),
        ("a.p12", "\0\1"),
        ("a.PFX", "\0\1"),
        ("_netrc", "machine a"),
        (".git-credentials", "x"),
        (".aws/credentials", "[default]"),
        (".aws/sso/cache/a.json", "{}"),
        (".pypirc", "[pypi]\npassword = x\n"),
        (".npmrc", "//registry/:_authToken=x\n"),
        (".docker/config.json", '{"auths": {"a": {"auth": "eDp5"}}}'),
        (".kube/config", "users:\n- user:\n    client-key-data: eA==\n"),
        ("prod.kubeconfig", "    token: x\n"),
        ("terraform.tfstate", "{}"),
        (".terraformrc", 'credentials "a" {\n token = "x"\n}\n'),
        ("kaggle.json", '{"username":"a","key":"' + 32 * "0" + '"}'),
        (".cache/huggingface/token", "x"),
        ("gcloud/application_default_credentials.json", '{"refresh_token": "x"}'),
        (".databrickscfg", "[DEFAULT]\ntoken = x\n"),
        (".pgpass", "host:5432:db:user:x\n"),
        (".my.cnf", "[client]\npassword=x\n"),
    ],
)
def test_secrets_in_files_are_known_by_the_name(path: str, content: str) -> None:
    assert found(path, content)
    assert found(f"/opt/ml/code/deep/{path}", content)
    assert found(f"{path}.md", "text") is None


@pytest.mark.parametrize(
    ("path", "content"),
    [
        (".env", ""),
        (".env", "# A=b\nEMPTY=\n"),
        (".env.example", "A=b\n"),
        ("env", "A=b\n"),
        ("id_rsa.pub", "ssh-rsa AAAA"),
        (".npmrc", "//registry/:_authToken=${NPM_TOKEN}\n"),
        (".pypirc", "[distutils]\nindex-servers = a\n"),
        (".docker/config.json", '{"credsStore": "ecr-login"}'),
        ("config.json", '{"auth": "x"}'),
        ("cert.pem", "-----BEGIN CERTIFICATE-----\n" + BODY),
        ("credentials.py", "x"),
        (".aws/config", "[default]\nregion = eu-west-1\n"),
    ],
)
def test_other_files_with_such_names_are_harmless(path: str, content: str) -> None:
    assert found(path, content) is None


def test_a_binary_file_is_known_by_its_name_only() -> None:
    assert found("model.bin", b"\0" + KEY.encode()) is None


@pytest.mark.parametrize("before", [2**20 - 10, 2**20 - 40, 2**21 - 5, 3 * 2**20])
def test_a_secret_anywhere_in_a_large_file_is_found_at_its_line(before: int) -> None:
    lines = before // 64
    content = lines * (63 * "x" + "\n") + (before % 64) * "y" + f" {KEY}\n"

    assert found("data.csv", content) == Secret("an AWS access key", lines + 1)


def test_the_patterns_run_in_every_image() -> None:
    """A copy of the module runs there, without Bakehouse and with an old Python."""
    source = (HOME / "bakehouse/catalog/secrets.py").read_text()

    assert set(re.findall(r"^(?:from|import) (\w+)", source, re.MULTILINE)) <= {
        *("__future__", "collections", "math", "re", "typing")
    }


def test_training_scripts_contain_no_false_alarms() -> None:
    alarms = []
    for path in sorted(Path(HOME / "examples").rglob("*.*")):
        if path.is_file():
            with path.open("rb") as file:
                alarms += [path] if secret_in_file(file, str(path)) else []

    assert alarms == []

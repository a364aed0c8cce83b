"""Location and settings of a project."""

import os
import shutil
from pathlib import Path

import pytest

from bakehouse import __version__
from bakehouse.catalog import project
from bakehouse.catalog.catalog import load_catalog
from bakehouse.catalog.project import HOME
from bakehouse.catalog.recipe import load_recipes
from bakehouse.errors import Location, RecipeError
from bakehouse.plan.workspace import conflict_text
from tests.support.data import text_of
from tests.support.errors import error_text, raised, refusal
from tests.support.trees import Tree

OWN = text_of(__file__, "own")


@pytest.fixture
def own(empty: Tree) -> Tree:
    """A user's own project."""
    empty.write("pyproject.toml", OWN)
    empty.write("recipes/.keep", "")
    empty.write("more/.keep", "")
    empty.write("src/deep/er/.keep", "")
    return empty


def test_settings_are_found_from_a_directory_below(own: Tree) -> None:
    settings = project.find(own.root / "src" / "deep" / "er", {})

    assert settings.root == own.root
    assert settings.recipe_roots == (HOME / "recipes", own.root / "recipes", own.root / "more")
    assert (settings.registry, settings.region, settings.repository_prefix) == ("ecr", "eu-west-1", "team")
    assert (settings.mirrors, settings.ca_file, settings.registry_port) == (
        (str(own.root / "wheels"),),
        own.root / "ca.pem",
        5055,
    )
    assert (settings.images, settings.output) == (own.root / "images", own.root / "build")


@pytest.mark.parametrize(
    "text",
    [
        "[tool.bakehouse]\n",
        "[tool.bakehouse.prices]\n",
        "[tool]\nbakehouse = {}\n",
        'tool.bakehouse.registry = "ecr"\n',
        '[project]\nname = "theirs"\n',
        '[project]\nname = "bakehouse"\n',
        '[project]\nname = """\n[tool.bakehouse]\n"""\n',
    ],
)
def test_the_directory_of_the_ledgers_is_that_of_the_whole_project(empty: Tree, text: str) -> None:
    empty.write("pyproject.toml", text)
    empty.write("src/.keep", "")

    assert project.images_directory(empty.root / "src") == project.find(empty.root / "src", {}).images


def test_a_project_file_that_is_not_text_is_reported_when_ledgers_are_looked_for(empty: Tree) -> None:
    (empty.root / "pyproject.toml").write_bytes(b"\xff")

    with pytest.raises(RecipeError):
        project.images_directory(empty.root)


def test_a_project_without_our_table_is_passed_over(own: Tree) -> None:
    own.write("src/deep/pyproject.toml", '[project]\nname = "inner"\n[tool.ruff]\nline-length = 88\n')

    assert project.find(own.root / "src" / "deep" / "er", {}).root == own.root


def test_outside_of_any_project_it_is_bakehouse_itself(empty: Tree) -> None:
    settings = project.find(empty.root, {})

    assert (settings.root, settings.recipe_roots) == (HOME, (HOME / "recipes",))
    assert (settings.registry, settings.region, settings.mirrors, settings.ca) == ("local", None, (), None)
    assert settings.registry_port == 5050


def test_an_empty_table_is_a_project(empty: Tree) -> None:
    empty.write("pyproject.toml", "[tool.bakehouse]\n")

    assert project.find(empty.root, {}).root == empty.root


def test_the_environment_wins_over_the_file(own: Tree) -> None:
    variables = {
        "BAKEHOUSE_REGISTRY": "registry.example.org",
        "BAKEHOUSE_REGISTRY_PORT": "6000",
        "BAKEHOUSE_CA": "/etc/own.pem",
        "BAKEHOUSE_MIRRORS": "/mnt/a  https://mirror.example.org/b",
    }
    settings = project.find(own.root, variables)

    assert (settings.registry, settings.registry_port, settings.ca) == (
        "registry.example.org",
        6000,
        Path("/etc/own.pem"),
    )
    assert settings.mirrors == (str(own.root / "wheels"), "/mnt/a", "https://mirror.example.org/b")


@pytest.mark.parametrize(
    "text", ["fifty", "0", "65536", "-1", "5050.0", "\u0665", "99999999999999999999", " 5"]
)
def test_a_port_from_the_environment_is_checked(text: str, empty: Tree) -> None:
    assert refusal(RecipeError, project.find, empty.root, {"BAKEHOUSE_REGISTRY_PORT": text}) == (
        f"error: `BAKEHOUSE_REGISTRY_PORT` is `{text}`; it must be a port number, from 1 to 65535\n"
    )


def test_an_empty_variable_counts_as_unset(empty: Tree) -> None:
    settings = project.find(empty.root, {"BAKEHOUSE_REGISTRY_PORT": "", "BAKEHOUSE_CA": ""})

    assert (settings.registry_port, settings.ca) == (5050, None)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"tool = 3\n", ""),
        (b"\xff\n", "`pyproject.toml` is not UTF-8 text"),
        (b"a = \n", "this is not TOML"),
        (b"[tool.bakehouse]\nrecipes = [\n", "this is not TOML"),
        (b"", ""),
    ],
)
def test_an_unreadable_file_causes_no_traceback(content: bytes, message: str, empty: Tree) -> None:
    empty.write("pyproject.toml", content)
    if message:
        with pytest.raises(RecipeError, match=message):
            project.find(empty.root, {})
    else:
        assert project.find(empty.root, {}).root == HOME


def test_a_mistake_in_an_inline_table_is_reported_without_its_line(empty: Tree) -> None:
    empty.write("pyproject.toml", "[tool]\nbakehouse = {regoin = 'x'}\n")
    with pytest.raises(RecipeError, match=r"unknown key `regoin` in \[tool\.bakehouse\]"):
        project.find(empty.root, {})


def test_a_project_commits_all_images_or_those_that_it_names(empty: Tree) -> None:
    empty.write("pyproject.toml", "[tool.bakehouse]\n")
    assert project.find(empty.root, {}).commits("churn")

    empty.write("pyproject.toml", '[tool.bakehouse]\ncommit = ["churn", "small-*"]\n')
    settings = project.find(empty.root, {})
    assert [name for name in ("churn", "churn-arm64", "small-py311") if settings.commits(name)] == [
        "churn",
        "small-py311",
    ]

    empty.write("pyproject.toml", '[tool.bakehouse]\ncommit = ["a b"]\n')
    error = raised(RecipeError, project.find, empty.root, {})
    assert "`commit` in [tool.bakehouse] has an invalid item: `a b`" in error_text(error)
    assert "hint: use a name or a glob of images, such as `churn-*`" in error_text(error)


def test_settings_of_the_checkout_hold_in_other_directories(empty: Tree) -> None:
    settings = project.find(empty.root, {})

    assert settings.is_fallback
    assert settings.commit == project.find(HOME, {}).commit


def test_builders_of_the_table_and_of_buildx(empty: Tree) -> None:
    empty.write("pyproject.toml", '[tool.bakehouse]\nbuilders = ["far", "near"]\n')

    assert project.find(empty.root, {}).builders == ("far", "near")
    assert project.find(empty.root, {"BUILDX_BUILDER": "other"}).builders == ("other",)
    assert project.find(empty.root, {"BUILDX_BUILDER": ""}).builders == ("far", "near")


def test_prices_of_instance_types(empty: Tree) -> None:
    empty.write("pyproject.toml", '[tool.bakehouse.prices]\n"ml.p4d.24xlarge" = 37.688\n"ml.c5.xlarge" = 1\n')

    assert project.find(empty.root, {}).prices == {"ml.p4d.24xlarge": 37.688, "ml.c5.xlarge": 1.0}


@pytest.mark.parametrize("price", ["0", "-1", '"1.5"', "true", "[]"])
def test_a_price_is_a_number(price: str, empty: Tree) -> None:
    empty.write("pyproject.toml", f'[tool.bakehouse.prices]\n"ml.c5.xlarge" = {price}\n')
    with pytest.raises(
        RecipeError, match=r"`ml\.c5\.xlarge` in \[tool\.bakehouse\.prices\] must be a number"
    ):
        project.find(empty.root, {})


def test_prices_are_a_table(empty: Tree) -> None:
    empty.write("pyproject.toml", "[tool.bakehouse]\nprices = 3\n")
    with pytest.raises(RecipeError, match="must be a table of instance types and prices"):
        project.find(empty.root, {})


def test_own_recipes_lie_over_the_catalogue_that_bakehouse_brings(own: Tree) -> None:
    own.write("recipes/images/mpi-cpu.yaml", 'summary: Ours\nbase: {debian: "12"}\ncomponents: {ours: "*"}\n')
    own.write("recipes/components/ours/component.yaml", 'summary: Ours\nreleases: [{version: "1"}]\n')
    own.write("more/components/metis/component.yaml", 'summary: Theirs\nreleases: [{version: "99"}]\n')
    settings = project.find(own.root / "src", {})
    catalog = load_catalog(settings.recipe_roots)
    recipes = load_recipes(settings.recipe_roots, catalog, refusal_of=conflict_text)

    assert recipes["mpi-cpu"].summary == "Ours"
    assert [component.name for component in recipes["mpi-cpu"].components] == ["ours"]
    assert [release.version for release in catalog.components["metis"].releases] == ["99"]
    assert {"ours", "pytorch", "sshd"} <= catalog.components.keys()


def test_a_team_s_ledger_is_in_s3(empty: Tree) -> None:
    empty.write("pyproject.toml", '[tool.bakehouse]\nledger = "s3://our-bucket/team/releases"\n')

    assert project.find(empty.root, {}).ledger == "s3://our-bucket/team/releases"


@pytest.mark.parametrize("address", ["our-bucket", "s3://", "s3://B", "https://our-bucket.s3.amazonaws.com"])
def test_an_invalid_s3_url_is_refused(empty: Tree, address: str) -> None:
    empty.write("pyproject.toml", f'[tool.bakehouse]\nledger = "{address}"\n')

    error = raised(RecipeError, project.find, empty.root, {})

    assert f"`ledger` in [tool.bakehouse] is invalid: `{address}`" in error_text(error)


def test_the_variable_replaces_the_build_cache_of_the_settings(empty: Tree) -> None:
    empty.write("pyproject.toml", '[tool.bakehouse]\nbuild_cache = "registry.example:5000/team/cache"\n')

    assert project.find(empty.root, {}).build_cache == "registry.example:5000/team/cache"
    assert project.find(empty.root, {"BAKEHOUSE_BUILD_CACHE": ""}).build_cache == ""


@pytest.mark.parametrize(
    "reference", ["registry.example", "https://registry.example/a", "r.example/A", "r.example/a:1"]
)
def test_a_build_cache_is_a_host_and_a_repository(empty: Tree, reference: str) -> None:
    empty.write("pyproject.toml", f'[tool.bakehouse]\nbuild_cache = "{reference}"\n')

    text = refusal(RecipeError, project.find, empty.root, {})
    assert f"`build_cache` in [tool.bakehouse] is invalid: `{reference}`" in text
    assert "hint: use a host and a repository, such as `registry.example/team/build-cache`" in text


@pytest.mark.parametrize(
    ("key", "value", "hint"),
    [
        (
            "registry",
            "team/*",
            "use `local`, `ecr`, a name of [tool.bakehouse.registries], or a host and a prefix",
        ),
        ("repository_prefix", "*", "use a prefix such as `team/training`"),
        ("repository_prefix", "Team", "use a prefix such as `team/training`"),
        ("ledger", "s3://our-bucket/*", "use an S3 URL such as `s3://our-bucket/releases`"),
    ],
)
def test_names_in_policies_have_no_wildcards(empty: Tree, key: str, value: str, hint: str) -> None:
    empty.write("pyproject.toml", f'[tool.bakehouse]\n{key} = "{value}"\n')
    [mistake] = raised(RecipeError, project.find, empty.root, {}).diagnostics
    assert mistake.message == f"`{key}` in [tool.bakehouse] is invalid: `{value}`"
    assert (mistake.location and mistake.location.line, mistake.hint) == (2, hint)


@pytest.mark.parametrize(
    "registry", ["local", "ecr", "team", "r.example:5000/team/x", "[::1]:5000/team", "team/x"]
)
def test_a_registry_is_a_name_or_a_host_with_a_prefix(empty: Tree, registry: str) -> None:
    empty.write("pyproject.toml", f'[tool.bakehouse]\nregistry = "{registry}"\n')

    assert project.find(empty.root, {}).registry == registry


def test_a_mistake_in_the_name_of_a_table_is_at_its_header(empty: Tree) -> None:
    empty.write(
        "pyproject.toml",
        '[tool.bakehouse.registries.a]\nhost = "r.example"\n[tool.bakehouse.registries."B b"]\n',
    )
    [mistake] = raised(RecipeError, project.find, empty.root, {}).diagnostics
    assert mistake.message == "`B b` is not a registry name"
    assert mistake.location
    assert (mistake.location.line, mistake.location.column) == (3, 29)


def test_what_is_remembered_can_be_kept_elsewhere(empty: Tree) -> None:
    assert project.find(empty.root, {}).output == HOME / "build"
    settings = project.find(empty.root, {"BAKEHOUSE_STATE": "/var/tmp/other"})
    assert (settings.state, settings.output) == (Path("/var/tmp/other"), Path("/var/tmp/other"))


def test_each_directory_has_a_state_that_no_file_of_it_chooses(tmp_path: Path) -> None:
    states = set()
    for name in ("one", "two", "moved"):
        root = tmp_path / name
        shutil.copytree(tmp_path / "one", root) if name != "one" else (root / ".git").mkdir(parents=True)
        (root / "pyproject.toml").write_text('[project]\nname = "same"\n[tool.bakehouse]\n')
        states.add(project.find(root, {"HOME": str(tmp_path)}).state)
    (tmp_path / "link").symlink_to(tmp_path / "two")

    assert len(states) == 3
    assert {state.parent for state in states} == {tmp_path / ".local/state/bakehouse/projects"}
    assert project.find(tmp_path / "link", {"HOME": str(tmp_path)}).state in states


@pytest.mark.parametrize(
    ("environment", "variable"),
    [
        ({"BAKEHOUSE_STATE": "{root}/nested/state"}, "BAKEHOUSE_STATE"),
        ({"BAKEHOUSE_STATE": "{root}/../outside/link"}, "BAKEHOUSE_STATE"),
        ({"BAKEHOUSE_STATE": "relative"}, "BAKEHOUSE_STATE"),
        ({"XDG_STATE_HOME": "{root}/state"}, "XDG_STATE_HOME"),
        ({"HOME": "{root}"}, "XDG_STATE_HOME"),
    ],
)
def test_a_state_that_a_commit_can_contain_is_not_read(
    environment: dict[str, str], variable: str, empty: Tree
) -> None:
    empty.write("repository/.git/config", "")
    empty.write("repository/nested/pyproject.toml", "[tool.bakehouse]\n")
    root = empty.root / "repository"
    (empty.root / "outside").mkdir()
    (empty.root / "outside/link").symlink_to(root / "images")
    os.chdir(root / "nested")
    values = {name: value.format(root=root) for name, value in environment.items()}
    settings = project.find(root / "nested", values)
    with pytest.raises(RecipeError) as caught:
        print(settings.state)

    place = settings.state_directory or project.state_of(settings.root, settings.user_state)
    assert error_text(caught.value) == (
        f"error: the state directory `{place}` is inside of the repository\n"
        "  because a commit could contain test results there, which `push` would believe\n\n"
        f"hint: set {variable} to a directory outside of `{root}`\n"
    )


@pytest.mark.parametrize(
    ("value", "problem"), [("[" * 5_000, "it is nested too deeply"), ("9" * 5_000, "a number is too long")]
)
def test_settings_that_python_cannot_read(empty: Tree, value: str, problem: str) -> None:
    empty.write("pyproject.toml", f"[tool.bakehouse]\nregion = {value}\n")

    assert f"cannot read `pyproject.toml`: {problem}" in refusal(RecipeError, project.find, empty.root, {})


@pytest.mark.parametrize("price", ["inf", "nan", "-1", "0", "true", '"1"', "9" * 400])
def test_a_price_is_a_number_above_0(empty: Tree, price: str) -> None:
    empty.write("pyproject.toml", f'[tool.bakehouse.prices]\n"ml.m5.xlarge" = {price}\n')

    error = raised(RecipeError, project.find, empty.root, {})

    assert "`ml.m5.xlarge` in [tool.bakehouse.prices] must be a number above 0" in error_text(error)


@pytest.mark.parametrize("name", ["--help", "a b", "$(id)", ""])
def test_a_builder_has_a_name_of_buildx(empty: Tree, name: str) -> None:
    empty.write("pyproject.toml", f'[tool.bakehouse]\nbuilders = ["{name}"]\n')
    assert refusal(RecipeError, project.find, empty.root, {}).startswith(
        f"error: `builders` in [tool.bakehouse] has an invalid item: `{name}`\n  --> pyproject.toml:2:1\n"
    )


def test_a_line_separator_in_a_string_is_not_a_line_of_the_file(empty: Tree) -> None:
    empty.write("pyproject.toml", '[tool.bakehouse]\nca = "\u2028"\nbuilders = ["-"]\n')
    assert "  --> pyproject.toml:3:1\n" in refusal(RecipeError, project.find, empty.root, {})


@pytest.mark.parametrize("text", ["a\\u2028b", "a\\u0085b", "a\\u0000b"])
def test_a_command_of_pipelines_has_one_line(empty: Tree, text: str) -> None:
    empty.write("pyproject.toml", f'[tool.bakehouse.ci]\ntest = "{text}"\n')
    error = raised(RecipeError, project.find, empty.root, {})

    assert "error: `test` in [tool.bakehouse.ci] is invalid: " in error_text(error)


def test_a_key_that_is_given_twice_is_shown_at_both_places(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text('[tool.bakehouse]\n[tool.bakehouse.jobs.a]\nmax_run = 2\nrole = "x"\n  max_run = 3\n')
    with pytest.raises(RecipeError) as caught:
        project.find(tmp_path)
    [mistake] = caught.value.diagnostics
    assert (mistake.message, mistake.hint) == ("`max_run` is given twice", "remove one of them")
    assert mistake.location == Location(path, 5, 3, 7, "  max_run = 3")
    [reason] = mistake.reasons
    assert (reason.text, reason.location) == (
        "the first value is here",
        Location(path, 3, 1, 7, "max_run = 2"),
    )
    # The first value is in an inline table.
    path.write_text("[tool.bakehouse.jobs.a]\nlocal = {sdk = 'a'}\nlocal.sdk = 'b'\n")
    with pytest.raises(RecipeError) as caught:
        project.find(tmp_path)
    assert caught.value.diagnostics[0].message == "this is not TOML"


def test_jobs_are_tables_by_name(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text("[tool.bakehouse.jobs.nightly]\nmax_run = 2\n")
    assert project.find(tmp_path).jobs == {"nightly": {"max_run": 2}}

    path.write_text('[tool.bakehouse.jobs]\na = 1\n"b.yaml" = {}\n')
    error = raised(RecipeError, project.find, tmp_path)
    assert [(mistake.message, mistake.hint) for mistake in error.diagnostics] == [
        ("`a` in [tool.bakehouse.jobs] must be a table", ""),
        (
            "`b.yaml` in [tool.bakehouse.jobs] is not a valid name of a job",
            "use at most 64 letters, digits, `-` and `_`",
        ),
    ]


def test_mirrors_of_debian_are_urls(empty: Tree) -> None:
    empty.write(
        "pyproject.toml", '[tool.bakehouse]\ndebian_mirrors = ["https://mirror.example/debian", "/srv"]\n'
    )
    [diagnostic] = raised(RecipeError, project.find, empty.root, {}).diagnostics
    assert (diagnostic.message, diagnostic.hint) == (
        "`debian_mirrors` in [tool.bakehouse] has an invalid item: `/srv`",
        "use the root URL of an archive, such as `https://mirror.example/debian`",
    )
    empty.write("pyproject.toml", '[tool.bakehouse]\ndebian_mirrors = ["https://mirror.example/debian"]\n')
    added = {"BAKEHOUSE_DEBIAN_MIRRORS": "https://two.example/debian https://two.example/debian-security"}
    assert project.find(empty.root, added).debian_mirrors == (
        "https://mirror.example/debian",
        "https://two.example/debian",
        "https://two.example/debian-security",
    )


def test_the_state_of_a_user_is_in_xdg_directories(empty: Tree) -> None:
    for environment, directory in (
        ({"HOME": "/home/ada"}, "/home/ada/.local/state/bakehouse"),
        ({"HOME": "/home/ada", "XDG_STATE_HOME": "/var/ada"}, "/var/ada/bakehouse"),
    ):
        settings = project.find(empty.root, {**environment, "BAKEHOUSE_REGISTRY_PORT": "5001"})
        assert settings.registry_state == Path(directory, "registry-5001")


@pytest.mark.parametrize("version", ["1", "4", '"2"'])
def test_code_is_for_version_2_or_3_of_the_sdk(empty: Tree, version: str) -> None:
    empty.write("pyproject.toml", f"[tool.bakehouse]\nsagemaker_sdk = {version}\n")

    error = raised(RecipeError, project.find, empty.root, {})

    assert "`sagemaker_sdk` in [tool.bakehouse] must be 2 or 3" in error_text(error)


def test_a_version_that_the_project_does_not_work_with_is_the_first_mistake(empty: Tree) -> None:
    path = empty.root / "pyproject.toml"
    empty.write("pyproject.toml", '[tool.bakehouse]\nrequires = ">=99,<100"\nnew_key = 1\n')

    error = raised(RecipeError, project.find, empty.root, {})

    message = f"this project requires Bakehouse >=99,<100, and this is Bakehouse {__version__}"
    assert [diagnostic.message for diagnostic in error.diagnostics] == [message]
    assert error.diagnostics[0].hint == "install a version that satisfies it, or change `requires`"
    assert error.diagnostics[0].location == Location(path, 2, 1, 8, 'requires = ">=99,<100"')
    assert error.exit_code == 2


@pytest.mark.parametrize("text", ["", ">=0.1", f"=={__version__}", "<99"])
def test_a_version_that_the_project_works_with_is_accepted(empty: Tree, text: str) -> None:
    empty.write("pyproject.toml", f'[tool.bakehouse]\nrequires = "{text}"\n')

    assert project.find(empty.root, {}).root == empty.root


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ('"0.2"', "`requires` in [tool.bakehouse] is invalid: `0.2`"),
        ("0.2", "`requires` in [tool.bakehouse] must be a string"),
    ],
)
def test_a_requirement_that_is_not_a_specifier_is_a_mistake(empty: Tree, value: str, message: str) -> None:
    empty.write("pyproject.toml", f"[tool.bakehouse]\nrequires = {value}\n")

    assert raised(RecipeError, project.find, empty.root, {}).diagnostics[0].message == message


ECR_EU, ECR_US = (f"111122223333.dkr.ecr.{region}.amazonaws.com" for region in ("eu-west-1", "us-east-1"))


@pytest.mark.parametrize(
    ("registry", "hosts"),
    [
        ("local", {"localhost:5050", ECR_EU, ECR_US, "registry.example"}),
        ("ecr", {ECR_EU, ECR_US}),
        ("registry.example/team", {"registry.example"}),
        ("team", {ECR_EU}),
        ("team/prefix", {ECR_EU}),
        ("ecr/prefix", {ECR_EU, ECR_US}),
        ("other-account", set()),
        ("hosted", {"registry.example"}),
        ("hosted/prefix", {"registry.example"}),
    ],
)
def test_the_hosts_that_a_project_publishes_to(empty: Tree, registry: str, hosts: set[str]) -> None:
    empty.write(
        "pyproject.toml",
        f'[tool.bakehouse]\nregistry = "{registry}"\n'
        "[tool.bakehouse.registries]\n"
        'team = {account = "111122223333", regions = ["eu-west-1"]}\n'
        'other-account = {account = "444455556666", regions = ["eu-west-1"]}\n'
        'hosted = {host = "registry.example"}\n',
    )
    settings = project.find(empty.root, {})

    known = ["localhost:5050", ECR_EU, ECR_US, "registry.example"]
    assert {host for host in known if settings.publishes_to(host, "bakehouse/x")} == hosts

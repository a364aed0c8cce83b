"""Hundreds of payloads in every key of `[tool.bakehouse]`: each is refused with its place, or adds nothing.

All keys hold the payload at once; refused ones get their usual value back, until the rest is accepted.
"""

import csv
import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from itertools import cycle, product
from pathlib import Path
from typing import Any

import pytest
import yaml

from bakehouse.catalog import consent
from bakehouse.catalog import project as projects
from bakehouse.catalog.project import ProjectSettings
from bakehouse.commands.ci import pipeline, render
from bakehouse.commands.report import page
from bakehouse.commands.report.fleet import read_fleet
from bakehouse.engine.builder_preflight import is_own_engine
from bakehouse.engine.daemon_info import ProgramResult
from bakehouse.errors import BakehouseError, RecipeError
from bakehouse.ledger.releases import text_of
from bakehouse.plan import dockerfile
from bakehouse.plan.workspace import Workspace, select
from bakehouse.util.toml_table import TomlTable
from tests.support.payloads import each_payload
from tests.support.release_records import a_record
from tests.support.signing_keys import make_key
from tests.support.trees import COMPONENTS, IMAGE, TEMPLATE, Tree, templates

JOBS = ("check", "test", "plan", "build", "gpu", "promote", "upgrade")
SETTINGS = """\
[tool.bakehouse]
requires = @requires=>=0.1
recipes = [@recipes=recipes]
registry = @registry=team
region = @region=eu-west-1
repository_prefix = @repository_prefix=ours
mirrors = [@mirrors=files]
debian_mirrors = [@debian_mirrors=https://mirror.example/debian]
commit = [@commit=small]
ca = @ca=ca.pem
cache = @cache=cache
registry_port = @registry_port=#5051
sagemaker_sdk = @sagemaker_sdk=#2
builders = [@builders=farm]
build_cache = @build_cache=registry.example/cache
build_on_host = @build_on_host=#true
ledger = @ledger=s3://our-bucket/releases
signing_key = @signing_key=signing.pem
[tool.bakehouse.prices]
"ml.c5.xlarge" = @price=#1.5
@instance=ml.g5.xlarge@ = 2
[tool.bakehouse.jobs.nightly]
max_run = 2
[tool.bakehouse.policy]
keys = [@keys=signing.pub]
require = ["sbom", @require=tests]
rebuilds = @rebuilds=#1
[tool.bakehouse.registries.team]
account = @account=123456789012
regions = ["us-east-1", @regions=us-east-2]
profile = @profile=builder
role = @role=arn:aws:iam::123456789012:role/Pusher
fips = @fips=#true
dual_stack = @dual_stack=#true
scan = @scan=HIGH
[tool.bakehouse.registries.team.create]
scan_on_push = @scan_on_push=#true
encryption = @encryption=KMS
tags.team = @tag_value=training
tags.@tag=owner@ = "us"
untagged_days = @untagged_days=#7
pull_accounts = [@pull_accounts=210987654321]
pull_organization = @pull_organization=o-a1b2c3d4e5
[tool.bakehouse.registries.other]
host = @host=registry.example.com
prefix = @other_prefix=other
[tool.bakehouse.registries.third]
prefix = @prefix=team
account = "123456789012"
regions = ["eu-west-1"]
[tool.bakehouse.registries.third.create]
lifecycle = @lifecycle=lifecycle.json
[tool.bakehouse.registries.@registry_name=fourth@]
host = "registry.example.com"
[tool.bakehouse.ci]
images = ["*", @ci_images=small]
requirement = @requirement=https://host.example/bakehouse-1.0-py3-none-any.whl#sha256=%s
test = @test=make test
shards = @shards=#2
runner = @ci_runner=big
branch = @branch=main
repository = @repository=owner/name
role = @ci_role=arn:aws:iam::123456789012:role/Publisher
create = @create=#true
signing_key = @ci_signing_key=awskms:///arn:aws:kms:eu-west-1:123456789012:key/12345678-1234-1234-1234-123456789012
code_scanning = @code_scanning=#true
[tool.bakehouse.ci.secrets]
pull-request-check = ["TOKEN", @check_secret=A_TOKEN]
pull-request-build = ["TOKEN", @test_secret=B_TOKEN]
plan = ["TOKEN", @plan_secret=C_TOKEN]
build = ["TOKEN", @build_secret=D_TOKEN]
gpu = ["TOKEN", @gpu_secret=E_TOKEN]
promote = ["TOKEN", @promote_secret=F_TOKEN]
upgrade = ["TOKEN", @upgrade_secret=G_TOKEN]
[tool.bakehouse.ci.variables]
pull-request-check = ["NAME", @check_variable=A_NAME]
pull-request-build = ["NAME", @test_variable=B_NAME]
plan = ["NAME", @plan_variable=C_NAME]
build = ["NAME", @build_variable=D_NAME]
gpu = ["NAME", @gpu_variable=E_NAME]
promote = ["NAME", @promote_variable=F_NAME]
upgrade = ["NAME", @upgrade_variable=G_NAME]
[tool.bakehouse.ci.gpu]
images = ["*", @gpu_images=gpu]
""" % ("0" * 64)
ON_SAGEMAKER = """\
instance_type = @instance_type=ml.g5.xlarge
instance_count = @instance_count=#2
role = @gpu_role=arn:aws:iam::123456789012:role/Smoke
output = @output=s3://our-smoke/ci
max_run = @max_run=#600
spot = @spot=#true
"""
ON_RUNNER = """\
runner = @gpu_runner=gpu-box
gpus = @gpus=#8
"""
NAMES = {"registry", "ci_images", "gpu_images", "instance_type"}
"""Settings that name something. Payloads name nothing, which the command that looks them up reports."""
VARIABLES = {f"{job}_{kind}" for job in JOBS for kind in ("secret", "variable")}
"""Settings that are names of variables, which may be words such as `END`."""
VARIABLES_OF_CONSENT = {*consent.VARIABLES.values()}
COMMANDS = {"test": " # of the user"}
"""Settings that are a command of the user, with an end by which it is recognized."""
_PARENTS = {"registry_name": "account", "instance": "price"}
"""Names with escapes are not found in the file: their error is at the table, before this field."""
_SLOT = re.compile(r"@(?P<name>[a-z_]+)=(?P<value>[^\n,\]@]*)@?")
_LIFECYCLE = {"rules": [{"selection": {"tagStatus": "untagged"}}]}
_INSTANCES = """\
summary: Instance types
releases:
  - version: "1"
    variants:
      - {name: ml.g5.xlarge, provides: {gpus: "1", gpu-architecture: "8.6", vcpus: "4"}}
"""


class Shop:
    """A project whose settings hold payloads, and all that Bakehouse makes of them."""

    def __init__(self, root: Path) -> None:
        self.tree = tree = Tree(root / "recipes")
        for name, text in COMPONENTS.items():
            tree.component(name, text, None if name == "debian" else TEMPLATE.format(name=name))
        tree.component("instance", _INSTANCES)
        tree.image(IMAGE)
        tree.image(IMAGE.replace('"cpu-*"', '"cu128-*"'), "gpu")
        self.path = root / "pyproject.toml"
        make_key(root, "signing")
        (root / "lifecycle.json").write_text(json.dumps(_LIFECYCLE))
        (root / "images/small").mkdir(parents=True)
        record = replace(a_record(), image="small")
        (root / "images/small/releases.json").write_text(text_of([record]))
        self.catalog, self.recipes, self.templates = tree.catalog(), tree.recipes(), templates()
        project = ProjectSettings(root, (tree.root,))
        fleet = read_fleet(Workspace(project, self.catalog, self.recipes, self.templates), ())
        self.page = cache(lambda ledger: elements(page.render(replace(fleet, ledger_problem=ledger))))

    def put(self, settings: str, payload: str, fields: Collection[str], after: bool) -> dict[str, int]:
        """Write settings with a payload in some fields, and return the line of each field.

        `after` puts it after the usual value.
        """
        lines = {}

        def value(match: re.Match[str]) -> str:
            name, usual = match["name"], match["value"]
            lines[name] = settings.count("\n", 0, match.start()) + 1
            if name in fields:
                return toml((usual if after else "") + payload + COMMANDS.get(name, ""))
            return usual[1:] if usual.startswith("#") else toml(usual)

        self.path.write_text(_SLOT.sub(value, settings), encoding="utf-8")
        return lines

    def project(self) -> ProjectSettings:
        return projects.find(self.path.parent, {"HOME": "/home/user"})

    def products(self, project: ProjectSettings) -> dict[str, object]:
        """Return the structure of all that is made of the settings."""
        workspace = Workspace(project, self.catalog, self.recipes, self.templates)
        planned = select(workspace, project.ci.images if project.ci else ()).plan
        made = pipeline.make_pipeline(workspace, planned.images)
        products: dict[str, object] = {
            image.name: dockerfile.render_image(image, self.templates)[0].content for image in planned.images
        }
        for system in render.SYSTEMS:
            if system == "codebuild" and made.gpu_tests and made.gpu_tests.settings.runner:
                continue
            for name, text in render.render(system, made).items():
                if name.endswith(".json"):
                    products[name] = structure(json.loads(text), wildcards)
                else:
                    products[name] = script(text, project.ci.test if project.ci else "")
        products["page"] = self.page(project.ledger)
        products["programs"] = programs(project)
        return products


def toml(text: str) -> str:
    """Return a text as a basic string of TOML, which is one of JSON but for DEL."""
    return json.dumps(text).replace("\x7f", "\\u007f")


@cache
def script(text: str, command: str) -> object:
    """Return the structure of a pipeline, whose texts are scripts and expressions."""

    def words(value: str) -> object:
        return "command" if command and value.strip() == command.strip() else operators(value)

    return structure(without_consents(yaml.load(text, yaml.CSafeLoader)), words)


def without_consents(value: Any) -> Any:
    """Return a document without the variables that give consent. No system may evaluate their values."""
    if isinstance(value, list):
        return [without_consents(item) for item in value]
    if not isinstance(value, dict):
        return value
    values = [item for key, item in value.items() if key in VARIABLES_OF_CONSENT]
    assert not any(re.search(r"[$\n\r]", item) for item in values), values
    items = ((key, without_consents(item)) for key, item in value.items() if key not in VARIABLES_OF_CONSENT)
    return {key: item for key, item in items if item or key != "variables"}


def structure(value: Any, of_text: Callable[[str], object]) -> object:
    """Return the shape of a document, in which texts are replaced by what obeys them."""
    if isinstance(value, dict):
        return {str(key): structure(item, of_text) for key, item in value.items()}
    if isinstance(value, list):
        return [structure(item, of_text) for item in value]
    return of_text(value) if isinstance(value, str) else type(value).__name__


def wildcards(text: str) -> list[str]:
    """Return the wildcards of a text in a policy, and its variables."""
    return re.findall(r"[*?]|\$\{", text)


@cache
def operators(text: str) -> tuple[str, ...]:
    """Return the characters of a text that a shell obeys, and GitHub's expressions."""
    quote, obeyed = "", []
    characters = iter(text)
    for character in characters:
        if quote == "'":
            quote = "" if character == "'" else quote
        elif character == "\\":
            next(characters, "")
        elif character in ("'", '"'):
            quote = "" if character == quote else quote or character
        elif character in "$`" or (not quote and character in ";&|<>()\n#*?~"):
            obeyed.append(character)
    return (*obeyed, *re.findall(r"\$\{\{", text), *(["unclosed"] if quote else []))


class Elements(HTMLParser):
    """The elements of a page, with the names of their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, tuple[str, ...]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, tuple(name for name, _ in attrs)))


def elements(html: bytes) -> list[tuple[str, tuple[str, ...]]]:
    parser = Elements()
    parser.feed(html.decode())
    return parser.elements


def programs(project: ProjectSettings) -> list[object]:
    """Return the words of programs that get a setting, and the fields of BuildKit's options."""
    commands: list[tuple[str, ...]] = []
    [name] = project.builders

    def run(*words: str) -> ProgramResult:
        commands.append(words)
        return ProgramResult(0, name)

    assert is_own_engine(name, {"HOME": "/none"}, run)
    options = [[word for word in words if word.startswith("-")] for words in commands]
    [fields] = csv.reader([f"type=registry,ref={project.build_cache}:key"])
    return [options, len(fields)]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return Shop(tmp_path_factory.mktemp("settings"))


def accepted(
    shop: Shop, settings: str, payload: str, fields: frozenset[str], *, after: bool = False
) -> tuple[ProjectSettings, frozenset[str]]:
    """Return the project with a payload in all fields that accept it, and these fields."""
    while True:
        lines = shop.put(settings, payload, fields, after)
        try:
            return shop.project(), fields
        except RecipeError as error:
            locations = [each.location for each in error.diagnostics if each.location]
        places = {location.line for location in locations if location.path == shop.path}
        refused = {name for name in fields if {lines[name], lines.get(_PARENTS.get(name, ""))} & places}
        assert refused, (payload, places)
        fields -= refused


def slots(settings: str) -> frozenset[str]:
    return frozenset(match["name"] for match in _SLOT.finditer(settings))


@each_payload
def test_a_payload_is_refused_with_its_place_or_adds_nothing(shop: Shop, payloads: tuple[str, ...]) -> None:
    forms = [SETTINGS + gpu for gpu in (ON_SAGEMAKER, ON_RUNNER)]
    products = {form: shop.products(accepted(shop, form, "", frozenset())[0]) for form in forms}
    short = [payload for payload in payloads if len(payload) < 8]
    # Every second payload has the other form: both have all kinds of payloads.
    for (payload, after), settings in zip(
        [*product(payloads, [False]), *product(short, [True])], cycle(forms), strict=False
    ):
        usual = products[settings]
        names = NAMES | (VARIABLES if re.fullmatch("[A-Z][A-Z0-9_]*", payload) else set())
        project, fields = accepted(shop, settings, payload, slots(settings) - names, after=after)

        assert shop.products(project) == usual, (payload, after, sorted(fields))


@each_payload
def test_a_name_of_nothing_is_refused_or_adds_nothing(shop: Shop, payloads: tuple[str, ...]) -> None:
    settings = SETTINGS + ON_SAGEMAKER
    for name in sorted(NAMES):
        for payload in payloads:
            project, fields = accepted(shop, settings, payload, frozenset([name]))
            if not fields:
                continue
            without = replace(project, registry="local") if name == "registry" else None
            try:
                products = shop.products(project)
            except BakehouseError:
                continue
            usual = without or accepted(shop, settings, "", frozenset())[0]
            assert products == shop.products(usual), (name, payload)


def test_each_setting_has_a_payload_here(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys come from the readers of the tables. A table of names has a name as a payload."""
    keys: dict[tuple[str, ...], set[str]] = defaultdict(set)
    given: dict[tuple[str, ...], set[str]] = defaultdict(set)

    def check_keys(table: TomlTable, known: Collection[str]) -> None:
        keys[tuple(known)] |= set(known)
        given[tuple(known)] |= table.values.keys()

    monkeypatch.setattr(TomlTable, "check_keys", check_keys)
    for gpu in (ON_SAGEMAKER, ON_RUNNER):
        accepted(shop, SETTINGS + gpu, "", frozenset())

    assert len(keys) == 7
    assert given == keys

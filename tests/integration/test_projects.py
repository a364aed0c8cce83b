"""Projects of customers, used with the installed wheel in a copy that has a history of its own.

`pytest tests/integration/test_projects.py -k rendered --update-snapshots` renders the projects of the
checkout anew, after a change of templates or components.
"""

import ast
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bakehouse.catalog.project import find
from bakehouse.evidence.gate import check_pinned
from bakehouse.ledger.releases import ReleasedComponent
from bakehouse.plan.workspace import open_workspace, select
from tests.integration.journeys import (
    IMAGES,
    PROJECTS,
    ROLE,
    SMP_JOB,
    Customer,
    Journey,
    change_requirements,
    record_result,
    recorded,
    remove_images,
    travel,
)
from tests.integration.ports import kept_port
from tests.support.ledgers import ECR, release
from tests.support.programs import docker
from tests.support.vendors import vendors


@pytest.fixture
def customer(request: pytest.FixtureRequest, programs: Path, tmp_path: Path) -> Iterator[Customer]:
    """The project that the test is parametrized with."""
    with kept_port() as port:
        yield Customer(request.param, tmp_path, programs, port)


def each_project(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("customer", names or [*IMAGES], indirect=True)


def only_with_release(parameters: Iterable[Any], is_quick: Callable[[Any], bool]) -> list[Any]:
    """Leave all other parameters to `./bake test --release`."""
    return [
        parameter if is_quick(parameter) else pytest.param(parameter, marks=pytest.mark.release)
        for parameter in parameters
    ]


@each_project()
def test_rendered_files_are_committed(customer: Customer, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-snapshots"):
        customer.bake("render", *customer.images)
        committed = PROJECTS / customer.root.name / "images"
        shutil.rmtree(committed, ignore_errors=True)
        shutil.copytree(customer.root / "images", committed, ignore=shutil.ignore_patterns("files"))
        customer.commit("Render")

    output = customer.bake("render", "--check", *customer.images)

    assert f"{len(customer.images)} image" in output
    assert customer.git("status", "--short") == ""


@each_project()
def test_images_resolve_and_are_explained(customer: Customer) -> None:
    for image in customer.images:
        assert customer.bake("resolve", image).startswith(f"{image}\n  ")
        assert customer.bake("explain", image, "python").startswith("python ")
    listed = customer.bake("list").splitlines()[: len(customer.images)]

    assert {line.split()[0] for line in listed} == {*customer.images}


@pytest.mark.release
@each_project()
def test_everything_is_locked(customer: Customer) -> None:
    # The registry of this image's base may be out of reach
    customer.bake("lock", "--check", *(image for image in customer.images if image != "search-ranking"))


@each_project("llm-finetune", "tabular", "vision")
def test_a_changed_source_changes_no_other_committed_file(customer: Customer) -> None:
    [image] = customer.images
    customer.bake("render")
    customer.append("src/train.py", "\n# The end\n")

    customer.bake("render", "--check")
    assert customer.bake("plan", "--from", "HEAD", "--names").split() == [image]
    assert "/opt/ml/code/train.py" in customer.bake("diff", image, "--from", "HEAD")
    customer.bake("render")
    assert [line.split()[-1] for line in customer.git("status", "--short").splitlines()] == ["src/train.py"]


@each_project("tabular")
def test_a_failed_journey_keeps_the_last_good_result(customer: Customer, tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    results.write_text('{"vision": {}}\n')
    with pytest.raises(AssertionError) as caught, record_result("tabular", customer, results):
        customer.bake("explain", "typo")
    assert caught.value.__notes__ == ["`results.json` has no result of `tabular`."]
    assert json.loads(results.read_text()) == {"vision": {}}

    with record_result("tabular", customer, results):
        customer.bake("list")
    good = json.loads(results.read_text())
    assert list(good) == ["tabular", "vision"]
    assert list(good["tabular"]) == ["commit", "date", "seconds"]
    assert good["tabular"]["seconds"].keys() == {"explain", "list"}
    with pytest.raises(KeyboardInterrupt) as stopped, record_result("tabular", customer, results):
        raise KeyboardInterrupt

    kept = f"of commit {good['tabular']['commit']}, {good['tabular']['date']}"
    assert stopped.value.__notes__ == [f"`results.json` keeps the last good result of `tabular`, {kept}."]
    assert json.loads(results.read_text()) == good


def test_a_recipe_with_a_mistake_does_not_stop_other_teams(
    customer_of_monorepo: Customer,
) -> None:
    customer = customer_of_monorepo

    assert "unknown component `audti`" in customer.bake("render", "--check", "search-index", code=2)
    customer.bake("render", "--check", "ads-*")
    recipe = customer.root / "teams/search/images/search-index.yaml"
    recipe.write_text(recipe.read_text().replace("audti", "audit"))
    assert "  audit 1.0\n" in customer.bake("resolve", "search-index")
    customer.bake("render", "search-index")
    customer.bake("render", "--check", "search-index")


@pytest.fixture
def customer_of_monorepo(programs: Path, tmp_path: Path) -> Iterator[Customer]:
    with kept_port() as port:
        yield Customer("monorepo", tmp_path, programs, port)


def test_components_and_images_of_a_project_replace_those_of_bakehouse(
    customer_of_monorepo: Customer,
) -> None:
    resolved = customer_of_monorepo.bake("resolve", "mpi-cpu")

    assert "  audit 1.0\n" in resolved
    assert "sagemaker-drivers" not in resolved
    assert "platform/components/mpi4py/component.yaml" in customer_of_monorepo.bake(
        "explain", "ads-features", "mpi4py"
    )


CUDA = "nvidia/cuda:11.3.1-cudnn8-runtime-ubuntu20.04"
BINARIES = (
    "aws-pytorch-unified-cicd-binaries.s3.us-west-2.amazonaws.com",
    "sagemaker-distributed-model-parallel.s3.us-west-2.amazonaws.com",
    "smdataparallel.s3.amazonaws.com",
)
"""Hosts of the wheels whose checksums the catalogue does not know."""


@pytest.mark.parametrize("customer", ["smp-legacy"], indirect=True)
def test_an_image_with_unknown_files_may_be_pushed_once_it_is_locked(
    customer: Customer, tmp_path: Path
) -> None:
    assert "4 items are not locked" in customer.bake("lock", "--check", code=4)
    with vendors(tmp_path, BINARIES) as stubs:
        customer.environment |= stubs.environment
        # The catalogue has the digest of the vendor's image, which the stub does not have
        (customer.root / "recipes/pins.yaml").write_text(f"images:\n  {CUDA}: {stubs.digest(CUDA)}\n")
        assert len(customer.bake("lock").splitlines()) == 4
        customer.commit("Lock")
        assert "unknown" not in customer.bake("lock", "--check")
        stubs.moved[CUDA] = 1
        moved = customer.bake("lock", "--check", code=4)
        assert f"error: the tag of `{CUDA}` has moved\n  --> recipes/pins.yaml:4:50\n" in moved
        assert f"now      {stubs.digest(CUDA)}\n" in moved

    assert "  smp 1.7.0 " in customer.bake("resolve", "smp-legacy")
    assert customer.bake("explain", "smp-legacy", "smp").startswith("smp 1.7.0 ")
    customer.bake("render")
    customer.bake("render", "--check")
    lock = json.loads((customer.root / "images/smp-legacy/lock.json").read_text())
    assert lock["base"]["digest"]
    assert "@sha256:" in lock["base"]["build"]
    assert [archive["file"] for archive in lock["archives"] if not archive["sha256"]] == []
    [image] = select(open_workspace(customer.root), customer.images).plan.images
    check_pinned(image)


@pytest.mark.parametrize("customer", ["smp-legacy"], indirect=True)
def test_the_estimator_of_an_image_with_smp_switches_it_on(customer: Customer) -> None:
    job = (
        "--instance-type",
        "ml.p3.16xlarge",
        "--instance-count",
        "2",
        "--distribution",
        json.dumps(SMP_JOB),
    )
    assert customer.bake("validate", "smp-legacy", *job) == "smp-legacy: the job is valid, 1 warning\n"
    versions = {"pytorch": "1.10.2", "smp": "1.7.0", "smddp": "1.4.0", "nvidia-cuda": "11.3.1"}
    components = tuple(ReleasedComponent(name, version, "") for name, version in versions.items())
    # As `bake push` would record it
    release(customer.root / "images", "smp-legacy", ECR, parts=components, gpu=True)

    printed = customer.bake("estimator", "smp-legacy", *job, "--role", ROLE)

    call = next(node for node in ast.walk(ast.parse(printed)) if isinstance(node, ast.Call))
    arguments = {each.arg: each.value for each in call.keywords}
    assert ast.literal_eval(arguments["distribution"]) == SMP_JOB


FEATURES = (
    *("--source-dir", "teams/ads/features", "--entry-point", "features.py"),
    *("--distribution", "mpi", "--instance-count", "2"),
)
JOURNEYS = (
    Journey(
        "llm-finetune",
        "llm-finetune",
        "requirements.txt",
        ("--job", '{"distribution": "torch_distributed", "processes_per_host": 2}'),
        "trained on 2 ranks",
    ),
    Journey(
        "tabular",
        "tabular",
        "requirements.txt",
        ("--distribution", "mpi", "--instance-count", "2"),
        "trained on 2 ranks",
    ),
    Journey("vision", "vision", "requirements.txt", (), "brightness ", moves_base=True),
    Journey("monorepo", "ads-ranking", "teams/ads/requirements.txt", (), "loss "),
    Journey("monorepo", "ads-features", "", FEATURES, "features of 2 ranks"),
    Journey("monorepo", "mpi-cpu", "", FEATURES, "features of 2 ranks"),
)


@pytest.mark.timeout(300)
def test_a_changed_requirement_is_locked_and_rendered(customer_of_monorepo: Customer) -> None:
    [journey] = [journey for journey in JOURNEYS if journey.image == "ads-ranking"]

    change_requirements(journey, customer_of_monorepo)

    customer_of_monorepo.bake("render", "--check", journey.image)


@pytest.mark.engine
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "journey", only_with_release(JOURNEYS, is_quick=lambda journey: journey.image == "ads-features"), ids=str
)
def test_from_a_changed_requirement_to_a_released_image(
    journey: Journey, request: pytest.FixtureRequest, programs: Path, tmp_path: Path
) -> None:
    with kept_port() as port:
        customer = Customer(journey.project, tmp_path, programs, port)
        with recorded(str(journey), customer, request.config):
            try:
                travel(journey, customer)
            finally:
                customer.bake("registry", "stop")
                remove_images(customer, journey.image)
    # Layers of several journeys would fill the disk
    settings = find(customer.root)
    for left in (settings.output, settings.state):
        shutil.rmtree(left)


@pytest.mark.engine
@pytest.mark.release
@pytest.mark.timeout(900)
def test_an_image_on_an_unavailable_base_is_rehearsed(
    customer_of_monorepo: Customer, request: pytest.FixtureRequest
) -> None:
    image = "search-ranking"
    with recorded(f"monorepo-{image}", customer_of_monorepo, request.config):
        try:
            report = customer_of_monorepo.bake("rehearse", image)
            assert f"{image}  rehearsed, not built: " in report
        finally:
            for number in docker("image", "ls", "--quiet", f"bakehouse/rehearsal/{image}").split():
                docker("image", "rm", "--force", number)

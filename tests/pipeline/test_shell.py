"""The command `shell` with an engine of a few lines."""

import contextlib
from collections.abc import Iterator, Sequence

import pytest

from bakehouse.cli import main
from bakehouse.cluster import job_runner
from bakehouse.cluster.job import TrainingJob
from bakehouse.engine.protocol import ContainerSpec, StoredImage
from bakehouse.pipeline import shell
from bakehouse.registry.manifest import digest_of
from tests.support import ledgers
from tests.support.fake_engine import DIGEST, FakeEngine, Run
from tests.support.layer_archives import Member, config_of, layer, saved
from tests.support.trees import Tree

CHURN = """\
summary: Trains the churn model
base: {debian: "12"}
components: {python: "3.11", sshd: "*"}
"""
LAYERS = (layer(Member("etc/base", b"base")), layer(Member("etc/own", b"own")))


class Engine(FakeEngine):
    """Engine that has every image but those that a build would make, and whose containers exit with 3."""

    def __init__(self, *lacks: str) -> None:
        super().__init__(lambda spec: Run(exit_code=3))
        self.lacks = lacks
        self.looked_up: list[str] = []

    def image(self, reference: str) -> StoredImage | None:
        self.looked_up.append(reference)
        return None if reference.startswith(self.lacks) else super().image(reference)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, empty: Tree) -> Engine:
    engine = Engine("nothing")
    empty.write("pyproject.toml", '[tool.bakehouse]\nrecipes = ["mine"]\n')
    empty.write("mine/images/churn.yaml", CHURN)

    @contextlib.contextmanager
    def open_engine(*arguments: object, **options: object) -> Iterator[Engine]:
        yield engine

    monkeypatch.setattr(shell, "open_engine", open_engine)
    return engine


def program(*words: str) -> tuple[str, ...]:
    return ("sh", "-c", '"$@"; exit $?', "sh", *words)


def test_a_command_runs_in_the_container_of_a_host(engine: Engine) -> None:
    assert main.run(["shell", "churn", "--", "ls", "-l"]) == 3

    [spec] = engine.specs
    name = spec.environment["TRAINING_JOB_NAME"]
    job = TrainingJob(
        image=DIGEST, name=name, image_name="churn", command=program("ls", "-l"), has_toolkit=False
    )
    host = job_runner.host_spec(job, "algo-1", f"network of {name}", {})
    region = {"AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1"}
    assert spec == ContainerSpec(
        image=DIGEST,
        command=program("ls", "-l"),
        keep_entrypoint=True,
        hostname="algo-1",
        network=host.network,
        environment={**host.environment, **region},
        files=host.files,
        mounts=host.mounts,
        image_name="churn",
        interactive=True,
    )
    assert "/opt/ml/input/config/resourceconfig.json" in spec.files


def test_the_entry_point_of_an_unknown_image_is_replaced(engine: Engine) -> None:
    assert main.run(["shell", "registry.example/team/image:1", "--", "ls"]) == 3

    assert [(spec.image, spec.keep_entrypoint) for spec in engine.specs] == [(DIGEST, False)]


@pytest.mark.parametrize(("layers", "exit_code"), [(LAYERS, 3), (LAYERS[:1], 64)], ids=["same", "rebuilt"])
def test_a_containerd_store_has_a_release_by_the_tag_of_its_build(
    engine: Engine, empty: Tree, layers: Sequence[bytes], exit_code: int
) -> None:
    """Its digest is that of a manifest, which differs from the pushed one. The configuration is the same."""
    config = digest_of(config_of(LAYERS))
    record = ledgers.release(empty.root / "images", "churn", key="7c1e44b0" * 8, config=config)
    engine.lacks = (record.image_uri, "sha256:")
    engine.archives[DIGEST] = saved(layers)

    assert main.run(["shell", record.image_uri, "--", "ls"]) == exit_code

    assert [spec.image for spec in engine.specs] == [DIGEST] * (exit_code == 3)
    assert engine.looked_up[-1] == "bakehouse/churn:7c1e44b0"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["churn"],
            "image `churn` is not built, or its recipe has changed since\n\nhint: run `bake build churn`",
        ),
        (
            ["chrun"],
            "no recipe is named `chrun`, and the engine has no such image\n\nhint: did you mean `churn`?",
        ),
        (
            ["registry.example/a:1"],
            "the engine has no image `registry.example/a:1`\n\nhint: run `docker pull registry.example/a:1`",
        ),
    ],
)
def test_what_has_no_shell_is_explained(
    words: list[str], message: str, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.lacks = ("",)

    assert main.run(["shell", *words, "--", "ls"]) == 64

    assert capsys.readouterr().err.endswith(f"error: {message}\n")
    assert engine.specs == []

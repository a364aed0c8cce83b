"""Settings of the base: those that the image states, and those that are not known."""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bakehouse.catalog.catalog import Catalog
from bakehouse.commands.dockerfile_import import base_settings
from bakehouse.commands.dockerfile_import.base_settings import BaseSettings, read_settings
from bakehouse.commands.dockerfile_import.translate import DockerfileBuild, translate
from bakehouse.errors import EngineError, PublishError
from bakehouse.plan.workspace import open_workspace
from bakehouse.registry import destination
from tests.commands.dockerfile_import.translated_dockerfile import Translated

IMAGE = "vendor.example/train:1"
CONFIG = {
    "WorkingDir": "/ws",
    "User": "ada",
    "Shell": ["/bin/bash", "-c"],
    "Env": ["CUDA_HOME=/cuda", "PATH=/own:/bin", "HF_TOKEN=sw0rdfish7"],
    "Entrypoint": ["/entry.sh"],
    "Cmd": ["bash"],
}
DIRECTORY = "the working directory of the base is not known; write an absolute path"
STEPS = """\
COPY tools tools/
RUN touch a $CUDA_HOME
COPY <<E c
$CUDA_HOME
E
ENV PATH=$CUDA_HOME/bin:$PATH TOOL=$CUDA_HOME/x
"""


def test_settings_of_an_asked_base_are_those_of_the_steps(catalog: Catalog, context: Path) -> None:
    settings = read_settings(json.dumps({"config": CONFIG}).encode())
    build = DockerfileBuild(context / "Dockerfile", context, bases={IMAGE: settings})

    proposal = translate(f"FROM {IMAGE}\n{STEPS}RUN echo $HF_TOKEN\n", build, catalog)

    assert str(settings) == (
        "WORKDIR /ws, USER ada, SHELL /bin/bash -c, starts `/entry.sh bash`, 3 variables"
    )
    step = proposal.run[0].step
    assert (step.command, step.user, step.shell) == (
        "mkdir -p /ws && cd /ws\ntouch a $CUDA_HOME",
        "ada",
        ("/bin/bash", "-c"),
    )
    assert "/cuda\n" in proposal.run[-2].step.command
    assert [file.target for file in proposal.files] == ["/ws/tools"]
    assert proposal.environment["TOOL"][0] == "/cuda/x"
    assert "sw0rdfish7" not in str(proposal)


def test_settings_of_a_replaced_base_are_not_known(translated: Callable[[str], Translated]) -> None:
    result = translated(f"FROM {IMAGE}\n{STEPS}")

    assert result.proposal.files == []
    assert [detail for _, _, detail in result.checks] == [
        "the working directory and the user of the base are not known; steps of `run` start in / as root",
        "the catalogue does not contain this image, so the recipe starts from Debian 12; "
        f"run `bake init --base {IMAGE}` to describe it",
        DIRECTORY,
        f"the value of CUDA_HOME is not known: {IMAGE} may set it",
        DIRECTORY,
        "variables are not expanded; write the value into `environment`",
        "a recipe cannot extend PATH; the directory is $CUDA_HOME/bin",
    ]


def test_debian_sets_no_variables(translated: Callable[[str], Translated]) -> None:
    assert translated("FROM debian:12\nRUN for i in 1; do echo $i $FOO; done\n").checks == []


class Stub:
    """An engine and a repository of a registry that have one image."""

    def __init__(self, *_: object) -> None:
        self.digest, self.image, self.config = "index", "image", self

    def manifest(self, reference: str) -> "Stub":
        return self if reference == "1" else Stub()

    def blob(self, digest: str) -> bytes:
        return json.dumps({"config": CONFIG}).encode()

    def read_config(self, reference: str) -> bytes:
        return json.dumps({"config": {"Env": None}}).encode()


@pytest.mark.parametrize(
    ("engine", "registry", "expected"),
    [
        (None, PublishError("down"), BaseSettings()),
        (EngineError("no such image"), None, read_settings(json.dumps({"config": CONFIG}).encode())),
        (EngineError("no such image"), PublishError("down"), None),
    ],
)
def test_the_engine_answers_then_the_registry_then_nothing(
    engine: Exception | None,
    registry: Exception | None,
    expected: BaseSettings | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def opened(error: Exception | None) -> Callable[..., contextlib.AbstractContextManager[Stub]]:
        @contextlib.contextmanager
        def run(*_: object) -> Iterator[Stub]:
            if error:
                raise error
            yield Stub()

        return run

    monkeypatch.setattr(base_settings, "open_engine", opened(engine))
    monkeypatch.setattr(destination, "registry", opened(registry))
    monkeypatch.setattr(base_settings, "Repository", Stub)

    assert base_settings.ask(IMAGE, open_workspace().project, lambda _: None) == expected

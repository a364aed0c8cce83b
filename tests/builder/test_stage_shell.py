"""Calls of buildx for the image of a shell, with a fake docker command."""

import io
import json
from pathlib import Path

import pytest

from bakehouse.builder import failed_steps
from bakehouse.builder.build_context import BuildContext
from bakehouse.builder.progress import Mode, Progress
from bakehouse.builder.stage_shell import build_stage
from bakehouse.catalog.project import ProjectSettings
from bakehouse.engine.buildkit_errors import ImagesFailed
from bakehouse.engine.buildkit_events import Step
from bakehouse.errors import BuildError, Diagnostic
from bakehouse.plan.model import RegistryBase
from tests.support import fake_engine, feeds, plans
from tests.support.errors import raised
from tests.support.fake_commands import put
from tests.support.fake_engine import FakeEngine, Run

IMAGE = plans.changed(fake_engine.image("a"), base=RegistryBase("registry.example/base:1", None))
TAGS = [*IMAGE.names]
DOCKERFILE = """\
FROM base AS metis
RUN first
RUN --mount=type=bind,from=base,target=/mnt second

FROM base AS image
COPY --from=metis / /
"""
BEFORE_SECOND = "FROM base AS metis\nRUN first\n"
COPIES = 'COPY --from=base ["/", "/mnt"]\n'
BUILDX = """\
number=$(ls | grep -c '^call-')
for argument; do case $argument in
    */override.json) cp "$argument" "call-$number.json" ;;
    --metadata-file=*) echo '{"a": {"containerimage.digest": "d", "containerimage.config.digest": "c"}}' \
        > "${argument#*=}" ;;
esac; done
if [ -f "error-$number" ]; then cat "error-$number" >&2; exit 1; fi
"""


class Project:
    """A project with the image `a`, and the calls of buildx."""

    def __init__(self, root: Path) -> None:
        self.root = root
        settings = ProjectSettings(root, (), state_directory=root / "state")
        progress = Progress(io.StringIO(), Mode.LINES)
        engine = FakeEngine(lambda spec: Run())
        self.context = BuildContext(settings, engine, progress, feeds.nothing(root))
        directory = root / "images/a"
        directory.mkdir(parents=True)
        (directory / "docker-bake.json").write_text('{"target": {"a": {"context": "images/a"}}}')
        (directory / "Dockerfile").write_text(DOCKERFILE)

    @property
    def state(self) -> Path:
        return self.context.project.state

    def fails(self, call: int, stage: str, position: str) -> None:
        """Let a call of buildx fail."""
        vertex = {"digest": "d", "name": f"[{stage} {position}] RUN x", "error": "exit code: 2"}
        (self.root / f"error-{call}").write_text(json.dumps({"vertexes": [vertex]}) + "\n")

    @property
    def calls(self) -> list[tuple[str, str, list[str]]]:
        """Name, Dockerfile and tags of the target of each call."""
        targets = (
            json.loads(path.read_text())["target"].items() for path in sorted(self.root.glob("call-*"))
        )
        return [
            (name, target.get("dockerfile-inline", ""), target.get("tags", []))
            for [(name, target)] in targets
        ]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    put(tmp_path, monkeypatch, docker=BUILDX)
    return Project(tmp_path)


def test_the_stage_is_built_to_find_the_step_that_fails(project: Project) -> None:
    project.fails(0, "metis", "2/2")

    cut = build_stage(IMAGE, "metis", "shell:1", project.context)

    assert (cut.step and cut.step.line, cut.copies_binds) == (3, True)
    assert project.calls == [("a-stage", "", TAGS), ("a", BEFORE_SECOND + COPIES, ["shell:1"])]
    assert failed_steps.position_of(IMAGE, "metis", project.state) == "2/2"


@pytest.fixture
def failed_before(project: Project) -> None:
    step = Step("d", "a", "metis", "2/2", "RUN second")
    error = ImagesFailed(Diagnostic("failed"), images=frozenset({"a"}), steps=[step])
    failed_steps.record(error, [IMAGE], project.state)


@pytest.mark.usefixtures("failed_before")
def test_the_step_of_the_last_build_does_not_run_again(project: Project) -> None:
    build_stage(IMAGE, "metis", "shell:1", project.context)

    assert project.calls == [
        ("a-stage", BEFORE_SECOND, TAGS),
        ("a", BEFORE_SECOND + COPIES, ["shell:1"]),
    ]


@pytest.mark.usefixtures("failed_before")
def test_an_earlier_step_that_fails_now_is_where_the_part_ends(project: Project) -> None:
    project.fails(0, "metis", "1/1")

    cut = build_stage(IMAGE, "metis", "shell:1", project.context)

    assert cut.step
    assert cut.step.line == 2
    assert project.calls[-1] == ("a", "FROM base AS metis\n", ["shell:1"])
    assert failed_steps.position_of(IMAGE, "metis", project.state) == "2/2"


def test_binds_that_cannot_be_copied_are_left_out(project: Project) -> None:
    project.fails(0, "metis", "2/2")
    project.fails(1, "metis", "2/2")

    cut = build_stage(IMAGE, "metis", "shell:1", project.context)

    assert not cut.copies_binds
    assert [dockerfile for _, dockerfile, _ in project.calls] == [
        "",
        BEFORE_SECOND + COPIES,
        BEFORE_SECOND,
    ]
    assert failed_steps.position_of(IMAGE, "metis", project.state) == "2/2"


def test_a_stage_without_a_failing_step_is_built_to_its_end(project: Project) -> None:
    cut = build_stage(IMAGE, "metis", "shell:1", project.context)

    assert cut.step is None
    assert project.calls == [
        ("a-stage", "", TAGS),
        ("a", "".join(DOCKERFILE.splitlines(keepends=True)[:4]), ["shell:1"]),
    ]


@pytest.mark.parametrize(
    ("stage", "position", "hint"),
    [
        ("base", "2/2", "look around before this step: `bake shell a --stage base`"),
        # A trigger of the base
        ("metis", "1/3", ""),
    ],
)
def test_a_failure_before_the_first_step_of_the_stage_is_raised(
    project: Project, stage: str, position: str, hint: str
) -> None:
    project.fails(0, stage, position)

    [diagnostic] = raised(BuildError, build_stage, IMAGE, "metis", "shell:1", project.context).diagnostics
    assert diagnostic.hint == hint
    assert len(project.calls) == 1

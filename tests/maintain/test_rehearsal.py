"""Rehearsals with a fake docker command: groups, failures, inputs and verification."""

import io
import json
import re
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from bakehouse.builder.build_context import BuildContext
from bakehouse.builder.build_inputs import BuildInputs
from bakehouse.builder.progress import Mode, Progress
from bakehouse.catalog.project import ProjectSettings
from bakehouse.engine.protocol import ContainerSpec
from bakehouse.errors import BuildError, EngineError
from bakehouse.maintain import rehearsal as rehearse
from bakehouse.maintain.rehearsal import RehearsalResults, Rehearsed
from bakehouse.plan.model import BootstrappedBase, Image, ImageKey, InstalledComponent
from tests.support import fake_engine, feeds, plans
from tests.support.fake_commands import put
from tests.support.fake_engine import DIGEST, HOST, FakeEngine, Run
from tests.support.trees import templates

DEBIAN = BootstrappedBase("bakehouse/debian:12-0f0f0f0f", "bookworm", ())
# The last arguments are the targets; those named `broken` fail. The arguments are recorded.
DOCKER = f"""\
case "$*" in
*" tired"*)
    [ -e tired ] || {{ touch tired; echo "ERROR: DeadlineExceeded" >&2; exit 1; }} ;;
*" dead"*) echo "ERROR: no such job" >&2; exit 1 ;;
*" broken"*)
    echo '{{"vertexes": [{{"digest": "d", "name": "[broken image 2/2] RUN false",' >&2
    echo '"error": "exit code: 1"}}]}}' >&2
    exit 1 ;;
esac
calls=$(dirname "$0")/../calls
mkdir -p "$calls"
found="" targets="" next=""
for argument; do
    case $argument in
    --metadata-file=*) metadata=${{argument#*=}} ;;
    --*) next=$argument; continue ;;
    *) [ "$next" = --file ] || targets="$targets $argument" ;;
    esac
    next=""
done
digest='{{"containerimage.digest": "{DIGEST}", "containerimage.config.digest": "{DIGEST}"}}'
for target in ${{targets# buildx bake}}; do found="$found${{found:+,}}\\"$target\\": $digest"; done
echo "{{$found}}" > "$metadata"
echo "$targets" >> "$calls/targets"
cp ../private/*/apt "$calls"
"""
ANSWER = json.dumps({"component": "part", "installed": "1.0"})


class Engine(FakeEngine):
    """Engine that answers for the image's component, and records removed images."""

    def __init__(self, printed: str = ANSWER) -> None:
        super().__init__(lambda spec: Run(prints=printed))
        self.removed: list[str] = []

    def remove_image(self, name: str) -> bool:
        self.removed.append(name)
        return True


class Rehearsals:
    """Machine that rehearses small images."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.engine = directory, Engine()
        self.done: list[list[str]] = []
        self.secrets = {name: directory / name for name in ("pip", "apt", "mirrors")}
        for name, path in self.secrets.items():
            path.write_text(f"# the machine's {name}\n")
        smoke = directory / "smoke.py"
        smoke.write_text("")
        self.part = InstalledComponent("part", "1.0", "", smoke)

    def image(self, name: str) -> Image:
        plain = fake_engine.image(name, (self.part,))
        key, base_part = ImageKey(name.ljust(64, "0")), InstalledComponent("debian", "12", "")
        return plans.changed(plain, key=key, base=DEBIAN, base_part=base_part, environment={})

    def run(self, *names: str) -> RehearsalResults:
        prepared = rehearse.prepare([self.image(name) for name in names], templates(), DEBIAN, self.directory)
        with ExitStack() as stack:
            progress = stack.enter_context(Progress(io.StringIO(), Mode.LINES))
            project = ProjectSettings(self.directory, (), state_directory=self.directory)
            downloads = feeds.nothing(self.directory)
            inputs = BuildInputs(self.secrets, host=HOST)
            context = BuildContext(project, self.engine, progress, downloads, inputs)
            return rehearse.run_rehearsals(prepared, DEBIAN, context, self._note)

    def _note(self, rehearsals: Sequence[Rehearsed]) -> None:
        self.done.append([rehearsal.rehearsal.real.name for rehearsal in rehearsals])

    def given(self, name: str) -> str:
        return (self.directory / "calls" / name).read_text()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rehearsals:
    put(tmp_path, monkeypatch, docker=DOCKER)
    return Rehearsals(tmp_path)


def names(rehearsals: list[Rehearsed]) -> list[str]:
    return sorted(rehearsal.rehearsal.real.name for rehearsal in rehearsals)


def test_an_image_that_fails_does_not_keep_others_from_being_tried(machine: Rehearsals) -> None:
    outcome = machine.run("a", "broken", "c")

    assert names(outcome.rehearsed) == ["a", "c"]
    assert outcome.failed == ["broken"]
    assert machine.done == [["a", "c"]]
    with pytest.raises(BuildError, match="image `broken` failed to build: stage `image` failed"):
        outcome.require_all()


def test_many_images_come_in_groups_and_neither_they_nor_their_bases_are_kept(machine: Rehearsals) -> None:
    outcome = machine.run(*(f"image{number}" for number in range(10)))

    assert len(outcome.rehearsed) == 10
    assert [len(group) for group in machine.done] == [8, 2]
    *removed, base = machine.engine.removed
    assert sorted(removed) == sorted(result.rehearsal.reference for result in outcome.rehearsed)
    # Both groups are on it
    assert {name for result in outcome.rehearsed for _, name in result.rehearsal.bases} == {base}


def test_an_image_that_cannot_be_removed_does_not_keep_the_others(
    machine: Rehearsals, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remove(name: str) -> bool:
        machine.engine.removed.append(name)
        raise EngineError(f"the container engine could not remove image `{name}`")

    monkeypatch.setattr(machine.engine, "remove_image", remove)
    outcome = machine.run(*(f"image{number}" for number in range(9)))

    assert {result.rehearsal.reference for result in outcome.rehearsed} < {*machine.engine.removed}


def test_few_images_are_kept(machine: Rehearsals) -> None:
    machine.run("a")

    assert machine.engine.removed == []


def test_apt_is_reported_where_its_stubs_are(machine: Rehearsals) -> None:
    machine.run("a")

    own, proxy = machine.given("apt").splitlines()
    assert own == "# the machine's apt"
    url = r"http://apt:[\w-]{32}@127\.0\.0\.1:\d+/"
    assert re.fullmatch(rf'Acquire::http::Proxy::stubs\.bakehouse\.invalid "{url}";', proxy)


def test_what_a_real_part_answers_wrongly_is_a_failure(machine: Rehearsals) -> None:
    machine.engine = Engine(json.dumps({"component": "part", "installed": "2.0"}))
    outcome = machine.run("a")

    assert names(outcome.rehearsed) == []
    assert outcome.failures[0].message == "`part` in image `a` does not have the declared version"


def test_what_was_asked_ran_in_the_rehearsed_image(machine: Rehearsals) -> None:
    machine.run("a")
    [spec] = machine.engine.specs

    assert isinstance(spec, ContainerSpec)
    assert (spec.image, spec.network) == (DIGEST, "none")


def test_what_the_engine_fails_at_is_tried_again(machine: Rehearsals) -> None:
    outcome = machine.run("tired")

    assert names(outcome.rehearsed) == ["tired"]
    assert outcome.failures == []


def test_a_group_that_the_engine_fails_at_does_not_keep_the_next_from_being_tried(
    machine: Rehearsals,
) -> None:
    outcome = machine.run("dead", *(f"image{number}" for number in range(9)))

    assert names(outcome.rehearsed) == ["image7", "image8"]
    assert len(outcome.failed) == 8
    assert [failure.message for failure in outcome.failures] == ["no such job"]

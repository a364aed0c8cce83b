"""Calls of buildx, with a fake docker command."""

import contextlib
import json
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.engine import buildx, usage_lock
from bakehouse.engine.buildkit_errors import EngineTimedOut, ImagesFailed, LayerLost
from bakehouse.engine.buildkit_events import Event, Step, Tick
from bakehouse.engine.buildx import BakedImage, BakeOptions, Target, bake_with_retries
from bakehouse.engine.daemon_paths import DaemonPaths
from bakehouse.errors import BuildError, Diagnostic, EngineError, Location
from bakehouse.util.oci import Digest
from tests.support.errors import raised, refusal
from tests.support.fake_commands import only, put

TARGETS = tuple(Target(name, name, Path("images", name, "docker-bake.json")) for name in ("a", "b"))
# Records its arguments and its last file, then answers as buildx does.
BAKE = """\
printf '%s\\n' "$@" > arguments
for argument; do case $argument in
--metadata-file=*) metadata=${argument#*=} ;;
*/override.json) cp "$argument" . ;;
esac; done
echo '{"vertexes": [{"digest": "d", "name": "[a s 1/1] RUN x", "started": "2026-11-21T01:19:31Z"}]}' >&2
digests() { echo "\\"containerimage.digest\\": \\"$1\\", \\"containerimage.config.digest\\": \\"$2\\""; }
a=$(digests sha256:aa sha256:ac) b=$(digests sha256:bb sha256:bc)
echo "{\\"a\\": {$a}, \\"b\\": {$b}}" > "$metadata"
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("a", "b"):
        directory = tmp_path / "images" / name
        directory.mkdir(parents=True)
        (directory / "Dockerfile").write_text("FROM scratch\n")
        file = {"target": {name: {"context": f"images/{name}", "dockerfile": "Dockerfile"}}}
        (directory / "docker-bake.json").write_text(json.dumps(file))
    monkeypatch.chdir(tmp_path)
    put(tmp_path, monkeypatch, docker=BAKE)
    return tmp_path


def bake(directory: Path, events: list[Event] | None = None, **secrets: Path) -> dict[str, BakedImage]:
    arguments = {"HTTP_PROXY": "http://user:word@proxy.example"}
    on_event = (events if events is not None else []).append
    return buildx.bake(TARGETS, BakeOptions(directory, directory / "state", on_event, secrets, arguments))


def test_one_call_gives_the_digests_of_all_images(project: Path) -> None:
    events: list[Event] = []
    assert bake(project, events) == {
        "a": BakedImage(Digest("sha256:aa"), Digest("sha256:ac")),
        "b": BakedImage(Digest("sha256:bb"), Digest("sha256:bc")),
    }
    assert [event.text for event in events if isinstance(event, Step)] == ["RUN x"]
    assert Tick() in events
    arguments = (project / "arguments").read_text().splitlines()
    assert arguments[:4] == ["buildx", "bake", "--progress=rawjson", "--provenance=false"]
    assert arguments[5:9] == ["--file", "images/a/docker-bake.json", "--file", "images/b/docker-bake.json"]
    assert arguments[-2:] == ["a", "b"]


def test_secrets_and_arguments_travel_in_a_private_file(project: Path) -> None:
    bake(project, pip=Path("/state/a,b/pip"))
    assert "word" not in (project / "arguments").read_text()
    override = json.loads((project / "override.json").read_text())
    extra = {
        "args": {"HTTP_PROXY": "http://user:word@proxy.example"},
        "secret": ['id=pip,"src=/state/a,b/pip"'],
    }
    assert override == {"target": {"a": extra, "b": extra}}
    assert list((project / "state/private").iterdir()) == []


def test_a_target_can_have_its_own_dockerfile_contexts_and_exporter(project: Path) -> None:
    own = replace(
        TARGETS[0], dockerfile="FROM a\n", contexts={"a": "oci-layout:///d@sha256:aa"}, output="type=oci"
    )
    for image in ("a", "b"):
        write_input(project, image, "list.txt", "x")
    baked = buildx.bake([own, TARGETS[1]], BakeOptions(project, project / "state", print))

    shared = {"inputs": "target:bakehouse-inputs"}
    targets = json.loads((project / "override.json").read_text())["target"]
    assert [targets[name] for name in ("a", "b")] == [
        {
            "args": {},
            "secret": [],
            "output": ["type=oci"],
            "dockerfile-inline": "FROM a\n",
            "contexts": {"a": "oci-layout:///d@sha256:aa", **shared},
        },
        {"args": {}, "secret": [], "contexts": shared},
    ]
    assert [*baked] == ["a", "b"]


def test_a_part_of_an_image_only_exports_its_cache(project: Path) -> None:
    write_input(project, "a", "list.txt", "x")
    part = replace(
        TARGETS[0], target="part", part_of="a", stage="tools", dockerfile="FROM a AS tools\n",
        cache_from=("type=local,src=/d",), cache_to="type=local,dest=/d",
    )  # fmt: skip
    baked = buildx.bake([part], BakeOptions(project, project / "state", print))

    assert json.loads((project / "override.json").read_text())["target"]["part"] == {
        "args": {},
        "secret": [],
        "inherits": ["a"],
        "target": "tools",
        "output": ["type=cacheonly"],
        "dockerfile-inline": "FROM a AS tools\n",
        "cache-from": ["type=local,src=/d"],
        "cache-to": ["type=local,dest=/d"],
    }
    assert baked == {}


def test_an_added_mount_does_not_hide_the_line_of_a_failed_step(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "images/a/Dockerfile").write_text("FROM scratch\nRUN --mount=type=secret,id=pip false\n")
    added = "--mount=type=bind,from=bakehouse-files-0f1e,target=/run/bakehouse"
    quoted = f"RUN {added} --mount=type=secret,id=pip false"
    frame = f"Dockerfile:2\n{'-' * 20}\n   2 | >>> {quoted}\n{'-' * 20}\nERROR: exit code: 1\n"
    (project / "frame").write_text(frame)
    put(project, monkeypatch, docker="cat frame >&2; exit 1")

    assert raised(ImagesFailed, bake, project).diagnostics[0].location == Location(
        project / "images/a/Dockerfile", 2, 1, 36, "RUN --mount=type=secret,id=pip false"
    )


@pytest.mark.parametrize(("environment", "builder"), [({}, ""), ({"BUILDX_BUILDER": "near"}, "near")])
def test_only_a_builder_that_is_passed_on_builds(
    project: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], builder: str
) -> None:
    monkeypatch.setenv("BUILDX_BUILDER", "far")
    put(project, monkeypatch, docker=f'echo "$BUILDX_BUILDER" > builder\n{BAKE}')
    buildx.bake(TARGETS, BakeOptions(project, project / "state", print, environment=environment))

    assert (project / "builder").read_text() == f"{builder}\n"


def test_temporary_files_of_buildx_are_removed_though_it_leaves_them(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(project, monkeypatch, docker=f"mktemp > temporary\n{BAKE}")
    bake(project)

    path = Path((project / "temporary").read_text().strip())
    assert path.is_relative_to(project / "state" / "private")
    assert not path.exists()


def write_input(project: Path, image: str, name: str, content: str) -> None:
    path = project / "images" / image / "inputs" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def test_images_of_a_call_share_one_directory_of_inputs(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = '*/override.json) cp "$argument" . ; cp -r "${argument%/*}/bakehouse-inputs" shared'
    put(project, monkeypatch, docker=BAKE.replace('*/override.json) cp "$argument" .', keep))
    for image in ("a", "b"):
        write_input(project, image, "bin/finish-layer", "#!/bin/sh\n")
        write_input(project, image, f"requirements/{image}.txt", image)
    bake(project)

    targets = json.loads((project / "override.json").read_text())["target"]
    assert targets["a"]["contexts"] == targets["b"]["contexts"] == {"inputs": "target:bakehouse-inputs"}
    shared = targets["bakehouse-inputs"]
    assert shared["dockerfile-inline"] == "FROM scratch\nCOPY --chmod=755 . /\n"
    assert shared["context"].endswith("/bakehouse-inputs")
    files = {path.name: path.read_text() for path in (project / "shared").rglob("*") if path.is_file()}
    assert files == {"finish-layer": "#!/bin/sh\n", "a.txt": "a", "b.txt": "b"}
    assert (project / "arguments").read_text().splitlines()[-2:] == ["a", "b"]


def test_an_image_with_another_file_of_the_same_name_keeps_its_own_inputs(project: Path) -> None:
    for image in ("a", "b"):
        write_input(project, image, "list.txt", image)
    bake(project)

    targets = json.loads((project / "override.json").read_text())["target"]
    assert [*targets] == ["a", "b"]
    assert "contexts" not in targets["b"]


def test_the_engine_is_not_restarted_under_a_call(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths, outcomes = DaemonPaths(state=project), set[bool]()
    monkeypatch.setattr("bakehouse.engine.usage_lock.DaemonPaths", lambda: paths)

    def look(event: Event) -> None:
        with usage_lock.exclusive_engine(paths) as is_alone:
            outcomes.add(is_alone)

    buildx.bake(TARGETS, BakeOptions(project, project / "state", look))
    assert outcomes == {False}
    look(Tick())
    assert outcomes == {False, True}


def test_a_failure_is_explained(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(project, monkeypatch, docker="echo 'ERROR: failed to solve: something odd' >&2; exit 1")
    assert refusal(BuildError, bake, project) == (
        "error: something odd\n  not built  `a` and `b` (stopped by this failure)\n"
    )


def test_an_interrupted_call_stops_buildx_and_leaves_nothing(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(project, monkeypatch, docker=f"echo $$ > {project}/pid; echo '{{}}' >&2; exec sleep 60")

    def interrupt(event: Event) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        buildx.bake(TARGETS, BakeOptions(project, project / "state", interrupt))
    pid = (project / "pid").read_text().strip()
    assert subprocess.run(["kill", "-0", pid], capture_output=True).returncode != 0
    assert list((project / "state/private").iterdir()) == []


def test_a_machine_without_docker(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "commands/docker").unlink()
    only(project, monkeypatch)
    assert refusal(EngineError, bake, project) == (
        """\
error: the `docker` command is not installed

hint: run `bake doctor`; it lists what is missing and how to install it
"""
    )


def goes(
    *errors: Exception | None, restart: bool = True, messages: list[str] | None = None
) -> tuple[list[list[str]], int]:
    """Return the targets of each call for the given results, and the number of restarts."""
    left, calls, restarts = list(errors), list[list[str]](), list[int]()

    def bake(targets: Sequence[Target]) -> dict[str, BakedImage]:
        calls.append(["-".join((target.name, *target.uncached)) for target in targets])
        if error := left.pop(0):
            raise error
        return {target.name: BakedImage(Digest("sha256:1"), Digest("sha256:2")) for target in targets}

    def restarted() -> bool:
        restarts.append(1)
        return restart

    targets = [Target(name, name, Path(name)) for name in ("a", "b", "c")]
    with contextlib.suppress(LayerLost):
        report = (messages if messages is not None else []).append
        bake_with_retries(targets, bake, lambda error, left: None, restarted, report)
    return calls, len(restarts)


LOST = LayerLost("the engine lost a layer")
B_FAILED = ImagesFailed(Diagnostic("b failed to build"), images=frozenset({"b"}))


def test_an_image_that_fails_is_left_out_of_the_next_call() -> None:
    assert goes(B_FAILED, None) == ([["a", "b", "c"], ["a", "c"]], 0)


def test_a_target_that_failed_for_the_network_is_given_one_more_try() -> None:
    hiccup = ImagesFailed(
        Diagnostic("image `b` failed to build: curl failed"), images=frozenset({"b"}), is_network_failure=True
    )
    messages = list[str]()
    assert goes(hiccup, None, messages=messages) == ([["a", "b", "c"]] * 2, 0)
    assert messages == ["image `b` failed to build: curl failed (probably a network failure): retrying once"]
    assert goes(hiccup, hiccup, None) == ([["a", "b", "c"], ["a", "b", "c"], ["a", "c"]], 0)


def test_an_engine_that_faltered_is_asked_once_more() -> None:
    faltered = EngineTimedOut("DeadlineExceeded: failed to copy")
    messages = list[str]()
    assert goes(faltered, None, messages=messages) == ([["a", "b", "c"]] * 2, 0)
    assert messages == ["DeadlineExceeded: failed to copy: retrying once"]
    with pytest.raises(EngineTimedOut):
        goes(faltered, faltered, None)


def test_an_engine_that_lost_a_layer_is_restarted_and_given_the_same_again() -> None:
    assert goes(LOST, B_FAILED, LOST, None) == ([["a", "b", "c"], ["a", "b", "c"], ["a", "c"], ["a", "c"]], 2)


def test_an_engine_that_cannot_be_restarted_is_not_asked_again() -> None:
    assert goes(LOST, None, restart=False) == ([["a", "b", "c"]], 1)


def lost(stage: str, *read: str) -> LayerLost:
    error = LayerLost("the engine lost a layer")
    error.stages, error.read = frozenset({stage}), frozenset(read)
    return error


def test_an_engine_that_cannot_be_restarted_builds_the_stages_without_a_layer_anew() -> None:
    messages = list[str]()

    assert goes(lost("metis"), lost("python"), None, restart=False, messages=messages) == (
        [["a", "b", "c"], ["a-metis", "b-metis", "c-metis"], *[[f"{name}-metis-python" for name in "abc"]]],
        2,
    )
    assert messages == [
        "the engine lost a layer (a BuildKit bug): building `metis` without the cache",
        "the engine lost a layer (a BuildKit bug): building `python` without the cache",
    ]


def test_a_stage_that_lacks_a_layer_again_is_given_up_after_those_that_it_reads() -> None:
    again = lost("metis", "toolchain")
    calls, _ = goes(again, again, again, None, restart=False)
    assert [names[0] for names in calls] == ["a", "a-metis", "a-metis-toolchain"]


def test_an_engine_that_goes_on_losing_layers_is_given_up() -> None:
    assert goes(*[LOST] * 9) == ([["a", "b", "c"]] * 4, 3)


def test_an_image_that_is_first_is_exported_before_the_others(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each call keeps its override file, and tells of a step of `a` and of an export of its last target.
    put(
        project,
        monkeypatch,
        docker="""\
number=$(ls | grep -c override)
for argument; do case $argument in
--metadata-file=*) metadata=${argument#*=} ;;
*/override.json) cp "$argument" "override-$number.json" ;;
esac; done
time='"started": "2026-11-21T01:19:31Z", "completed": "2026-11-21T01:19:32Z"'
echo "{\\"vertexes\\": [{\\"digest\\": \\"d\\", \\"name\\": \\"[a s 1/1] RUN x\\", $time}]}" >&2
echo "{\\"vertexes\\": [{\\"digest\\": \\"e$number\\", \\"name\\": \\"[b] exporting to image\\", $time}]}" >&2
digests() { echo "\\"containerimage.digest\\": \\"$1\\", \\"containerimage.config.digest\\": \\"$2\\""; }
if [ $number = 0 ]; then echo "{\\"a\\": {$(digests sha256:aa sha256:ac)}, \\"b\\": {}}"
else echo "{\\"b\\": {$(digests sha256:bb sha256:bc)}}"
fi > "$metadata"
""",
    )
    events: list[Event] = []
    digests = buildx.bake(
        [*TARGETS, replace(TARGETS[1], target="part", part_of="b")],
        BakeOptions(project, project / "state", events.append),
        first={"a"},
    )
    assert digests == {
        "a": BakedImage(Digest("sha256:aa"), Digest("sha256:ac")),
        "b": BakedImage(Digest("sha256:bb"), Digest("sha256:bc")),
    }
    calls = [json.loads((project / f"override-{number}.json").read_text())["target"] for number in (0, 1)]
    assert [{name: target.get("output") for name, target in call.items()} for call in calls] == [
        {"a": None, "b": ["type=cacheonly"], "part": ["type=cacheonly"]},
        {"b": None},
    ]
    assert [event.digest for event in events if isinstance(event, Step)] == ["d", "e0", "e1"]

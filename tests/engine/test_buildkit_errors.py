"""Messages of failed builds, verbatim."""

from pathlib import Path

import pytest

from bakehouse.cli.diagnostics import failure_text
from bakehouse.engine.buildkit_errors import (
    EngineTimedOut,
    Failure,
    ImagesFailed,
    LayerLost,
    TransferBroken,
    explain,
)
from bakehouse.engine.buildkit_events import Step
from bakehouse.errors import BuildError, EngineError

DOCKERFILE = """\
# banner
FROM base AS base

# metis 5.1.0: recipes/metis/install.j2
FROM base AS metis
RUN make -j 2 && make install

FROM base AS image
COPY --link --from=metis /out/ /
"""
TEMPLATE = """\
{% block build %}
FROM base AS metis
RUN make -j {{ jobs }} && make install
{% endblock %}
"""
EXIT_2 = 'process "/bin/sh -c make -j 2 && make install" did not complete successfully: exit code: 2'
FRAME = """\
Dockerfile:6
--------------------
   4 |     # metis 5.1.0: recipes/metis/install.j2
   5 |     FROM base AS metis
   6 | >>> RUN make -j 2 && make install
   7 |     
   8 |     FROM base AS image
--------------------
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for image in ("a", "b"):
        directory = tmp_path / "images" / image
        directory.mkdir(parents=True)
        (directory / "Dockerfile").write_text(DOCKERFILE)
    template = tmp_path / "recipes" / "metis" / "install.j2"
    template.parent.mkdir(parents=True)
    template.write_text(TEMPLATE)
    return tmp_path


def step(
    error: str, target: str = "a", digest: str = "d", stage: str = "metis", position: str = "2/2"
) -> Step:
    return Step(digest, target, stage, position, "RUN make -j 2 && make install", 1.0, 2.0, error=error)


def failure_message(
    *steps: Step, text: str = "", tail: tuple[str, ...] = (), exported: tuple[str, ...] = ()
) -> str:
    failure = Failure(("a", "b"), steps, {"d": tail}, text, frozenset(exported))
    dockerfiles = {name: Path("images", name, "Dockerfile") for name in ("a", "b")}
    error = explain(failure, dockerfiles, {"metis": Path("recipes/metis/install.j2")})
    assert isinstance(error, BuildError)
    return "".join(failure_text(diagnostic) for diagnostic in error.diagnostics)


def test_a_failing_step_names_image_stage_line_and_template() -> None:
    stopped = step("exit code: 137: context canceled: context canceled", "b", "e")
    text = f"{FRAME}ERROR: failed to solve: {EXIT_2}\n"

    assert failure_message(
        step(EXIT_2), stopped, text=text, tail=("cc: no such file", "make: *** [all] Error 2")
    ) == (
        """\
error: image `a` failed to build: stage `metis` failed with exit code 2
  --> images/a/Dockerfile:6:1
   |
 6 | RUN make -j 2 && make install
   | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  because rendered from   recipes/metis/install.j2:3:1
  step     metis 2/2
  command  make -j 2 && make install
    | cc: no such file
"""
    )


def test_a_failed_build_of_a_requirement_names_what_it_lacks() -> None:
    text = f"{FRAME}ERROR: failed to solve: {EXIT_2}\n"
    lines = ("x.c:1:10: fatal error: portaudio.h: No such file or directory", "raise Error()")

    message = failure_message(step(EXIT_2, stage="requirements-wheels"), text=text, tail=lines)

    line = "build_packages: {apt: [portaudio19-dev]}"
    hint = f"the build needs the header `portaudio.h`: add `{line}` to the recipe"
    assert message.endswith(f"    | {lines[0]}\n\nhint: {hint}\n")


def test_the_whole_output_of_a_failed_step_is_in_a_file(project: Path) -> None:
    lines = ("first", "ERROR: second", *(f"Get:{number} http://127.0.0.1/x" for number in range(85)))
    failure = Failure(("a", "b"), (step(EXIT_2),), {"d": lines}, "", frozenset())
    error = explain(failure, {"a": Path("images/a/Dockerfile")}, {}, project / "build/logs")

    assert failure_text(error.diagnostics[0]) == (
        """\
error: image `a` failed to build: stage `metis` failed with exit code 2
  step     metis 2/2
  command  make -j 2 && make install
  log      build/logs/a-metis.log
    | ERROR: second
"""
    )
    assert (project / "build/logs/a-metis.log").read_text().splitlines() == [*lines]


def test_a_removed_bridge_stops_all_images() -> None:
    # As an engine whose bridge was deleted says
    error = (
        'process "/x" did not complete successfully: failed to create endpoint b0m1 on network bridge: '
        "adding interface veth3efb44f to bridge docker0 failed: Device does not exist"
    )
    assert failure_message(step(error)) == (
        """\
error: image `a` failed to build: the bridge `docker0` of the container engine does not exist
  step       metis 2/2
  command    make -j 2 && make install
  not built  `b` (stopped by this failure)

hint: restart the engine: another program, such as a second engine, has removed its bridge
"""
    )


def test_the_stages_that_lack_a_layer_are_known() -> None:
    failed = step("failed to stat active key during commit: snapshot 14wp does not exist: not found")
    error = explain(Failure(("a",), (failed,), {}, "", frozenset()), {"a": Path("images/a/Dockerfile")}, {})
    assert isinstance(error, LayerLost)
    assert error.stages == {"metis"}
    assert error.read == {"base"}

    failed = step(failed.error, stage="image")
    error = explain(Failure(("a",), (failed,), {}, "", frozenset()), {"a": Path("images/a/Dockerfile")}, {})
    assert isinstance(error, LayerLost)
    assert error.read == {"base", "metis"}


def test_a_shared_stage_fails_for_all_its_images() -> None:
    text = f"{FRAME}ERROR: failed to solve: {EXIT_2}\n"
    assert failure_message(step(EXIT_2), step(EXIT_2, "b"), text=text).startswith(
        "error: images `a` and `b` failed to build: stage `metis` failed with exit code 2\n"
    )


def test_an_image_that_was_finished_before_is_not_called_stopped() -> None:
    full = "failed to copy: write /var/lib/x: no space left on device"
    assert "not built" not in failure_message(step(full), exported=("b",))


@pytest.mark.parametrize("stopped", ["context canceled", "Unavailable: error reading from server: EOF"])
def test_the_images_that_failed_are_reported_apart_from_those_that_were_stopped(stopped: str) -> None:
    failure = Failure(("a", "b"), (step(EXIT_2), step(stopped, "b", "e")), {}, "", frozenset())
    error = explain(failure, {name: Path("images", name, "Dockerfile") for name in ("a", "b")}, {})
    assert isinstance(error, ImagesFailed)
    assert error.images == {"a"}
    assert error.steps == (failure.steps[0],)


@pytest.mark.parametrize(
    ("line", "expected"),
    [("curl: (28) Connection timed out after 20001 milliseconds", True), ("curl: (22) error: 404", False)],
)
def test_what_the_network_did_alone_is_network_failure(line: str, expected: bool) -> None:
    failure = Failure(("a",), (step(EXIT_2),), {"d": (line,)}, "", frozenset())
    error = explain(failure, {"a": Path("images/a/Dockerfile")}, {})
    assert isinstance(error, ImagesFailed)
    assert error.is_network_failure is expected


def test_an_engine_that_takes_too_long_over_something_of_its_own() -> None:
    message = "DeadlineExceeded: failed to copy: rpc error: code = DeadlineExceeded desc = context deadline"
    failure = Failure(("a", "b"), (), {}, f"ERROR: failed to solve: {message}\n", frozenset({"b"}))
    error = explain(failure, {name: Path("images", name, "Dockerfile") for name in ("a", "b")}, {})
    assert isinstance(error, EngineTimedOut)
    assert failure_text(error.diagnostics[0]) == (
        f"""\
error: {message}
  not built  `a` (stopped by this failure)

hint: run the same command again: the engine was too slow, probably under high load
"""
    )


@pytest.mark.parametrize(
    ("reason", "message", "hint"),
    [
        (
            "no active sessions",
            "a build step still belonged to a stopped build",
            "run the same command again (a BuildKit bug after an interrupted build)",
        ),
        (
            "DeadlineExceeded: no active session for slgrfnpmgt7w: context deadline exceeded",
            "a build step still belonged to a stopped build",
            "run the same command again (a BuildKit bug after an interrupted build)",
        ),
        (
            "failed to get edge: inconsistent graph state",
            "a build step still belonged to a stopped build",
            "run the same command again (a BuildKit bug after an interrupted build)",
        ),
        (
            'connection error: desc = "transport: Error while dialing: only one connection allowed"',
            "the engine lost the connection of this build",
            "run the same command again (a BuildKit bug: moby/buildkit#748)",
        ),
        (
            'image "docker.io/bakehouse/a:12345678": already exists',
            "another build created the image at the same time",
            "run the same command again: another build has created the image",
        ),
    ],
)
def test_what_a_parallel_build_disturbs_is_worth_a_retry(reason: str, message: str, hint: str) -> None:
    failure = Failure(("a", "b"), (step(reason),), {}, "", frozenset())
    error = explain(failure, {name: Path("images", name, "Dockerfile") for name in ("a", "b")}, {})
    assert isinstance(error, EngineTimedOut)
    [diagnostic] = error.diagnostics
    assert diagnostic.message.endswith(f"failed to build: {message}")
    assert diagnostic.hint == hint


@pytest.mark.parametrize("text", ["ERROR: not found\n", "ERROR: failed to solve: not found\n"])
def test_a_layer_that_the_engine_removed_is_worth_a_retry(text: str) -> None:
    """Seen while the limit of the build cache removed layers."""
    error = explain(Failure(("a", "b"), (), {}, text, frozenset()), {}, {})

    assert isinstance(error, EngineTimedOut)
    [diagnostic] = error.diagnostics
    assert diagnostic.message == "the engine removed a cached layer that the build was using"
    assert diagnostic.hint == (
        "run the same command again; `docker system df` shows whether the build cache is at its limit"
    )


def test_a_program_that_was_not_found_is_a_failure_of_its_image() -> None:
    failure = Failure(
        ("a",), (step(EXIT_2),), {"d": ("sh: 1: nvcc: not found", "not found")}, "", frozenset()
    )

    assert isinstance(explain(failure, {"a": Path("images/a/Dockerfile")}, {}), ImagesFailed)


@pytest.mark.parametrize("line", ["no space left on device", "snapshot x does not exist: not found"])
def test_a_failure_of_the_engine_is_not_a_failure_of_single_images(line: str) -> None:
    failure = Failure(("a", "b"), (step(line),), {}, "", frozenset())
    error = explain(failure, {name: Path("images", name, "Dockerfile") for name in ("a", "b")}, {})
    assert not isinstance(error, ImagesFailed)


def test_without_a_known_template_the_comment_of_the_stage_names_it() -> None:
    failure = Failure(("a",), (step(EXIT_2),), {}, f"{FRAME}ERROR: failed to solve: {EXIT_2}\n", frozenset())
    error = explain(failure, {"a": Path("images/a/Dockerfile")}, {})
    assert "because rendered from   recipes/metis/install.j2:3:1" in failure_text(error.diagnostics[0])


def test_a_full_disk() -> None:
    message = "failed to copy: write /var/lib/x: no space left on device"
    assert failure_message(
        step(message, stage="", position=""), text=f"ERROR: failed to solve: {message}\n"
    ) == (
        """\
error: image `a` failed to build: the disk is full
  not built  `b` (stopped by this failure)

hint: check `docker system df`; `docker builder prune` removes unused build cache
"""
    )


def test_a_file_that_pip_finds_changed() -> None:
    good, bad = "a" * 64, "b" * 64
    tail = (
        "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.",
        f"        Expected sha256 {good}",
        f"             Got        {bad}",
    )
    text = failure_message(step(EXIT_2), tail=tail, exported=("b",))
    assert text == (
        f"""\
error: image `a` failed to build: a downloaded file does not match its checksum
  step      metis 2/2
  command   make -j 2 && make install
  expected  sha256:{good}
  received  sha256:{bad}
    | ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.
    | Expected sha256 {good}

hint: find out why the file changed before you update the checksum
"""
    )


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        (
            "curl: (6) Could not resolve host: mirror.example",
            "check the proxy, or set `mirrors` in [tool.bakehouse] (probably a network failure)",
        ),
        (
            "SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify'))",
            "set `ca` in [tool.bakehouse], or PIP_CERT, to your organisation's certificates (PEM)",
        ),
    ],
)
def test_a_download_that_fails_has_its_hint(line: str, hint: str) -> None:
    text = failure_message(step(EXIT_2), tail=(line,))
    assert text.startswith("error: image `a` failed to build: stage `metis` failed with exit code 2\n")
    assert text.endswith(f"\nhint: {hint}\n")


def test_an_address_that_no_longer_has_its_file() -> None:
    tail = ("curl: (22) The requested URL returned error: 404", "fetch: x did not give a file with sha256 0")
    text = failure_message(step(EXIT_2), tail=tail)
    assert text.splitlines()[0].endswith(
        "`a` failed to build: stage `metis` failed with exit code 2: a file no longer exists at its URL"
    )
    assert text.endswith(
        "hint: copy the file into a directory and add the directory to `mirrors` in [tool.bakehouse]\n"
    )


def test_a_base_that_is_nowhere() -> None:
    cause = 'failed to do request: Head "https://r.example/v2/x": dial tcp: lookup r.example: no such host'
    text = (
        "ERROR: failed to solve: r.example/x:1: failed to resolve source metadata for "
        f"r.example/x:1: {cause}\n"
    )
    assert failure_message(step(cause, stage="internal", position=""), text=text, exported=("b",)) == (
        f"""\
error: image `a` failed to build: cannot pull base `r.example/x:1`
  answer  {cause}

hint: check the name and that the registry is reachable; run `docker login` if it is private
"""
    )


def test_an_invalid_dockerfile() -> None:
    path = Path("images/b/Dockerfile")
    path.write_text(DOCKERFILE.replace("RUN make", "RUNN make"))
    problem = "dockerfile parse error on line 6: unknown instruction: RUNN (did you mean RUN?)"
    text = f"{FRAME.replace('RUN make', 'RUNN make')}ERROR: failed to solve: {problem}\n"
    assert failure_message(text=text).startswith(
        f"error: image `b` failed to build: {problem}\n  --> images/b/Dockerfile:6:1\n"
    )


def test_a_missing_secret() -> None:
    assert failure_message(step("secret ca: not found"), exported=("b",)) == (
        """\
error: image `a` failed to build: the secret `ca` is missing
  step     metis 2/2
  command  make -j 2 && make install
"""
    )


def test_a_killed_step() -> None:
    text = failure_message(step(EXIT_2.replace("code: 2", "code: 137")), exported=("b",))
    assert text.startswith("error: image `a` failed to build: stage `metis` was killed\n")
    assert text.endswith("hint: reduce the number of parallel jobs (probably out of memory)\n")


def test_an_engine_that_does_not_answer() -> None:
    text = "ERROR: Cannot connect to the Docker daemon at unix:///x.sock. Is the docker daemon running?\n"
    error = explain(Failure(("a",), (), {}, text, frozenset()), {}, {})
    assert isinstance(error, EngineError)
    assert failure_text(error.diagnostics[0]) == (
        """\
error: the container engine does not answer
    | Cannot connect to the Docker daemon at unix:///x.sock. Is the docker daemon running?

hint: run `bake doctor`
"""
    )


def test_a_failure_before_any_step() -> None:
    assert failure_message(
        text="ERROR: failed to stat pip: no such file or directory\n", exported=("a", "b")
    ) == ("error: failed to stat pip: no such file or directory\n")


def test_a_transfer_that_buildkit_cannot_resume() -> None:
    """Seen with BuildKit 0.13, in every later build, after a build that ended while it received a layout."""
    error = explain(
        Failure(
            targets=("a", "b"),
            steps=(step("failed to compute cache key: failed to copy: unsupported offset"),),
            outputs={},
            text="",
            exported=frozenset(),
        ),
        {name: Path("images", name, "Dockerfile") for name in ("a", "b")},
        {},
    )

    assert isinstance(error, TransferBroken)


def test_a_layer_that_the_engine_lost_is_reported_as_its_fault() -> None:
    lost = (
        "failed to commit ocp55uygf to pfetxc5t9 during finalize: failed to stat active key during commit: "
        "snapshot ocp55uygf does not exist: not found"
    )
    assert failure_message(step(lost), exported=("b",)) == (
        """\
error: image `a` failed to build: the engine lost a layer
  step     metis 2/2
  command  make -j 2 && make install

hint: restart the engine, then run the same command again (a BuildKit bug after an interrupted build)
"""
    )


@pytest.mark.timeout(30)
def test_a_long_line_without_spaces_is_searched_fast() -> None:
    failure = Failure(("a",), (step("x" * 200_000),), {"d": ("A" * 200_000,)}, "", frozenset())

    explain(failure, {"a": Path("images/a/Dockerfile")}, {})


def test_a_quoted_line_beyond_the_dockerfile_has_no_location() -> None:
    text = f"{FRAME.replace('Dockerfile:6', 'Dockerfile:4711')}ERROR: failed to solve: {EXIT_2}\n"
    failure = Failure(("a",), (step(EXIT_2),), {}, text, frozenset())

    [diagnostic] = explain(failure, {"a": Path("images/a/Dockerfile")}, {}).diagnostics

    assert diagnostic.location is None

"""Dockerfiles that end before a step of a stage."""

from dataclasses import replace

import pytest

from bakehouse.builder.stage_cut import Mount, cut_after, cut_before, stage_bases
from tests.support.data import text_of

DOCKERFILE = text_of(__file__, "dockerfile")
LINES = DOCKERFILE.splitlines(keepends=True)


def test_the_stages_are_known_with_their_bases() -> None:
    assert stage_bases(DOCKERFILE) == {
        "inputs": "scratch",
        "base": "debian:12",
        "tools": "base",
        "image": "debian:12",
    }


@pytest.mark.parametrize(
    ("stage", "position", "line"),
    [("tools", "1/3", 10), ("tools", "2/3", 14), ("tools", "3/3", 16), ("image", "2/2", 27)],
)
def test_the_part_ends_before_the_step_at_a_position(stage: str, position: str, line: int) -> None:
    cut = cut_before(DOCKERFILE, stage, position)

    assert cut
    assert cut.of(DOCKERFILE) == "".join(LINES[: line - 1])
    assert cut.step
    assert cut.step.line == line


@pytest.mark.parametrize(
    ("stage", "position"),
    [("image", "1/2"), ("tools", "4/3"), ("tools", ""), ("tools", "x/3"), ("base", "1/1")],
)
def test_the_base_of_a_stage_and_what_is_no_position_are_not_steps(stage: str, position: str) -> None:
    assert cut_before(DOCKERFILE, stage, position) is None


@pytest.mark.parametrize(("stage", "lines"), [("inputs", 4), ("base", 7), ("tools", 25), ("image", 28)])
def test_the_part_of_a_whole_stage_ends_with_it(stage: str, lines: int) -> None:
    cut = cut_after(DOCKERFILE, stage)

    assert cut.of(DOCKERFILE) == "".join(LINES[:lines])
    assert (cut.step, cut.mounts, cut.has_network) == (None, (), True)


def test_the_lines_of_a_step_end_with_its_here_document() -> None:
    cut = cut_before(DOCKERFILE, "tools", "3/3")

    assert cut
    assert cut.text == "".join(LINES[15:22]).rstrip("\n")
    assert not cut.has_network


def test_the_mounts_of_a_step_are_listed_with_their_defaults() -> None:
    cut = cut_before(DOCKERFILE, "tools", "3/3")

    assert cut
    assert cut.mounts == (
        Mount("bind", "/mnt/make", "/bin/make", "inputs"),
        Mount("secret", "/run/secrets/ca", "ca"),
        Mount("secret", "/etc/pip.conf", "pip"),
        Mount("cache", "/cache"),
        Mount("bind", "/code", "code"),
    )


def test_binds_are_copied_and_secrets_are_not() -> None:
    cut = cut_before(DOCKERFILE, "tools", "3/3")

    assert cut
    assert replace(cut, copies_binds=True).of(DOCKERFILE) == cut.of(DOCKERFILE) + (
        'COPY --from=inputs ["/bin/make", "/mnt/make"]\nCOPY ["code", "/code"]\n'
    )

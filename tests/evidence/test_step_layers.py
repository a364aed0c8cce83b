"""The map from steps to layers: its file, how git merges it, and what a build says."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakehouse.errors import RecipeError
from bakehouse.evidence import step_layers
from bakehouse.evidence.step_layers import Rows, StepLayer, asked, parse, text_of
from bakehouse.evidence.step_results import built_rows, rehearsed_rows
from bakehouse.plan.image_layer import ImageLayer
from tests.support import fake_engine
from tests.support.errors import refusal
from tests.support.known_layers import digest, made

IMAGE = replace(
    fake_engine.image("small"),
    layer_keys=(
        ImageLayer("a" * 32, stages=("torch", "torch-wheels", "toolchain")),
        ImageLayer("b" * 32, is_pinned=False, stages=("efa",)),
        ImageLayer("", stages=("files",)),
        ImageLayer("c" * 32),
    ),
)
PINNED = replace(IMAGE, layer_keys=tuple(replace(layer, is_pinned=True) for layer in IMAGE.layer_keys))

keys = st.sampled_from([f"{number:032x}" for number in range(6)])
rows = st.builds(
    lambda key, number, stubs: StepLayer(key, "linux/amd64", "" if stubs else digest(str(number)), stubs),
    keys,
    st.integers(0, 2),
    st.sampled_from([(), (), ("efa",), ("base", "efa")]),
)
tables = st.frozensets(rows, max_size=8)


def union(ours: str, base: str, theirs: str, directory: Path) -> str:
    """Merge as git does with `merge=union`."""
    names = []
    for name, text in (("ours", ours), ("base", base), ("theirs", theirs)):
        (directory / name).write_text(text)
        names.append(str(directory / name))
    command = ["git", "merge-file", "--union", "-p", *names]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@given(base=tables, added=st.lists(tables, min_size=2, max_size=3), order=st.randoms())
@settings(max_examples=40, deadline=None)
def test_any_order_of_merges_gives_the_same_file(
    tmp_path_factory: pytest.TempPathFactory, base: Rows, added: list[Rows], order: Random
) -> None:
    directory = tmp_path_factory.mktemp("merge")
    image = replace(
        IMAGE, layer_keys=tuple(ImageLayer(key) for key in sorted({row.key for row in base.union(*added)}))
    )
    old, branches = text_of(base), [text_of(asked(base | new, [image])) for new in added]

    def merged(texts: list[str]) -> str:
        current = texts[0]
        for text in texts[1:]:
            current = union(current, old, text, directory)
        return text_of(asked(parse(current), [image]))

    shuffled = order.sample(branches, len(branches))
    assert merged(branches) == merged(shuffled) == text_of(asked(base.union(*added), [image]))


@given(tables)
def test_a_file_is_read_as_it_was_written(found: Rows) -> None:
    assert parse(text_of(found)) == found


def test_marks_of_a_conflict_and_duplicates_are_no_rows() -> None:
    text = text_of(made(PINNED))
    first, *lines = text.splitlines(keepends=True)
    conflict = [first, "<<<<<<< a\n", *lines, "=======\n", first, *lines[::-1], ">>>>>>> b\n"]

    assert parse("".join(conflict)) == made(PINNED)


@pytest.mark.parametrize(
    ("text", "message", "because", "hint"),
    [
        (
            f"# Rows\n{'a' * 32} linux/amd64 - sha256:1\n",
            "`layers.txt` is damaged",
            f"line 2 is not a row: '{'a' * 32} linux/a'",
            "restore the committed file, or remove it",
        )
    ],
)
def test_a_file_that_cannot_be_read_is_an_error(
    tmp_path: Path, text: str, message: str, because: str, hint: str
) -> None:
    path = tmp_path / "layers.txt"
    path.write_text(text)

    assert refusal(RecipeError, step_layers.record, tmp_path, made(PINNED), tmp_path) == (
        f"error: {message}\n  --> {path}:1:1\n  because  {because}\n\nhint: {hint}\n"
    )
    assert path.read_text() == text


def test_rows_that_no_image_asks_for_are_dropped() -> None:
    other = replace(PINNED, layer_keys=(ImageLayer("d" * 32),), platform="linux/arm64")

    assert asked(made(PINNED) | made(other), [PINNED]) == made(PINNED)
    assert asked(made(PINNED), [replace(PINNED, platform="linux/arm64")]) == frozenset()


def test_a_rehearsal_counts_until_the_step_runs_with_real_files() -> None:
    [key] = [layer.key for layer in PINNED.layer_keys[:1]]
    first, fewer = (StepLayer(key, PINNED.platform, stubs=stubs) for stubs in (("a", "b"), ("z",)))
    real = StepLayer(key, PINNED.platform, digest("x"))

    assert asked([first, fewer], [PINNED]) == {fewer}
    assert asked([first, fewer, real], [PINNED]) == {real}


def test_two_results_of_a_step_are_both_kept() -> None:
    both = made(PINNED) | made(PINNED, run="2")

    assert asked(both, [PINNED]) == both


def config(*layers: str, history: bool = True) -> bytes:
    steps = [{"created_by": f"RUN {layer}", "comment": "buildkit.dockerfile.v0"} for layer in layers]
    entries = [{"created_by": "FROM"}, {"created_by": "ENV A=1", "empty_layer": True}, *steps]
    digests = [digest(layer) for layer in ("base", *layers)]
    return json.dumps(
        {"rootfs": {"diff_ids": digests}, "history": entries if history else [], "config": {}}
    ).encode()


def test_a_build_says_what_its_pinned_steps_gave() -> None:
    rows = built_rows(IMAGE, config("1", "2", "3", "4"))

    assert [(row.key[0], row.digest) for row in rows] == [("a", digest("1")), ("c", digest("4"))]


def test_only_a_build_of_pinned_inputs_has_a_known_content() -> None:
    *rows, content = built_rows(PINNED, config("1", "2", "3", "4"))

    assert [row.key[0] for row in rows] == ["a", "b", "c"]
    assert content.key == PINNED.key[:32]
    labelled = config("1", "2", "3", "4").replace(b'"config": {}', b'"config": {"Labels": {"a": "b"}}')
    assert built_rows(PINNED, labelled)[-1] == content


def test_a_step_without_a_layer_has_no_row() -> None:
    document = json.loads(config("1", "2", "3", "4"))
    document["history"][3]["empty_layer"] = True
    document["rootfs"]["diff_ids"].pop(2)

    rows = built_rows(replace(PINNED, layer_keys=PINNED.layer_keys), json.dumps(document).encode())

    assert [row.digest for row in rows[:-1]] == [digest("1"), digest("4")]


def test_an_image_without_a_history_says_nothing() -> None:
    assert built_rows(PINNED, config("1", "2", "3", "4", history=False)) == ()
    assert built_rows(PINNED, config("1")) == ()


def test_a_rehearsal_says_which_stubs_each_step_had() -> None:
    rows = rehearsed_rows(IMAGE, "cuda", ["torch", "efa"])

    assert [(row.key[0], row.stubs, row.digest) for row in rows] == [
        ("a", ("cuda", "torch"), ""),
        ("b", ("cuda", "efa"), ""),
        ("c", ("cuda",), ""),
    ]

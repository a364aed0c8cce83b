"""Steps at which builds failed: remembered for a shell, and named in hints."""

from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.builder import failed_steps
from bakehouse.engine.buildkit_errors import ImagesFailed
from bakehouse.engine.buildkit_events import Step
from bakehouse.errors import Diagnostic
from bakehouse.plan.model import ImageKey
from tests.support import fake_engine, plans

A = fake_engine.image("a")
STEP = Step("d", "a", "metis", "2/3", "RUN make")


def failed(step: Step | None, hint: str = "") -> ImagesFailed:
    return ImagesFailed(Diagnostic("`a` failed", hint=hint), images=frozenset({"a"}), steps=[step])


def test_the_step_of_the_last_build_is_known_until_the_image_is_built(tmp_path: Path) -> None:
    failed_steps.record(failed(replace(STEP, position="1/3")), [A], tmp_path)
    failed_steps.record(failed(STEP), [fake_engine.image("b"), A], tmp_path)

    assert failed_steps.position_of(A, "metis", tmp_path) == "2/3"
    assert failed_steps.position_of(A, "other", tmp_path) == ""
    assert failed_steps.position_of(fake_engine.image("b"), "metis", tmp_path) == ""
    failed_steps.forget(A, tmp_path)
    assert failed_steps.position_of(A, "metis", tmp_path) == ""


def test_a_changed_image_has_other_steps(tmp_path: Path) -> None:
    failed_steps.record(failed(STEP), [A], tmp_path)

    assert failed_steps.position_of(plans.changed(A, key=ImageKey("b" * 64)), "metis", tmp_path) == ""


def test_a_damaged_record_counts_as_unknown(tmp_path: Path) -> None:
    failed_steps.record(failed(STEP), [A], tmp_path)
    [path] = tmp_path.rglob("a.json")
    path.write_text("{")

    assert failed_steps.position_of(A, "metis", tmp_path) == ""


@pytest.mark.parametrize(
    ("step", "hint", "shown"),
    [
        (STEP, "", "look around before this step: `bake shell a --stage metis`"),
        (STEP, "check it", "check it; look around before this step: `bake shell a --stage metis`"),
        (replace(STEP, text="FROM debian:12"), "check it", "check it"),
        (None, "check it", "check it"),
    ],
)
def test_a_hint_ends_with_the_command_of_the_shell_where_there_are_files(
    step: Step | None, hint: str, shown: str
) -> None:
    [diagnostic] = failed_steps.with_shells(failed(step, hint))

    assert diagnostic.hint == shown

"""The task `bisect`."""

import json
from dataclasses import replace

import pytest

from bakehouse.cli import main
from bakehouse.ledger.releases import ReleasedComponent, text_of
from tests.support.numbered_releases import LINE
from tests.support.trees import Tree

A, B, C = (f"sha256:000{number}00000000" for number in (1, 2, 3))


@pytest.fixture(autouse=True)
def ledger(empty: Tree) -> None:
    """Three releases, of which the last has another version."""
    empty.write("pyproject.toml", '[tool.bakehouse]\nrecipes = ["."]\n')
    releases = [
        replace(
            record,
            image="small",
            date=f"2026-11-2{number}",
            parts=(ReleasedComponent("torch", "2.9.0" if number == 2 else "2.8.0", ""),),
        )
        for number, record in enumerate(LINE[:3])
    ]
    empty.write("images/small/releases.json", text_of(releases))


def test_the_release_to_try_next_comes_with_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["bisect", A, C]) == 0

    assert (
        capsys.readouterr().out
        == f"""\
small: 1 difference between 2026-11-20 {A} (good) and 2026-11-22 {C} (bad)
  component  torch 2.8.0 → 2.9.0
  packages and recipes are not compared: release {A} has no commit

1 release between them, at most 1 try
  2026-11-20  {A}  good
  2026-11-21  {B}  try next  build key 00010000 → 00020000
  2026-11-22  {C}  bad       torch 2.8.0 → 2.9.0

try {LINE[1].image_uri}
  if the job works, run `bake bisect {A} {C} small --good {B}`
  if it fails, run `bake bisect {A} {C} small --bad {B}`
"""
    )


def test_the_last_step_names_the_release_that_broke_the_job(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["bisect", A, C, "small", "--good", B]) == 0

    assert (
        capsys.readouterr().out
        == f"""\
small: 1 difference between 2026-11-21 {B} (good) and 2026-11-22 {C} (bad)
  component  torch 2.8.0 → 2.9.0
  packages and recipes are not compared: release {B} has no commit

no release is between them: the job broke with {LINE[2].image_uri}
"""
    )


def test_the_state_of_a_search_is_available_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["bisect", A, C, "--json"]) == 0

    assert json.loads(capsys.readouterr().out) == {
        "image": "small",
        "good": LINE[0].image_uri,
        "bad": LINE[2].image_uri,
        "differences": [{"kind": "component", "name": "torch", "before": "2.8.0", "after": "2.9.0"}],
        "not_compared": f"release {A} has no commit",
        "between": [LINE[1].image_uri],
        "next": LINE[1].image_uri,
        "most_tries": 1,
    }

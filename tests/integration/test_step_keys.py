"""Keys of steps, compared with what BuildKit takes from its cache."""

import json
import random
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from bakehouse.engine import buildx
from bakehouse.engine.buildx import BakeOptions, Target
from tests.integration import bases
from tests.support import step_edits
from tests.support.step_edits import NAMES, Build

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1500)]

_BATCH = 50


def numbers(directory: Path, builds: Mapping[str, Build]) -> dict[str, dict[str, str]]:
    """Build all at once; return the random number that each step wrote, which tells whether it ran."""
    texts = []
    for name, build in builds.items():
        for path, content in build.files.items():
            file = directory / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
            file.chmod(0o755 if path in build.executable else 0o644)
        text = re.sub(r"(?<=COPY )((?:--chmod=\d+ )?)(?=inputs/|files/)", rf"\1{name}/", build.text)
        for stage in re.findall(r"(?m)^FROM \S+ AS (\S+)$", text):
            text = re.sub(
                rf"(?m)((?:^FROM | AS |from=)){re.escape(stage)}(?=[ ,]|$)", rf"\1{name}-{stage}", text
            )
        texts.append(text)
    copies = "".join(f"COPY --from={name}-ids / /{name}/\n" for name in builds)
    (directory / "Dockerfile").write_text("\n".join([*texts, f"FROM scratch\n{copies}"]))
    target = {"context": ".", "platforms": ["linux/amd64"]}
    (directory / "docker-bake.json").write_text(json.dumps({"target": {"all": target}}))
    options = BakeOptions(directory, directory / "state", lambda event: None)
    buildx.export_files(Target("all", "all", Path("docker-bake.json")), directory / "out", options)
    return {name: {step: (directory / "out" / name / step).read_text() for step in NAMES} for name in builds}


@pytest.mark.parametrize("count", [25, pytest.param(100, marks=pytest.mark.release)])
def test_a_key_changes_exactly_if_buildkit_runs_the_step_again(tmp_path: Path, count: int) -> None:
    base = bases.base().reference
    draw = random.Random(51)
    edits = [*step_edits.EDITS, *draw.choices([*step_edits.EDITS], k=max(0, count - len(step_edits.EDITS)))]
    original = Build(step_edits.TEXT.format(base=base))
    # Another result than in earlier runs of this test
    original.files["inputs/bin/run"] = f"#!/bin/sh\n# {random.random()}\n"
    builds = {}
    for number, edit in enumerate(edits):
        build = Build(original.text, dict(original.files), set(original.executable))
        step_edits.edit(build, edit, draw)
        builds[f"v{number}"] = build
    ran = numbers(tmp_path / "original", {"original": original})
    names = [*builds]
    for first in range(0, len(names), _BATCH):
        batch = {name: builds[name] for name in names[first : first + _BATCH]}
        ran |= numbers(tmp_path / str(first), batch)

    before = original.keys()
    wrong = {}
    for name, edit in zip(names, edits, strict=True):
        after = builds[name].keys()
        new = {step for step in NAMES if after[step] != before[step]}
        if new != (again := {step for step in NAMES if ran[name][step] != ran["original"][step]}):
            wrong[f"{name}: {edit}"] = (sorted(new), sorted(again))
    assert wrong == {}

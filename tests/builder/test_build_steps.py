"""Keys of the steps of Dockerfiles."""

from collections.abc import Mapping
from pathlib import Path

from bakehouse.builder.build_steps import BuildStep, part_of, read_steps
from bakehouse.engine.buildx import Target
from tests.support.data import text_of

DOCKERFILE = text_of(__file__, "dockerfile")
FILES = {"inputs/bin/setup": "#!/bin/sh", "inputs/lists/part.txt": "a", "inputs/other": "b"}


def steps(
    directory: Path, dockerfile: str = DOCKERFILE, files: Mapping[str, str] = FILES
) -> dict[str, BuildStep]:
    """Return steps by stage and position."""
    for path, text in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(text)
    result: dict[str, BuildStep] = {}
    for step in read_steps(dockerfile, directory, directory / "code"):
        number = sum(known.stage == step.stage for known in result.values()) + 1
        result[f"{step.stage} {number}"] = step
    return result


def changed(directory: Path, dockerfile: str = DOCKERFILE, files: Mapping[str, str] = FILES) -> set[str]:
    """Return the steps whose keys change with the Dockerfile and the files."""
    before, after = steps(directory / "before"), steps(directory / "after", dockerfile, files)
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def test_steps_of_the_last_stage_with_all_that_they_need(tmp_path: Path) -> None:
    result = steps(tmp_path)

    assert [*result] == ["tools 1", "part 1", "part 2", "image 1"]
    keys = {name: step.key for name, step in result.items()}
    assert len(set(keys.values())) == 4
    # The key of the base, which is an image, comes first
    [base] = result["tools 1"].needs - {keys["tools 1"]}
    assert base not in keys.values()
    assert result["part 2"].needs == {base, keys["tools 1"], keys["part 1"], keys["part 2"]}
    assert result["image 1"].needs == {base, *keys.values()}


def test_equal_files_and_texts_give_equal_keys(tmp_path: Path) -> None:
    assert changed(tmp_path) == set()


def test_a_file_changes_the_steps_that_read_it_and_those_above(tmp_path: Path) -> None:
    assert changed(tmp_path / "1", files={**FILES, "inputs/other": "changed"}) == set()
    assert changed(tmp_path / "2", files={**FILES, "inputs/lists/part.txt": "c"}) == {"part 2", "image 1"}
    scripts = {**FILES, "inputs/bin/setup": "changed"}
    assert changed(tmp_path / "3", files=scripts) == {"tools 1", "part 1", "part 2", "image 1"}


def test_an_instruction_changes_the_steps_after_it(tmp_path: Path) -> None:
    text = DOCKERFILE.replace("RUN make", "RUN make -j")
    assert changed(tmp_path / "1", text) == {"part 1", "part 2", "image 1"}
    for number, (old, new) in enumerate([("LANG=C", "LANG=C.UTF-8"), ("debian:12", "debian:13")]):
        text = DOCKERFILE.replace(old, new)
        assert changed(tmp_path / f"more{number}", text) == {"tools 1", "part 1", "part 2", "image 1"}


def test_own_files_change_the_copy_of_their_directory(tmp_path: Path) -> None:
    text = "FROM debian:12\nCOPY files/ /out/\nRUN true\n"
    first = read_steps(text, tmp_path, tmp_path / "code")
    (tmp_path / "files").mkdir()
    (tmp_path / "files/train.py").write_text("pass")

    assert [
        a.key == b.key for a, b in zip(first, read_steps(text, tmp_path, tmp_path / "code"), strict=True)
    ] == [False, False]


def cut(step: BuildStep) -> str:
    target = Target("image", "image", Path("image"))
    return part_of(target, DOCKERFILE, step, name="part", cache_to="").dockerfile


def test_a_part_of_a_target_ends_with_its_step(tmp_path: Path) -> None:
    text = cut(steps(tmp_path)["tools 1"])

    assert text.endswith("    /setup\n# A comment\n")
    assert DOCKERFILE.startswith(text)
    assert cut(steps(tmp_path)["image 1"]) == DOCKERFILE

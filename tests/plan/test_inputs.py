"""Files that build steps read are files of the image's directory, and Dockerfiles stay short."""

import re
import statistics
from collections.abc import Mapping
from functools import cache

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.plan.dockerfile import render, render_image
from bakehouse.plan.model import Plan, defines_layer
from bakehouse.plan.planner import make_plan
from bakehouse.plan.workspace import open_workspace, select
from tests.support.dockerfiles import instructions
from tests.support.trees import Tree

IMAGES = HOME / "images"
COMMITTED = sorted(path.parent.name for path in IMAGES.glob("*/Dockerfile"))
CHANGED_SCRIPTS = ("mpi-cpu", "pytorch-cu130", "pytorch-ngc-26.07-efa", "pytorch-1.10-cu113-py38-smp")
READ = re.compile(r"from=inputs(?:,source=| )/([^\s,]+)")


@cache
def plan() -> Plan:
    workspace = open_workspace(HOME)
    return make_plan(select(workspace, ()).resolutions, workspace.templates, None, workspace.apt_locks)


@cache
def rendered() -> dict[str, bytes]:
    return {file.path: file.content for file in render(plan(), open_workspace(HOME).templates)}


def dockerfiles() -> dict[str, str]:
    files = rendered().items()
    return {
        path.partition("/")[0]: content.decode() for path, content in files if path.endswith("/Dockerfile")
    }


def stage_texts(dockerfile: str) -> dict[str, str]:
    """The text of each Dockerfile stage, by name."""
    pieces = re.split(r"(?m)^(?=FROM )", dockerfile)[1:]
    return {piece.split(maxsplit=4)[3]: piece for piece in pieces}


def test_committed_dockerfiles_are_short() -> None:
    lengths = {name: len((IMAGES / name / "Dockerfile").read_text().splitlines()) for name in COMMITTED}
    assert statistics.median(lengths.values()) <= 260
    assert {name: length for name, length in lengths.items() if length > 390} == {}


@pytest.mark.parametrize("name", COMMITTED)
def test_no_heredoc_of_a_committed_dockerfile_is_long(name: str) -> None:
    """Longer scripts are files in inputs/, which linters read."""
    bodies = [
        body
        for instruction in instructions((IMAGES / name / "Dockerfile").read_text())
        for body in instruction.heredocs
    ]
    assert [body for body in bodies if body.count("\n") > 12] == []


def test_an_image_has_exactly_the_inputs_that_its_steps_read() -> None:
    for name, text in dockerfiles().items():
        prefix = f"{name}/inputs/"
        files = {path.removeprefix(prefix) for path in rendered() if path.startswith(prefix)}
        assert files == {*READ.findall(text)}
        assert ("FROM scratch AS inputs\nCOPY --chmod=755 inputs/ /\n" in text) == bool(files)


def test_each_name_in_inputs_is_one_content_in_the_whole_fleet() -> None:
    """One directory with the inputs of all images replaces those of each when a fleet is built."""
    contents: dict[str, set[bytes]] = {}
    for path, content in rendered().items():
        if "/inputs/" in path:
            contents.setdefault(path.partition("/inputs/")[2], set()).add(content)
    assert {path for path, versions in contents.items() if len(versions) > 1} == set()


def test_no_stage_ships_an_empty_layer() -> None:
    for image in plan().images:
        texts = stage_texts(dockerfiles()[image.name])
        for stage in image.stages:
            text = texts.get(stage.name)
            if text is None:
                assert not defines_layer(stage.template, stage.name)
                continue
            has_files = stage.wheels or stage.sdists or stage.artifacts
            assert has_files or re.search(r"(?m)^COPY |mkdir |make |cp ", text), stage.name


def readers(dockerfile: str, script: str) -> set[str]:
    """Stages that mount a script, and those that read such stages."""
    texts = stage_texts(dockerfile)
    reads = {name: {*re.findall(r"(?:^FROM |from=)([^\s,]+)", text)} for name, text in texts.items()}
    found = {name for name, text in texts.items() if f"source=/bin/{script}," in text}
    while more := {name for name in texts if reads[name] & found} - found:
        found |= more
    return found


@pytest.mark.parametrize("script", ["download", "download-debs", "finish-layer", "finish-step"])
def test_a_changed_script_changes_the_keys_of_the_stages_that_mount_it(script: str) -> None:
    """And of the stages that read those; no other key."""
    workspace = open_workspace(HOME)
    name = f"bin/{script}"
    templates: Mapping[str, str] = {**workspace.templates, name: workspace.templates[name] + "\n"}
    images = [image for image in plan().images if image.name in CHANGED_SCRIPTS]
    resolutions = select(workspace, CHANGED_SCRIPTS).resolutions
    after = {
        image.name: image for image in make_plan(resolutions, templates, None, workspace.apt_locks).images
    }
    for image in images:
        expected = readers(dockerfiles()[image.name], script)
        new = {stage.name: stage.key for stage in after[image.name].stages}
        moved = {stage.name for stage in image.stages if new[stage.name] != stage.key}
        built = {stage.name for stage in image.stages} & stage_texts(dockerfiles()[image.name]).keys()
        assert moved & built == expected & built, image.name
        assert (image.key != after[image.name].key) == ("image" in expected), image.name


def test_a_clean_checkout_under_any_umask_is_built_to_the_same(tree: Tree) -> None:
    """Inputs get one mode in their stage, and the recipe's own files get theirs before they ship."""
    tree.write("images/run.sh", "#!/bin/sh\n").chmod(0o755)
    tree.image('summary: x\nbase: {debian: "12"}\nfiles: [{from: run.sh, to: /opt/}]\n')
    [dockerfile] = [
        file.content.decode()
        for file in render_image(tree.planned_image(), open_workspace(HOME).templates)
        if file.path.endswith("Dockerfile")
    ]
    copies = [
        instruction.rest
        for instruction in instructions(dockerfile)
        if instruction.word == "COPY" and "--from" not in instruction.rest
    ]
    assert copies == ["files/ /out/"]
    assert "chmod -R u=rwX,go=rX /out && find /out -exec touch -h -d @1767225600 {} +" in dockerfile
    for text in dockerfiles().values():
        copies = [
            instruction.rest
            for instruction in instructions(text)
            if instruction.word == "COPY" and "--from" not in instruction.rest
        ]
        assert {rest for rest in copies if "<<" not in rest} <= {"--chmod=755 inputs/ /", "files/ /out/"}


def test_scripts_are_executable_and_lists_are_not() -> None:
    for name in COMMITTED[:3]:
        for path in (IMAGES / name / "inputs").rglob("*"):
            if path.is_file():
                assert bool(path.stat().st_mode & 0o100) == path.read_bytes().startswith(b"#!"), path


def test_dockerfiles_say_how_to_build_their_base() -> None:
    for name, text in dockerfiles().items():
        head = text.partition("\n\n")[0]
        option = "--platform linux/arm64 " if name.endswith("-arm64") else ""
        option += "--build-arg SOURCE_DATE_EPOCH=1767225600 "
        if "\nFROM scratch AS code\n" in text:
            option += f"--build-context code=build/code/{name} "
        assert f"docker build {option}images/{name}\n" in head
        assert ("bake build debian-" in head) == ("FROM bakehouse/debian:" in text)

"""Steps that run code of others have neither the network nor secrets, in every Dockerfile and template."""

import re
from pathlib import Path

import pytest

from bakehouse.catalog.project import HOME
from tests.support.dockerfiles import Instruction, instructions
from tests.support.own_recipes import IMAGES, dockerfile

BUILDS = re.compile(
    r"python3? -m (?:pip wheel|build)\b|python3? setup\.py"
    r"|(?:\S*/)?(?:configure|autogen\.sh|bootstrap\.sh|b2)\b"
    r"|(?:cmake|make|ninja|meson|cargo|/mnt/install-python)\b"
)
"""The beginning of a command that runs code of the files that it builds or installs."""
PYTHON = "/mnt/install-python"
"""Installer of the Python that later steps run: it is as trusted as the base image."""
VENDORS = ("/opt/efa/install", "/mnt/efa/install")
"""Installers that download: EFA's runs apt for packages of the distribution."""
TEMPLATES = sorted([*HOME.glob("recipes/components/*/install.j2"), *HOME.glob("templates/*.j2")])


def commands(instruction: Instruction) -> list[str]:
    """Return the commands of a RUN step, without its options."""
    text = re.sub(r"--(?:mount|network)=\S+", "", instruction.rest)
    parts = re.split(r"&&|\|\|?|;|\n|<<\S+", "\n".join([text, *instruction.heredocs]))
    return [part.strip() for part in parts if part.strip()]


def builds(instruction: Instruction) -> bool:
    return any(BUILDS.match(command) for command in commands(instruction))


def is_isolated(instruction: Instruction) -> bool:
    return "--network=none" in instruction.rest.split() and "type=secret" not in instruction.rest


def mistakes(text: str) -> list[str]:
    """Return the steps of a Dockerfile that strangers' code could use to reach secrets or the network."""
    found, stage, tainted = [], "", {"scratch"}
    for instruction in instructions(text):
        words = instruction.rest.split()
        if instruction.word == "FROM":
            stage = words[2]
            if words[0] in tainted - {"scratch"}:
                tainted.add(stage)
        elif instruction.word == "COPY" and (source := re.search(r"--from=(\S+)", instruction.rest)):
            # Files of another component: Python imports them, shells run them
            if source[1] != "inputs":
                tainted.add(stage)
        elif instruction.word == "RUN":
            if builds(instruction):
                if not commands(instruction)[0].startswith(PYTHON):
                    tainted.add(stage)
                found += [] if is_isolated(instruction) else [f"{stage}: {instruction.rest}"]
            elif stage in tainted - {"image"} and "type=secret" in instruction.rest:
                found.append(f"{stage}, after code of others: {instruction.rest}")
            if any(command.startswith(VENDORS) for command in commands(instruction)):
                tainted.add(stage)
    return found


@pytest.mark.parametrize("name", IMAGES)
def test_no_step_that_builds_has_a_secret_or_the_network(name: str) -> None:
    assert mistakes(dockerfile(name)) == []


def test_the_images_have_such_steps() -> None:
    steps = [step for name in IMAGES for step in instructions(dockerfile(name)) if step.word == "RUN"]
    kinds = {match[0] for step in steps for command in commands(step) if (match := BUILDS.match(command))}

    assert kinds >= {"python3 -m pip wheel", "./configure", "make", "cmake", "./bootstrap.sh", "./autogen.sh"}


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.parent.name)
def test_no_template_has_such_a_step_either(path: Path) -> None:
    """Also for variants that no image has."""
    text = re.sub(r"(?s)\{#.*?#\}", "", path.read_text())
    steps = re.split(r"(?m)^(?=(?:RUN|COPY|FROM|ENV|WORKDIR) |\{% end)", text)
    for step in steps:
        lines = [re.sub(r"\s*\\$", "", line).strip() for line in step.splitlines()]
        words = [part.strip() for line in lines for part in re.split("&&|;", line)]
        if step.startswith("RUN ") and any(
            BUILDS.match(re.sub(r"^RUN (--\S+ )*", "", word)) for word in words
        ):
            assert step.startswith("RUN --network=none "), step
            assert "secret" not in step, step


@pytest.mark.parametrize(
    "steps",
    [
        "RUN python3 -m pip wheel /tmp/x",
        "RUN --network=none --mount=type=secret,id=pip python3 -m pip wheel /tmp/x",
        "RUN --network=none cd /tmp && ./configure && make\nRUN --mount=type=secret,id=pip pip install x",
        "RUN <<END\nset -e\nmake -j 2\nEND",
        "COPY --from=other /out/opt/ /opt/\nRUN --mount=type=secret,id=pip pip install x",
    ],
)
def test_mistakes_are_found(steps: str) -> None:
    assert len(mistakes(f"FROM base AS part\n{steps}\n")) == 1


def test_a_stage_on_one_that_ran_code_of_others_has_no_secrets() -> None:
    text = (
        "FROM base AS a\nRUN --network=none make\nFROM a AS b\nRUN --mount=type=secret,id=pip pip install x\n"
    )

    assert len(mistakes(text)) == 1

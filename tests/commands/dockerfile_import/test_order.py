"""Kept steps and installations have the order of the Dockerfile, wherever one may need the other."""

import random
from collections.abc import Callable

import pytest

from bakehouse.catalog.run_steps import PLACES
from tests.commands.dockerfile_import.translated_dockerfile import Translated

# Each command has what it changes and what it reads: packages of the distribution, of Python, files.
APT, PIP = {"apt"}, {"pip"}
COMMANDS = {
    "apt-get install -y a{n}": (APT, APT),
    "pip install p{n}": (PIP, PIP),
    "echo {n} > /etc/apt/sources.list.d/{n}": (APT, set()),
    "echo {n} > /x{n}": (set(), set()),
    "cp /usr/lib/y /etc/apt/apt.conf.d/{n}": (APT, APT | PIP),
    "pip uninstall -y q{n}": (PIP, APT | PIP),
    "make k{n}": (APT | PIP, APT | PIP),
    "curl -fsSL https://x.example/{n} | bash": (APT | PIP, APT | PIP),
    "apt-get remove -y r{n}": (APT, APT | PIP),
    "rm -rf /usr/lib/python3/dist-packages/z{n}": (PIP, set()),
    "git clone https://x.example/g{n}": (set(), APT | PIP),
}


@pytest.mark.parametrize("seed", range(12))
def test_what_may_need_another_command_stays_after_it(
    seed: int, translated: Callable[[str], Translated]
) -> None:
    source = random.Random(seed)
    for _ in range(8):
        forms = source.choices([*COMMANDS], k=source.randint(2, 7))
        texts = [form.format(n=number) for number, form in enumerate(forms)]
        joints = [source.choice((" && ", "\nRUN ")) for _ in texts]
        lines = "".join(text + joint for text, joint in zip(texts, joints, strict=True))
        proposal = translated(f"FROM debian:12\nRUN {lines.removesuffix(joints[-1])}\n").proposal
        places: list[tuple[int, int, int]] = []
        for text in texts:
            steps = [number for number, kept in enumerate(proposal.run) if text in kept.text]
            if steps:
                before = proposal.run[steps[0]].step.before
                place = PLACES.index(before) if before else len(PLACES)
                places.append((2 * place, steps[0], proposal.run[steps[0]].text.index(text)))
            else:
                name = text.split()[-1]
                assert name in {**proposal.apt, **proposal.requirements}, lines
                places.append((2 * (name in proposal.requirements) + 1, 0, 0))
        for last, form in enumerate(forms):
            for first in range(last):
                changes, needed = COMMANDS[forms[first]][0], COMMANDS[form]
                both_lifted = places[first][0] % 2 and places[last][0] % 2
                if changes & (needed[0] | needed[1]):
                    assert places[first] < places[last] or both_lifted, (lines, texts[first], texts[last])

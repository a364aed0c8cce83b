"""Random edits of a Dockerfile and its files, each of which matters to BuildKit or does not."""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from bakehouse.plan.step_keys import StepKey, file_content, read_steps
from tests.support.data import text_of

NAMES = ("one", "two", "three", "four", "five", "six")
"""Steps that write a random number to `/id/NAME`, which is new each time that BuildKit runs them."""
TEXT = text_of(__file__, "text")
FILES = {
    "inputs/bin/run": "#!/bin/sh\n",
    "inputs/lists/mounted.txt": "mounted\n",
    "inputs/lists/copied.txt": "copied\n",
    "inputs/unused": "unused\n",
    "files/code/train.py": "pass\n",
    "files/start": "#!/bin/sh\n",
}


@dataclass
class Build:
    """A Dockerfile and its files."""

    text: str
    files: dict[str, str] = field(default_factory=lambda: dict(FILES))
    executable: set[str] = field(default_factory=lambda: {"files/start"})

    def swap(self, old: str, new: str) -> None:
        """Replace a text that the Dockerfile has."""
        if old not in self.text:
            raise LookupError(old)
        self.text = self.text.replace(old, new)

    def present(self, path: str) -> str:
        """Return a path that an earlier edit has not renamed."""
        if path not in self.files:
            raise LookupError(path)
        return path

    def rename(self, old: str, new: str) -> None:
        """Rename a file of `inputs/`, also in the steps that read it."""
        self.files[f"inputs{new}"] = self.files.pop(f"inputs{old}")
        self.swap(old, new)

    def keys(self) -> dict[str, StepKey]:
        """The key of each step that writes a random number, by name."""
        context = {
            path: file_content(content.encode(), is_executable=path in self.executable)
            for path, content in self.files.items()
        }
        read = read_steps(self.text, context, platform="linux/amd64")
        lines = self.text.split("\n")
        ends = {
            name: next(number for number, line in enumerate(lines, 1) if f"/id/{name}" in line)
            for name in NAMES
        }
        return {name: next(step.key for step in read.steps if step.end >= end) for name, end in ends.items()}


Edit = tuple[str, str, str] | tuple[Callable[[Build, random.Random], object], str]
"""A text and the one that replaces it, or a function; then the first step that runs again, empty for none."""
_ID = "cat /proc/sys/kernel/random/uuid > /id"


def _word(draw: random.Random) -> str:
    return f"w{draw.randrange(10**9)}"


def _insert(build: Build, pattern: str, line: str, draw: random.Random) -> None:
    """Insert a line before a random one that matches."""
    lines = build.text.split("\n")
    places = [index for index, text in enumerate(lines) if re.match(pattern, text)]
    lines.insert(draw.choice(places), line)
    build.text = "\n".join(lines)


def _inserted(pattern: str, line: str) -> Edit:
    return lambda build, draw: _insert(build, pattern, line.format(_word(draw)), draw), ""


def _renamed(old: str, new: str, step: str = "") -> Edit:
    return lambda build, draw: build.rename(old, new.format(_word(draw))), step


def _content(path: str, step: str = "") -> Edit:
    return lambda build, draw: build.files.update({build.present(path): _word(draw)}), step


def _executable(path: str, step: str = "") -> Edit:
    return lambda build, _: build.executable.add(build.present(path)), step


def _order_of_mounts(build: Build, _: random.Random) -> None:
    first, second = re.findall(r"--mount=type=bind,from=inputs\S+", build.text)
    build.text = build.text.replace(first, "<>").replace(second, first).replace("<>", second)


def _own_file_renamed(build: Build, draw: random.Random) -> None:
    build.files[f"files/{_word(draw)}"] = build.files.pop("files/code/train.py")


EDITS: dict[str, Edit] = {
    # What BuildKit does not see
    "comment": _inserted("[A-Z]+ ", "# {}"),
    "comment in a step": _inserted(" +--mount| +echo", "# {}"),
    "blank lines": _inserted("[A-Z]+ ", "\n\n"),
    "label": ("an image", "{}", ""),
    "new label": _inserted("RUN", "LABEL x={}"),
    "command": ('CMD ["sh"]', 'CMD ["{}"]', ""),
    "mounted file renamed": _renamed("/lists/mounted.txt", "/{}"),
    "mounted script renamed": _renamed("/bin/run", "/bin/{}"),
    "directory of a copied file": _renamed("/lists/copied.txt", "/{}/copied.txt"),
    "stage renamed": ("lib", "lib-{}", ""),
    "other file": _content("inputs/unused"),
    "new file": (lambda build, draw: build.files.update({f"inputs/{_word(draw)}": ""}), ""),
    "order of mounts": (_order_of_mounts, ""),
    "split ENV": ("red SIZE", "red\nENV SIZE", ""),
    "quotes of ENV": ('"two words"', "'two words'", ""),
    "escapes of ENV": ('"two words"', "two\\ words", ""),
    "old form of a mount": ("source=/bin/run,target", "src=/bin/run,dst", ""),
    "delimiter": ("END", "{}", ""),
    "lower case": ("WORKDIR", "workdir", ""),
    "mode of a mounted file": _executable("inputs/lists/mounted.txt"),
    "blanks of the JSON form": ('["/bin/sh", "-c", ', '["/bin/sh","-c",', ""),
    "unused stage": ("FROM base AS image", "FROM base AS x\nRUN {}\nFROM base AS image", ""),
    # What it sees
    "comment of a script": ("a comment of", "{}", "three"),
    "blanks of a script": ("it  counts", "it counts", "three"),
    "blank line of a script": ("it  counts'", "it  counts'\n", "three"),
    "mounted content": _content("inputs/lists/mounted.txt", "one"),
    "mounted script": _content("inputs/bin/run", "one"),
    "copied content": _content("inputs/lists/copied.txt", "two"),
    "copied file renamed": _renamed("/lists/copied.txt", "/lists/{}", "two"),
    "place of a copied file": ("/out/copied.txt", "/out/{}", "two"),
    "own file": _content("files/code/train.py", "four"),
    "own file renamed": (_own_file_renamed, "four"),
    "mode of an own file": _executable("files/code/train.py", "four"),
    "place of own files": (" /own/", " /{}/", "four"),
    "variable": ("red", "{}", "one"),
    "new variable": ("SIZE=", "X={} SIZE=", "one"),
    "order of variables": ('COLOR=red SIZE="two words"', 'SIZE="two words" COLOR=red', "one"),
    "argument": ("MODE=fast", "MODE={}", "one"),
    "directory": ("WORKDIR /work", "WORKDIR /{}", "one"),
    "network": ("--network=none ", "", "two"),
    "secret": ("id=pip", "id={}", "one"),
    "place of a mount": ("/mnt/list.txt", "/mnt/{}", "one"),
    "blanks of a command": ("'a  b'", "'a b'", "one"),
    "indentation of a command": (f"    {_ID}/one", f"  {_ID}/one", "one"),
    "read stage": ("from=lib,source=/out", "from=lib,source=/id", "four"),
    "modes of inputs": ("--chmod=755", "--chmod=555", "one"),
    "user": ("USER 1234", "USER 4321", "six"),
    "shell": ("USER 1234", 'SHELL ["/bin/sh", "-e", "-c"]\nUSER 1234', "six"),
    "place of a linked copy": (" /opt/", " /opt/{}/", "five"),
    "new step": ("USER 1234", "RUN : {}\nUSER 1234", "six"),
    "exec form": ('"-c", "cat', '"-ec", "cat', "five"),
    "last step": (f"RUN {_ID}/six", f"RUN : {{}}; {_ID}/six", "six"),
}
READERS = {
    "one": {*NAMES},
    "two": {*NAMES} - {"one"},
    "three": {"three", "four", "five", "six"},
    "four": {"four", "five", "six"},
    "five": {"five", "six"},
    "six": {"six"},
    "": set[str](),
}
"""The steps that run again with a step: itself and those that build on it."""


def edit(build: Build, name: str, draw: random.Random) -> set[str]:
    """Edit a build; return the steps that run again."""
    *change, step = EDITS[name]
    match change:
        case [str(old), str(new)]:
            build.swap(old, new.format(_word(draw)))
        case [function] if callable(function):
            function(build, draw)
    return READERS[step]

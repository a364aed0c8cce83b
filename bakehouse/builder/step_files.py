"""Files of build steps as named contexts, for builders that cannot reach this machine or the internet.

A step that downloads files mounts the secret `pip` or `mirrors`, and its text or the lists that it mounts
contain the sha256 of each file. `add_mounts` adds one more mount to such steps, of exactly these files. The
committed Dockerfile does not change. The image does not change either, because its own instructions get no
mounts.
"""

import hashlib
import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from bakehouse.engine import buildx
from bakehouse.fetch.required_files import RequiredFile
from bakehouse.util import dockerfile_reader
from bakehouse.util.files import read_text

DIRECTORY = "/run/bakehouse"
"""Directory of the files in steps."""
PIP = f"[global]\nno-index = true\nfind-links = {DIRECTORY}/index.html\n"
MIRRORS = f"copy:{DIRECTORY}/sha256\nfile://{DIRECTORY}/sha256\n"
"""The same directory, first for apt, whose method `file` would only create links, and then for curl."""
_DOWNLOADS = re.compile(r"--mount=type=secret,id=(?:pip|mirrors)\b")
_LIST = re.compile(r"--mount=type=bind,from=inputs,source=/(?P<path>[^,\s]+)")
_SHA256 = re.compile(r"\b[0-9a-f]{64}\b")


@dataclass(frozen=True, slots=True)
class FileSet:
    """The files of one step."""

    files: tuple[RequiredFile, ...]

    @property
    def context(self) -> str:
        """Name of the context, which is the same for equal files."""
        names = "\n".join(f"{file.sha256} {file.file}" for file in self.files)
        return f"{buildx.FILES_CONTEXT}{hashlib.sha256(names.encode()).hexdigest()[:16]}"

    @property
    def mount(self) -> str:
        return f"--mount=type=bind,from={self.context},target={DIRECTORY} "

    @property
    def index(self) -> str:
        """Page of links for pip."""
        links = (
            f'<a href="{quote(_path(file))}#sha256={file.sha256}">{html.escape(file.file)}</a><br>\n'
            for file in self.files
        )
        return f"<!DOCTYPE html><html><body>\n{''.join(links)}</body></html>\n"

    def tree(self, paths: Mapping[RequiredFile, Path]) -> dict[str, Path | bytes]:
        """Return the content of the context by path."""
        return {"index.html": self.index.encode(), **{_path(file): paths[file] for file in self.files}}


def _path(file: RequiredFile) -> str:
    return f"sha256/{file.sha256}/{file.file}"


def add_mounts(
    dockerfile: str, inputs: Path, required: Mapping[str, tuple[RequiredFile, ...]]
) -> tuple[str, tuple[FileSet, ...]]:
    """Return a Dockerfile whose downloading steps mount their files, and these sets of files.

    `inputs` is the directory of the image's lists; `required` has the files by sha256. The number of lines
    and all instructions without downloads stay the same.
    """
    sets: dict[str, FileSet] = {}
    lines, stage = re.split(r"(?<=\n)", dockerfile), ""
    for instruction in dockerfile_reader.instructions(dockerfile):
        step = "\n".join((*instruction.flags, instruction.text, *instruction.heredocs, ""))
        stage = step if instruction.keyword == "FROM" else stage + step
        if instruction.keyword != "RUN" or not _DOWNLOADS.search(step):
            continue
        # A list can also be a here-document that the stage copied before.
        files = _files(step, inputs, required) or _files(stage, inputs, required)
        if files:
            file_set = FileSet(tuple(sorted(files, key=lambda file: (file.file, str(file.sha256)))))
            sets[file_set.context] = file_set
            first = instruction.line - 1
            lines[first] = lines[first].replace("RUN ", f"RUN {file_set.mount}", 1)
    return "".join(lines), tuple(sets.values())


def _files(
    text: str, inputs: Path, required: Mapping[str, tuple[RequiredFile, ...]]
) -> dict[RequiredFile, None]:
    """Return the files that instructions, or the lists that they mount, name by sha256."""
    lists = (inputs / match["path"] for match in _LIST.finditer(text))
    texts = [text, *(read_text(path, errors="replace") for path in lists if path.is_file())]
    named = _SHA256.findall("\n".join(texts))
    return {file: None for sha256 in named for file in required.get(sha256, ())}

"""Renders an Image as the files of its folder: a complete Dockerfile, what it copies, and its bake file.

Templates only place values; every value that comes from a recipe is quoted by a filter here.
"""

import difflib
import json
import re
import shlex
import traceback
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bakehouse.errors import Diagnostic, Location, RecipeError, StaleError
from bakehouse.plan import image_lock, layers
from bakehouse.plan.model import BootstrappedBase, Image, Plan, RegistryBase, Stage, packages_below, wrapped
from bakehouse.util.oci import COMPRESSION_LEVEL, EPOCH

if TYPE_CHECKING:
    from jinja2 import Environment, Template
    from jinja2.environment import TemplateModule

_MOST_DIFF_LINES = 20
_MOST_STALE = 6
_EXPORTED = {
    "docker": "oci-mediatypes=false,compression=gzip",
    "oci": "oci-mediatypes=true,compression=gzip",
    "oci-zstd": "oci-mediatypes=true,compression=zstd",
}


_SHARED = ("apt", "apt_secrets", "download", "mount", "packages", "pip_secrets", "place")
"""What macros.j2 offers to the templates of components."""


class _Values(NamedTuple):
    """What an image's other parts tell the template of a stage."""

    package_stage: str
    packages_below: tuple[str, ...]
    pip: str


_STAGE_TEXTS: dict[tuple[str, str, _Values], str] = {}
_INPUT = re.compile(r"from=inputs(?:,source=| )/([^\s,]+)")
"""A path that the text of a step reads from the stage `inputs`."""


@dataclass(frozen=True, slots=True)
class RenderedFile:
    """A file of `images/`, by its path below that folder."""

    path: str
    content: bytes
    is_executable: bool = False


def read_templates(folder: Path) -> dict[str, str]:
    """The shared templates by file name: they enter every key, so they are read once and passed on."""
    paths = sorted([*folder.glob("*.j2"), *(path for path in (folder / "bin").iterdir() if path.is_file())])
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def render(plan: Plan, templates: Mapping[str, str]) -> tuple[RenderedFile, ...]:
    """All files of all images, in the order of their paths."""
    files = [file for image in plan.images for file in render_image(image, templates)]
    return tuple(sorted(files, key=lambda file: file.path))


def render_image(image: Image, templates: Mapping[str, str]) -> tuple[RenderedFile, ...]:
    """The Dockerfile, the files it copies, the bake file and the lock of one image."""
    build, chain = _stage_texts(image, templates)
    links_system = layers.links_system(image, chain)
    texts = [text for _, text in (*build, *chain)]
    has_inputs = bool(links_system or image.inputs or image.installs_apt or any(map(_INPUT.search, texts)))
    dockerfile = _tidy(
        _environment(_frozen(templates))
        .get_template("Dockerfile.j2")
        .render(
            image=image,
            stages=build,
            linked=layers.linked(image, build),
            chain=chain,
            links_system=links_system,
            has_inputs=has_inputs,
            base=image.base.pinned if isinstance(image.base, RegistryBase) else image.base.reference,
            bootstrapped=image.base_part.label if isinstance(image.base, BootstrappedBase) else "",
            epoch=EPOCH,
        )
    )
    return (
        RenderedFile(f"{image.name}/Dockerfile", dockerfile.encode()),
        *_inputs(image, dockerfile, templates),
        RenderedFile(f"{image.name}/docker-bake.json", _bake_file(image).encode()),
        RenderedFile(f"{image.name}/{image_lock.FILE}", image_lock.text(image).encode()),
        *(
            RenderedFile(f"{image.name}/files{file.target}", file.content, file.is_executable)
            for file in (*image.content.files, *image.content.code)
        ),
    )


def _inputs(image: Image, dockerfile: str, templates: Mapping[str, str]) -> Iterator[RenderedFile]:
    """The files that the steps of a Dockerfile mount or copy from its stage `inputs`."""
    lists = image.inputs
    stages: dict[str, Stage] = {}
    for stage in image.stages:
        stages |= dict.fromkeys(stage.inputs, stage)
    for path in sorted({*_INPUT.findall(dockerfile)}):
        if path in stages:
            content = stages[path].inputs[path]
        elif path in lists:
            content = lists[path]
        else:
            content = templates[path].encode()
        yield RenderedFile(f"{image.name}/inputs/{path}", content, content.startswith(b"#!"))


def layer_owners(image: Image, templates: Mapping[str, str]) -> tuple[layers.LayerOwner, ...]:
    """Whose each layer above the base's is, lowest first: a component's, or one of the recipe's own keys'."""
    build, chain = _stage_texts(image, templates)
    return layers.owners(image, build, chain)


def filled(template: str, **values: object) -> str:
    """A template of its own with values in place, as Dockerfiles are rendered."""
    return _tidy(_environment(()).from_string(template).render(**values))


def _tidy(dockerfile: str) -> str:
    """A blank line after each heredoc, which hadolint's parser needs; elsewhere never two in a row."""
    text = dockerfile.strip("\n") + "\n"
    pieces: list[str] = []
    done = place = 0
    blank = ""
    while heredoc := layers.HEREDOC.search(text, place):
        line = text.rfind("\n", 0, heredoc.start()) + 1
        place = text.find("\n", heredoc.end())
        if not text.startswith(("RUN ", "COPY ", "    "), line):
            continue
        end = text.find(f"\n{heredoc[1]}\n", place)
        stop = len(text) if end < 0 else end + len(heredoc[1]) + 1
        pieces += _without_gaps(blank + text[done:place]), text[place:stop]
        done, place, blank = stop, stop, "\n"
    pieces.append(_without_gaps(blank + text[done:]))
    return "".join(pieces).rstrip("\n") + "\n"


def _without_gaps(text: str) -> str:
    """Never two blank lines in a row."""
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    return text


def stale(files: Iterable[RenderedFile], folder: Path, names: Iterable[str]) -> list[Diagnostic]:
    """What on disk differs from what would be rendered, and what nobody renders any more."""
    wanted = {file.path: file for file in files}
    found = []
    for path, file in wanted.items():
        there = folder / path
        if not there.is_file():
            found.append(_stale(f"`images/{path}` is missing", image=path.partition("/")[0]))
        elif (old := there.read_bytes()) != file.content:
            found.append(_stale(f"`images/{path}` is out of date", tail=_difference(old, file.content)))
        elif bool(there.stat().st_mode & 0o100) != file.is_executable:
            wish = "" if file.is_executable else "not "
            found.append(_stale(f"`images/{path}` has to be {wish}executable"))
    orphans = sorted(str(path.relative_to(folder)) for path in leftovers(wanted.values(), folder, names))
    return found + [_stale(f"`images/{path}` is rendered by no recipe") for path in orphans]


def check(files: Iterable[RenderedFile], folder: Path, names: Iterable[str]) -> None:
    """Raise StaleError when the files on disk are not the rendered ones, with a diff of the first few."""
    found = stale(files, folder, names)
    if len(found) > _MOST_STALE + 1:
        # What all images share has changed, and each differs in the same way
        found[_MOST_STALE:] = [_stale(f"{len(found) - _MOST_STALE} more files are out of date")]
    if found:
        raise StaleError(*found)


def leftovers(files: Iterable[RenderedFile], folder: Path, names: Iterable[str]) -> tuple[Path, ...]:
    """Files of earlier renderings that no image needs any more."""
    wanted = {folder / file.path for file in files}
    return tuple(there for name in names for there in _rendered_paths(folder / name) if there not in wanted)


def _rendered_paths(folder: Path) -> list[Path]:
    """What rendering owns in an image's folder: not the ledger."""
    names = ("Dockerfile", "docker-bake.json", image_lock.FILE)
    owned = [path for name in names if (path := folder / name).is_file()]
    below = (path for name in ("files", "inputs") for path in (folder / name).rglob("*"))
    return owned + sorted(path for path in below if path.is_file())


def _stale(message: str, tail: tuple[str, ...] = (), image: str = "") -> Diagnostic:
    # Without names only what was rendered once is rendered again
    task = f"./bake render {image}".rstrip()
    return Diagnostic(message, tail=tail, hint=f"run `{task}` and commit the result")


def _difference(old: bytes, new: bytes) -> tuple[str, ...]:
    lines = list(
        difflib.unified_diff(
            old.decode(errors="replace").splitlines(),
            new.decode(errors="replace").splitlines(),
            "committed",
            "rendered",
            lineterm="",
            n=1,
        )
    )
    if len(lines) > _MOST_DIFF_LINES:
        return (*lines[:_MOST_DIFF_LINES], f"… {len(lines) - _MOST_DIFF_LINES} more lines")
    return tuple(lines)


def _bake_file(image: Image) -> str:
    """One target, with paths from the project's root, for `docker buildx bake -f` there."""
    target = {
        "context": f"images/{image.name}",
        "dockerfile": "Dockerfile",
        "platforms": ["linux/amd64"],
        "tags": list(image.names),
        # One manifest, whatever its format: SageMaker takes no index.
        "output": [
            f"type=image,{_EXPORTED[image.format]},compression-level={COMPRESSION_LEVEL},force-compression=true"
        ],
        "args": {"SOURCE_DATE_EPOCH": str(EPOCH)},
        "attest": [],
    }
    # json's own indentation is ten times slower than its encoder
    rows = ",\n".join(f'      "{name}": {json.dumps(value)}' for name, value in target.items())
    return f'{{\n  "target": {{\n    {json.dumps(image.target)}: {{\n{rows}\n    }}\n  }}\n}}\n'


def _stage_texts(image: Image, templates: Mapping[str, str]) -> tuple[layers.Texts, layers.Texts]:
    """The `build` and the `runtime` blocks of all components that have them, in the order of their layers."""
    import jinja2

    frozen = _frozen(templates)
    macros = _macros(frozen, image.locks_apt)
    package_stage = "venv" if any(one.name == "python" for one in image.stages) else "toolchain"
    pip = _command(image.base_facts.get("pip", "python3 -m pip --python /opt/venv/bin/python"))
    below: tuple[str, ...] = ()
    build, runtime = [], []
    for stage in image.stages:
        template = None
        values = _Values(package_stage, below, pip)
        try:
            template = _stage_template(stage.template, frozen)
            if not {"build", "runtime"} & template.blocks.keys():
                message = "there is neither a `build` nor a `runtime` block"
                raise jinja2.TemplateSyntaxError(message, 1)
            if "build" in template.blocks:
                build.append((stage, _stage_text("build", stage, template, macros, values)))
            if "runtime" in template.blocks:
                runtime.append((stage, _stage_text("runtime", stage, template, macros, values)))
        except (jinja2.TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise RecipeError(_template_mistake(stage, template, error)) from error
        below += packages_below([stage])
    return build, runtime


def forget() -> None:
    """Render every stage anew, as a process does that has rendered none."""
    _STAGE_TEXTS.clear()


def _stage_text(
    block: str, stage: Stage, template: "Template", macros: "TemplateModule", values: _Values
) -> str:
    # Images share stages, and a key covers all of a stage: its text is made once.
    known = stage.key, block, values
    if known not in _STAGE_TEXTS:
        shared = {name: getattr(macros, name) for name in _SHARED}
        own = {"stage": stage, "version": stage.part.version, "epoch": EPOCH}
        # A context that is told to be shared takes its values as they are: jinja2 copies them slowly.
        context = template.new_context({**template.globals, **shared, **own, **values._asdict()}, shared=True)
        _STAGE_TEXTS[known] = "".join(template.blocks[block](context)).strip("\n")
    return _STAGE_TEXTS[known]


def _template_mistake(stage: Stage, template: "Template | None", error: Exception) -> Diagnostic:
    """Where in a component's template an error comes from."""
    line = getattr(error, "lineno", None) or 1
    for frame in traceback.extract_tb(error.__traceback__):
        if template and frame.filename == "<template>" and frame.lineno:
            line = template.get_corresponding_lineno(frame.lineno)
            break
    lines = stage.template.split("\n")
    text = lines[line - 1] if line <= len(lines) else ""
    spot = Location(stage.source / "install.j2", line, 1, len(text), text)
    reason = str(error).partition("\n")[0]
    return Diagnostic(f"the template of `{stage.name}` can't be rendered", spot, reason)


def _frozen(templates: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(templates.items()))


@cache
def _macros(templates: tuple[tuple[str, str], ...], locks_apt: bool) -> "TemplateModule":
    return _environment(templates).get_template("macros.j2").make_module({"locks_apt": locks_apt})


@cache
def _environment(templates: tuple[tuple[str, str], ...]) -> "Environment":
    import jinja2

    class Environment(jinja2.Environment):
        """One whose own names stay the same: jinja2 keeps a chain of maps for changes, slow to copy."""

        def make_globals(self, d: MutableMapping[str, Any] | None) -> MutableMapping[str, Any]:
            return {**self.globals, **(d or {})}

    environment = Environment(
        loader=jinja2.DictLoader(dict(templates)),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # They are texts here, which neither change nor are too many to keep
        auto_reload=False,
        cache_size=-1,
    )
    environment.filters |= {
        "shell": shlex.quote,
        "dockerfile": dockerfile_string,
        "heredoc": heredoc_word,
        "one_line": lambda text: " ".join(text.split()),
        "wrap": wrapped,
    }
    return environment


@cache
def _stage_template(text: str, templates: tuple[tuple[str, str], ...]) -> "Template":
    return _environment(templates).from_string(text)


def _command(text: str) -> str:
    """Return a command with each word quoted if necessary, so that it stays one line of a RUN step."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = [text]
    return " ".join(shlex.quote(" ".join(word.splitlines())) for word in words)


def dockerfile_string(text: str) -> str:
    """A value as Dockerfile's ENV and LABEL read it back unchanged."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    return f'"{" ".join(escaped.splitlines())}"'


def heredoc_word(text: str) -> str:
    """A word that ends a heredoc and stands on no line of the text."""
    lines = {line.strip() for line in text.splitlines()} if "END" in text else set()
    word, number = "END", 1
    while word in lines:
        number += 1
        word = f"END{number}"
    return word

"""Help texts of `bake` and its commands."""

import inspect
from collections.abc import Mapping, Sequence

from bakehouse.cli.command_line import PLACEHOLDERS, option_name, options, usage
from bakehouse.cli.tasks.declare import Argument, BakeTask

DAILY = (
    *("init", "lock", "render", "build", "smoke", "run", "release", "uri", "estimator", "explain", "doctor"),
    "demo",
)
"""The most common commands, in the order of their use."""
_HEAD = (
    "Build, test and publish container images for training jobs.",
    "",
    "Usage: bake COMMAND [ARGUMENTS] [OPTIONS]",
)
_OPTIONS = (
    "Options:",
    "  --help     show this help, or that of the command",
    "  --verbose  print everything that is otherwise left out or summarised",
    "  --version  show the version",
)
_VALUES = {
    "ARN": "role",
    "COMMAND": "command",
    "COMMIT": "from to",
    "DIRECTORY": "build/from build/to context report/to source-dir",
    "FILE": "entry-point from-dockerfile import log report results sarif",
    "GPUS": "gpus",
    "HOST@TIME": "kill",
    "I/N": "shard",
    "IMAGE": "base",
    "JOB": "follow job",
    "JSON": "distribution",
    "NAME": "job-name",
    "NAME,…": "builder check",
    "NAME=SOURCE": "channel",
    "NAME=TYPE:COUNT": "group",
    "NAME=VALUE": "build-arg environment hyperparameter",
    "NAME=VERSIONS": "assume",
    "NUMBER": "vcpu-per-gpu",
    "PLACE": "on",
    "REGION": "region",
    "REGISTRY": "registry",
    "RELEASE": "rollback",
    "RESULT": "missing",
    "SDK": "sdk",
    "SECONDS": "step-seconds",
    "SEVERITY": "fail-on",
    "STAGE": "stage target",
    "SYSTEM": "for",
    "TYPE": "helper instance-type",
    "URI": "image-uri",
    "VERSION": "py-version version",
}
"""Words for the values of options; COMMAND/OPTION is the option of one command."""
_WORDS = {option: word for word, names in _VALUES.items() for option in names.split()}


def daily(groups: Mapping[str, Sequence[BakeTask]]) -> str:
    """Return the most common commands in their order, and how to list the others."""
    by_name = {task.name: task for tasks in groups.values() for task in tasks}
    lines = [*_HEAD, "", "From a repository to a job:", *_commands([by_name[name] for name in DAILY])]
    lines += ["", *_OPTIONS]
    lines += ["", f"`bake help --all` lists all {len(by_name)} commands; `bake help COMMAND` explains one."]
    return "\n".join(lines) + "\n"


def overview(groups: Mapping[str, Sequence[BakeTask]]) -> str:
    """Return all commands by purpose."""
    width = max(len(task.name) for tasks in groups.values() for task in tasks)
    lines = [*_HEAD]
    for group, tasks in groups.items():
        lines += ["", f"{group}:", *_commands(tasks, width)]
    lines += ["", *_OPTIONS]
    lines += ["", "`bake help COMMAND` explains one. Names of images may be globs."]
    return "\n".join(lines) + "\n"


def _commands(tasks: Sequence[BakeTask], width: int = 0) -> list[str]:
    width = width or max(len(task.name) for task in tasks)
    return [f"  {task.name.ljust(width)}  {_summary(task)}" for task in tasks]


def command_help(task: BakeTask) -> str:
    """Return the usage, summary, examples, description and options, those in the examples first."""
    (summary, *description), examples = _parts(task)
    lines = [f"Usage: {usage(task)}", "", summary]
    if examples:
        lines += ["", "Examples:", *(f"  {line}" for line in examples)]
    lines += description
    arguments = [(PLACEHOLDERS[name].strip("[]."), task.texts[name]) for name in task.arguments]
    if arguments:
        lines += ["", "Arguments:", *_rows(arguments)]
    rows = sorted((_option(argument, task), help_of(argument, task)) for argument in options(task))
    shown = set(" ".join(examples).split())
    common = [row for row in rows if row[0].split()[0] in shown]
    for title, part in (("Options:", common), ("More options:" if common else "Options:", rows)):
        if remaining := [row for row in part if part is common or row not in common]:
            lines += ["", title, *_rows(remaining)]
    return "\n".join(lines) + "\n"


def help_of(argument: Argument, task: BakeTask) -> str:
    """Return the help text of an option."""
    return task.texts.get(argument.option) or task.texts[argument.name]


def _summary(task: BakeTask) -> str:
    return _parts(task)[0][0].rstrip(".")


def _parts(task: BakeTask) -> tuple[list[str], list[str]]:
    """Return the description and the examples, which are the last paragraph of the docstring."""
    paragraphs = (inspect.getdoc(task.function) or "").split("\n\n")
    description = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs[:-1])
    return description.splitlines(), paragraphs[-1].splitlines()


def _option(argument: Argument, task: BakeTask) -> str:
    name = option_name(argument)
    if not argument.takes_value:
        return name
    word = _WORDS.get(name.replace("--", f"{task.name}/")) or _WORDS.get(name.removeprefix("--"))
    if argument.kind is int or not word:
        word = "N" if argument.kind is int else "TEXT"
    return f"{name} {word}"


def _rows(rows: list[tuple[str, str]]) -> list[str]:
    width = max(len(name) for name, _ in rows)
    return [f"  {name.ljust(width)}  {text}" for name, text in rows]

"""Checks a command line and reads its arguments."""

from collections.abc import Sequence
from typing import cast

from bakehouse.cli.tasks.declare import PROGRAM, TASKS, Argument, BakeTask
from bakehouse.errors import PublishError, UsageError
from bakehouse.util.suggest import nearest, suggestion

PLACEHOLDERS = {
    "images": "[IMAGE...]",
    "components": "[COMPONENT...]",
    "image": "IMAGE",
    "component": "COMPONENT",
    "other": "IMAGE",
    "job": "JOB",
    "working": "WORKING",
    "broken": "BROKEN",
    "instance": "TYPE",
    "shell": "SHELL",
    "action": "ACTION",
    "system": "SYSTEM",
    "name": "NAME",
    "command": "COMMAND",
    PROGRAM: "-- COMMAND...",
}

VERBOSE = "--verbose"
"""The option of all commands."""

MANY = ("images", "components")
"""Arguments that take any number of values."""
_FROM_ZERO = ("gpus", "keep_alive", "seed", "stop_grace")


_REPLACED = {
    "base": "build debian-12",
    "digest": "uri IMAGE --built",
    "fetch": "build IMAGE --download-only",
    "follow": "launch --follow JOB",
    "--builder": "set `builders` in [tool.bakehouse]",
    "--build-cache": "set `build_cache` in [tool.bakehouse]",
    "--channel-group": "set `groups` of the channel in a job file, for `--job`",
    "--cpus": "set `local.cpus` in a job file, for `--job`",
    "--deadline": "limit the time of the whole command, such as with `timeout 1800 bake push`",
    "--file": "did you mean `--job`?",
    "--hosts": "did you mean `--instance-count`?",
    "--input": "did you mean `--channel`?",
    "--input-group": "set `groups` of the channel in a job file, for `--job`",
    "--keep-alive": "set `keep_alive` in a job file, for `--job`",
    "--image-store": "omit it; `reproduce` builds on each image store",
    "--launcher": "use `--distribution`, or set `launcher` in a job file, for `--job`",
    "--limit": "add `--verbose` for whole lists",
    "--max-run": "set `max_run` in a job file, for `--job`",
    "--memory": "set `local.memory` in a job file, for `--job`",
    "--message": "redirect the text: `bake security --fix > pull-request.md`",
    "--osv": "scan the image with a scanner, and add `--import FILE`",
    "--output": "set `output` in a job file, for `--job`",
    "--price": "add the price to [tool.bakehouse.prices]",
    "--processes-per-host": "set `processes_per_host` in a job file, for `--job`",
    "--scan": "did you mean `--fail-on HIGH`?",
    "--stop-grace": "set `local.stop_grace` in a job file, for `--job`",
    "--spot": "set `spot` in a job file, for `--job`",
    "--timeout": "set `max_run` in a job file, for `--job`",
    "--unpublished": "did you mean `--missing candidate`?",
    "--unreleased": "did you mean `--missing release`?",
    "--volume-size": "set `volume_size` in a job file, for `--job`",
}
"""Commands and options of earlier versions, with the commands and hints that replace them."""

_IN_CHECKOUT = ("test", "rehearse", "reproduce")
"""Commands that the installed package does not contain."""


def find_command(name: str) -> BakeTask:
    """Return the task of a command. Raises UsageError with the nearest command."""
    if name in TASKS:
        return TASKS[name]
    if name in _IN_CHECKOUT:
        raise UsageError(
            f"`{name}` is not part of the installed package",
            hint=f"run `./bake {name}` in a checkout of Bakehouse",
        )
    if name in _REPLACED and not name.startswith("-"):
        hint = f"did you mean `bake {_REPLACED[name]}`?"
    else:
        hint = suggestion(name, TASKS) or "run `bake help --all` for a list of commands"
    raise UsageError(f"unknown command `{name}`", hint=hint)


def usage(task: BakeTask) -> str:
    """Return the usage line of a task: `bake explain IMAGE [COMPONENT] [OPTIONS]`."""
    words = ["bake", task.name]
    for argument in _positional(task):
        placeholder = PLACEHOLDERS[argument]
        is_optional = argument in task.optional_arguments and argument not in MANY
        words.append(f"[{placeholder}]" if is_optional else placeholder)
    if options(task):
        words.append("[OPTIONS]")
    if PROGRAM in task.arguments:
        words.append(f"[{PLACEHOLDERS[PROGRAM]}]")
    return " ".join(words)


def usage_hint(task: str) -> str:
    """Return a hint that shows how a task is called."""
    if not task:
        return "run `bake help --all` for a list of commands"
    return f"usage: `{usage(find_command(task))}`; `bake help {task}` lists the options"


def options(task: BakeTask) -> tuple[Argument, ...]:
    """Return the options of a task: its arguments that are not positional."""
    return tuple(argument for argument in task.get_arguments() if argument.name not in task.arguments)


def own_words(words: Sequence[str]) -> Sequence[str]:
    """Return the words before `--`; later ones belong to the command that a task runs."""
    return words[: words.index("--")] if "--" in words else words


def _positional(task: BakeTask) -> tuple[str, ...]:
    """Return the positional arguments before `--`."""
    return tuple(argument for argument in task.arguments if argument != PROGRAM)


def option_name(argument: Argument) -> str:
    """Return an option as users type it."""
    return f"--{argument.option}"


def expand(words: Sequence[str]) -> list[str]:
    """Return the words with options only: `build a b` becomes `build --images=a,b`. Raises UsageError.

    A command runs one task: a later word is an argument, even if a task has this name.
    """
    name, *rest = words
    if name.startswith("-"):
        raise UsageError(
            f"unknown option `{name}`", hint="write options after the command: `bake COMMAND --option`"
        )
    task = find_command(name)
    own = own_words(rest) if PROGRAM in task.arguments else rest
    return [name, *_expanded(own, task), *(f"--{PROGRAM}={word}" for word in rest[len(own) + 1 :])]


def parse(words: Sequence[str]) -> tuple[BakeTask, dict[str, object]]:
    """Return the task of a command line, and its arguments by name. Raises UsageError."""
    name, *expanded = expand(words)
    task = find_command(name)
    values: dict[str, object] = {}
    remaining = iter(expanded)
    for word in remaining:
        option = _option(word, task)
        if option is None:
            raise _unknown_option(word, task)
        name, has_value, text = word.partition("=")
        if not option.takes_value:
            if has_value:
                raise UsageError(f"`{name}` takes no value", hint=usage_hint(task.name))
            values[option.name] = True
            continue
        value = text if has_value else next(remaining)
        if option.kind is list:
            values[option.name] = [*cast(list[str], values.get(option.name, [])), value]
        else:
            values[option.name] = _converted(value, option, task)
    return task, values


def _converted(value: str, option: Argument, task: BakeTask) -> object:
    try:
        return option.kind(value)
    except ValueError as error:
        raise UsageError(
            f"`{value}` is not a number", hint=f"`bake help {task.name}` lists the options that take numbers"
        ) from error


def _expanded(words: Sequence[str], task: BakeTask) -> list[str]:
    """Return the options as they are and the positional values with their names."""
    values: list[str] = []
    given: list[str] = []
    names: set[str] = set()
    remaining = iter(words)
    for word in remaining:
        if not word.startswith("-"):
            _check_value(word, task)
            values.append(word)
            continue
        option = _option(word, task)
        name = word.partition("=")[0]
        if option is None:
            raise _unknown_option(name, task)
        given.append(word)
        if not option.takes_value:
            continue
        key = option.name
        if key in names and option.kind is not list:
            raise UsageError(f"`{name}` is given twice", hint="it takes one value")
        names.add(key)
        value = word.partition("=")[2]
        if "=" not in word:
            value = next(remaining, "")
            given.append(value)
        if not value:
            raise UsageError(f"`{name}` needs a value", hint=usage_hint(task.name))
        if key in ("images", "image"):
            _check_value(value, task)
        _check_range(name, value, option)
    return [*given, *_named(values, names, task)]


def _named(values: Sequence[str], names: set[str], task: BakeTask) -> list[str]:
    """Return positional values as options. `names` are the arguments that were given as options."""
    arguments = [argument for argument in _positional(task) if argument not in names]
    if arguments[:1] and arguments[0] in MANY:
        return [f"--{arguments[0]}={','.join(values)}"]
    if len(values) > len(arguments):
        raise UsageError(f"`{task.name}` takes no `{values[len(arguments)]}`", hint=usage_hint(task.name))
    missing = [name for name in arguments[len(values) :] if name not in task.optional_arguments]
    if missing:
        raise UsageError(f"`{task.name}` needs {PLACEHOLDERS[missing[0]]}", hint=usage_hint(task.name))
    return [f"--{name}={value}" for name, value in zip(arguments, values, strict=False)]


def _option(word: str, task: BakeTask) -> Argument | None:
    name = word.partition("=")[0]
    return next((option for option in task.get_arguments() if option_name(option) == name), None)


def _unknown_option(option: str, task: BakeTask) -> UsageError:
    names = [VERBOSE, *(option_name(argument) for argument in options(task))]
    replaced = _REPLACED.get(f"{task.name} {option}") or _REPLACED.get(option)
    near = f"did you mean `{nearest(option, names)}`?" if nearest(option, names) else ""
    hint = replaced or near or _commands_with(option) or suggestion(option, names) or usage_hint(task.name)
    return UsageError(f"`{task.name}` has no option `{option}`", hint=hint)


def _commands_with(option: str) -> str:
    """Return a hint with the commands that have an option; empty if none has."""
    names = [name for name, task in TASKS.items() if option in map(option_name, options(task))]
    return f"these commands have `{option}`: {', '.join(sorted(names))}" if names else ""


def _check_value(value: str, task: BakeTask) -> None:
    """Refuse an empty name, which an unset shell variable gives: it must not mean all images."""
    if not value.strip(","):
        raise UsageError(
            f"`{task.name}` got an empty name", hint="check whether a variable in the command is empty"
        )


def _check_range(name: str, value: str, option: Argument) -> None:
    """Refuse numbers below the range of an option, and regions that AWS does not have."""
    key = option.name.strip("_").replace("-", "_")
    if key == "region":
        from bakehouse.registry.ecr_endpoints import check_region

        try:
            check_region(value)
        except PublishError as error:
            raise UsageError.of(*error.diagnostics) from error
    if option.kind not in (int, float):
        return
    try:
        number = float(value)
    except ValueError:
        return
    least = 0 if key in _FROM_ZERO or option.kind is float else 1
    if not number >= least:
        raise UsageError(f"`{name}` must be at least {least}, not {value}")

"""Shell completion: scripts for bash, zsh and fish, and the candidates that they ask `bake` for."""

from collections.abc import Sequence
from pathlib import Path

from bakehouse.cli.command_line import MANY, VERBOSE, option_name, options
from bakehouse.cli.tasks.declare import TASKS
from bakehouse.errors import BakehouseError, UsageError
from bakehouse.util.suggest import suggestion

COMPLETE = "__complete"
"""The hidden task that scripts call with the words before the cursor, the last one incomplete."""

_SCRIPTS = {
    "bash": """\
# Completion of bake for bash
_bake() {
    local IFS=$'\\n'
    COMPREPLY=($("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _bake bake
""",
    "zsh": """\
#compdef bake
# Completion of bake for zsh
_bake() {
    local -a candidates
    candidates=("${(@f)$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "${candidates[1]}" ]]; then
        compadd -- "${candidates[@]}"
    else
        _files
    fi
}
if [[ "${funcstack[1]}" == _bake ]]; then
    _bake "$@"
else
    compdef _bake bake
fi
""",
    "fish": """\
# Completion of bake for fish
function __bake_candidates
    set -l words (commandline --tokenize --cut-at-cursor --current-process)
    $words[1] __complete $words[2..-1] (commandline --current-token --cut-at-cursor) 2>/dev/null
end
complete --command bake --arguments '(__bake_candidates)'
""",
}


def script(shell: str) -> str:
    """Return the completion script of a shell. Raises UsageError for an unknown shell."""
    if shell not in _SCRIPTS:
        raise UsageError(f"no completion for shell `{shell}`", hint=suggestion(shell, _SCRIPTS))
    return _SCRIPTS[shell]


def candidates(words: Sequence[str]) -> tuple[str, ...]:
    """Return the completions of the last word; empty if the shell should complete file names."""
    *before, word = words or [""]
    return tuple(sorted(text for text in _known(before, word) if text.startswith(word)))


def _known(before: Sequence[str], word: str) -> Sequence[str]:
    if not before or before == ["help"]:
        return [*TASKS]
    task = TASKS.get(before[0])
    if task is None or "--" in before:
        return []
    if word.startswith("-"):
        return [VERBOSE, *(option_name(option) for option in options(task))]
    takes_value = {option_name(option) for option in options(task) if option.takes_value}
    if before[-1] in takes_value:
        return []
    values = [text for text in before[1:] if not text.startswith("-")]
    takes_many = bool(task.arguments) and task.arguments[0] in MANY
    arguments = task.arguments[:1] if takes_many else task.arguments[len(values) :][:1]
    try:
        return _values(arguments[0]) if arguments else []
    except BakehouseError:
        # A recipe with a mistake: the command itself will report it.
        return []


def _values(argument: str) -> Sequence[str]:
    """Return the possible values of an argument."""
    if argument == "shell":
        return [*_SCRIPTS]
    if argument == "action":
        return ["start", "stop", "status"]
    if argument == "system":
        from bakehouse.catalog.ci_settings import CI_SYSTEMS

        return [*CI_SYSTEMS]
    if argument not in ("component", "components", "images", "image", "other"):
        return []
    from bakehouse.catalog import cache, project

    present = project.find(Path.cwd())
    names = cache.load_names(present.recipe_roots, present.root)
    if argument == "component":
        return sorted(names.provided)
    if argument == "components":
        return sorted(names.components)
    return sorted({*names.families, *names.families.values()})

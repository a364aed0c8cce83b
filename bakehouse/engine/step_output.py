"""The command of a failed build step, and the lines of its output that explain the failure."""

import re
from collections.abc import Sequence

_FLAGS = re.compile(r"^RUN(?:\s+--[a-z]+=\S+)*\s*")
_HEREDOC = re.compile(r"<<-?[\"']?(\w+)[\"']?(?:\s+\(.*\))?")
_MAX_LINES = 2
_NOISE = re.compile(
    r"\s*(?:$|Looking in |Collecting |Downloading |Using cached |Processing |Installing |Saved |Preparing |"
    r"Building wheels?|Created wheel|Stored in |(?:Get|Err|Hit|Ign):\d|Fetched |Reading |Selecting |"
    r"Unpacking |404 +Not Found|note: |hint: |\u00d7 |╰─>|\[end of output\]|\[\d+ lines of output\]|"
    r"WARNING: Retrying |During handling |Encountered error |Traceback |File \"|"
    r"(?:\w+: )?https?://\S+$|\+ |Need to get |After this operation|raise |[~^ ]+$)"
)
"""Progress of pip and apt, URLs, code of tracebacks, and pip's hints about output that is not shown."""
_TELLING = re.compile(
    r"(?i)\berror\b|exception|\bfatal\b|\bfailed\b|cannot|can ?not|could not|no such|not found|undefined|"
    r"unable|denied|killed|abort|unsatisfied|\bE: |\b\w+(?:Error|Exit|Interrupt)\b|invalid|missing"
)
_SECONDARY = re.compile(
    r"^\s*make(?:\[\d+\])?: \*\*\*|ninja: build stopped|subprocess-exited-with-error|exit (?:code|status)|"
    r"metadata-generation-failed|failed building wheel|could not build wheels|failed to build |"
    r"returned non-zero|did not complete|unable to fetch some archives|broken packages",
    re.IGNORECASE,
)
"""Consequences of an error that was reported before."""
_COMPILER = re.compile(r":\d+(?::\d+)?: (?:fatal )?error: |undefined reference|: (?:fatal )?error: ")


def command_of(text: str, lines: Sequence[str] = ()) -> str:
    """Return the command of a step on one line, without mounts; `lines` follow it in the Dockerfile."""
    if not text.startswith("RUN"):
        return " ".join(text.split())
    command = _FLAGS.sub("", " ".join(text.split()))
    if match := _HEREDOC.match(command):
        body: list[str] = []
        for line in lines:
            if line.strip() == match[1]:
                return "; ".join(body)
            body += [line.strip()] if line.strip() not in ("", "set -e") else []
        return "the steps of the recipe"
    return command


def telling_lines(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the one or two lines of a failed step's output that explain the failure."""
    kept = [line.strip() for line in lines if not _NOISE.match(line)]
    telling = [index for index, line in enumerate(kept) if _TELLING.search(line)]
    causes = [index for index in telling if not _SECONDARY.search(kept[index])]
    if not causes:
        chosen = telling[-1:] or [*range(len(kept))][-_MAX_LINES:]
        return tuple(kept[index] for index in chosen) or tuple(lines[-1:])
    # A compiler continues after its first error; other programs end with the last one.
    cause = next((index for index in causes if _COMPILER.search(kept[index])), causes[-1])
    following = kept[cause + 1] if cause + 1 < len(kept) else ""
    if following and not _SECONDARY.search(following):
        return kept[cause], following
    before = [index for index in causes if index < cause]
    return tuple(kept[index] for index in (*before[-1:], cause))

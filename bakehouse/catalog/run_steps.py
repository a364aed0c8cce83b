"""Reader of `run`: the recipe's own build steps, each with its place in the image."""

import json
from dataclasses import dataclass, replace

from bakehouse.catalog.secrets import secret_in
from bakehouse.util.yaml_fields import Fields

PLACES = ("packages", "requirements", "code")
"""Keys of the recipe that a step may come before, in the order of the layers."""


@dataclass(frozen=True, slots=True)
class RunStep:
    """A build step of a recipe."""

    command: str
    network: bool = True
    before: str = ""
    """One of PLACES; empty for a step after all other content."""
    shell: tuple[str, ...] = ()
    """Program with its options, as in SHELL; empty for that of the base, which stops at the first error."""
    user: str = ""
    """Empty for root."""

    def __str__(self) -> str:
        options = [*([f"before {self.before}"] if self.before else []), *self.shell, self.user]
        options += [] if self.network else ["without network"]
        text = " ".join(filter(None, options))
        return f"{self.command} ({text})" if text else self.command

    @property
    def exec_form(self) -> str:
        """The command for its shell, in the form that RUN has after SHELL."""
        return json.dumps([*self.shell, self.command], ensure_ascii=False)


def read_steps(fields: Fields) -> tuple[RunStep, ...]:
    """Read the steps, each a text or a mapping with `command`. No message repeats a secret."""
    steps = []
    hint = "write a list: `run: [a command]`"
    for child in fields.texts_or_children("run", "command", "a step of `run`", hint):
        child.require("command")
        command, spot = child.text("command"), child.place("command")
        before = child.choice("before", PLACES, PLACES[0]) if child.has("before") else ""
        network, user = child.flag("network", default=True), child.text("user")
        steps.append(RunStep(command, network, before, child.texts("shell"), user))
        child.finish()
        if kind := secret_in(command):
            message = f"a step of `run` contains {kind}; everybody who pulls the image can read it"
            hint = "remove it; packages of `requirements` are downloaded with the logins of this machine"
            fields.report(message, replace(spot, text=""), hint=hint)
        elif child.has("command") and not command.strip():
            child.report("a step of `run` is empty", spot)
    return tuple(steps)

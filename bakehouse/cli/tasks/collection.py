"""The commands of `bake`, by purpose."""

from importlib.util import find_spec

from bakehouse.cli.tasks import build, look_up, maintain, publish, sagemaker, test
from bakehouse.cli.tasks.declare import BakeTask, Context, bake_task, show


@bake_task(
    "command",
    name="help",
    help={
        "command": "the command to explain; default: list the most common ones",
        "all": "list all commands",
    },
)
def show_help(context: Context, command: str = "", all: bool = False) -> None:
    """
    Show the most common commands, or the usage, options and examples of one.

    bake help
    bake help --all
    bake help build
    """
    from bakehouse.cli import command_line, help_text

    if command:
        show(help_text.command_help(command_line.find_command(command)))
    else:
        show(help_text.overview(GROUPS) if all else help_text.daily(GROUPS))


GROUPS: dict[str, tuple[BakeTask, ...]] = {
    "Start": (maintain.init, maintain.demo),
    "Look up": (
        look_up.list_images,
        look_up.resolve,
        look_up.explain,
        look_up.diff,
        look_up.outdated,
        look_up.plan,
        look_up.fleet_report,
    ),
    "Build": (build.lock, build.render, build.build, build.sizes),
    "Test": (look_up.lint, test.smoke, test.run_training_job, test.shell),
    "Publish": (publish.release, publish.push, publish.promote, publish.releases, publish.uri),
    "Run on SageMaker": (
        sagemaker.validate,
        sagemaker.estimator,
        sagemaker.launch,
        sagemaker.recommend_instances,
    ),
    "Maintain": (
        maintain.ci,
        maintain.doctor,
        maintain.update,
        maintain.security,
        maintain.registry,
        maintain.clean,
        show_help,
    ),
}

if find_spec("bakehouse.maintain"):
    from bakehouse.cli.tasks import checkout

    GROUPS["In a checkout of Bakehouse"] = (checkout.test, checkout.rehearse, checkout.reproduce)

"""The tasks of `bake`, by purpose."""

from bakehouse.cli.tasks import build, look_up, maintain, publish, sagemaker, test
from bakehouse.cli.tasks.declare import BakeTask, Context, bake_task, show


@bake_task("task", name="help", help={"task": "the task to explain; default: list all tasks"})
def show_help(context: Context, task: str = "") -> None:
    """
    Show all tasks, or the usage, options and examples of one.

    bake help
    bake help build
    """
    from bakehouse.cli import command_line, help_text

    show(help_text.task_help(command_line.find_task(task)) if task else help_text.overview(GROUPS))


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
    "Build": (
        build.lock,
        build.render,
        build.fetch,
        build.base,
        build.build,
        build.rehearse,
        build.reproduce,
        build.digest,
        build.sizes,
    ),
    "Test": (look_up.lint, test.smoke, test.run_training_job),
    "Publish": (
        publish.release,
        publish.push,
        publish.promote,
        publish.releases,
        publish.bisect,
        publish.uri,
    ),
    "Run on SageMaker": (
        sagemaker.validate,
        sagemaker.estimator,
        sagemaker.launch,
        sagemaker.follow,
        sagemaker.recommend_instances,
    ),
    "Maintain": (
        maintain.ci,
        maintain.doctor,
        maintain.update,
        maintain.security,
        maintain.registry,
        maintain.clean,
        maintain.test,
        maintain.completion,
        show_help,
    ),
}

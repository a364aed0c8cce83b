"""The tasks of `bake`, by purpose."""

from invoke.collection import Collection

from bakehouse.cli.tasks import build, look_up, maintain, publish, sagemaker, test
from bakehouse.cli.tasks.declare import BakeTask

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
        maintain.show_help,
    ),
}

namespace = Collection(*(task for tasks in GROUPS.values() for task in tasks))

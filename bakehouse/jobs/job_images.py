"""Images that jobs can be checked with: images of the project, its releases, and images of AWS.

No image has to be published or built.
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.efa import is_all_listed
from bakehouse.catalog.instance_gpus import InstanceGpus, find_gpus
from bakehouse.catalog.names import FRAMEWORKS
from bakehouse.catalog.recipe import FORMATS
from bakehouse.catalog.support import notice_day
from bakehouse.errors import UsageError
from bakehouse.jobs.training_request import LaunchImage, add_parts, launch_image, with_recipe
from bakehouse.ledger import image_uris
from bakehouse.ledger.releases import ReleasedComponent, ReleaseRecord, load
from bakehouse.ledger.toolkit import toolkit_versions
from bakehouse.plan.known_facts import known_of_job
from bakehouse.plan.workspace import Selection, Workspace, image_names, own_recipes, select
from bakehouse.resolve.resolver import Resolution
from bakehouse.util.files import matching_paths

if TYPE_CHECKING:
    # Its import takes long.
    from bakehouse.plan.model import Image


def find_image(workspace: Workspace, name: str, instance_type: str = "") -> LaunchImage:
    """Return an image by name or URI. An unknown URI gives an image of unknown content.

    A name selects an image of the project, as its recipe resolves now. The name of a framework selects the
    newest release for the instance type, or the project's image with the newest versions. Raises UsageError
    for an unknown name.
    """
    if is_uri(name):
        return _by_uri(workspace, name)
    if name in FRAMEWORKS and name not in workspace.recipes:
        instance = find_gpus(instance_type) if instance_type else None
        query = image_uris.ImageQuery(instance=instance, project=workspace.project)
        try:
            return _released(workspace, image_uris.find(workspace.project.images, name, query))
        except UsageError:
            if planned := _best_planned(workspace, name, instance):
                return planned
            raise
    selected = select(workspace, [name])
    if len(selected.recipes) > 1:
        raise UsageError(
            f"`{name}` names {len(selected.recipes)} images",
            hint=f"name one of them, such as `{selected.recipes[-1].name}`",
        )
    [image], [recipe] = selected.plan.images, selected.recipes
    return with_recipe(planned_image(image, workspace.catalog), recipe)


def known_lines(workspace: Workspace, name: str, record: ReleaseRecord | None = None) -> tuple[str, ...]:
    """Return the facts against the image of a job, or against a release of it, as lines."""
    released = {part.component: part.version for part in record.parts} if record else {}
    known = known_of_job(workspace.recipes.get(name), workspace.catalog, released)
    return tuple(f"{name}: {line}" for line in known.lines(notice_day()))


def _best_planned(workspace: Workspace, framework: str, instance: InstanceGpus | None) -> LaunchImage | None:
    """Return the project's own image with the newest framework that runs on an instance type.

    Without a type, images for CPUs and GPUs are not comparable.
    """
    own = Selection(workspace, own_recipes(workspace)).resolutions
    fitting = [
        resolution
        for resolution in own
        if resolution.version_of(framework) and not resolution.recipe.content.entry_point
    ]
    kinds = {any(choice.spec.gpu for choice in resolution.all_choices) for resolution in fitting}
    if instance is None and len(kinds) > 1:
        return None

    def rank(resolution: Resolution) -> tuple[object, ...]:
        versions = (resolution.version_of(name) for name in (framework, "python", "cuda"))
        return (*(Version(version or "0") for version in versions), -len(resolution.choices))

    for resolution in sorted(fitting, key=rank, reverse=True):
        selected = Selection(workspace, (resolution.recipe,))
        image = with_recipe(planned_image(selected.image, workspace.catalog), resolution.recipe)
        if instance is None or not instance.unfit(
            gpu=image.gpu,
            architecture=image.gpu_architecture,
            neuron_architecture=image.neuron_architecture,
            platform=image.platform,
        ):
            return image
    return None


def find_release(
    workspace: Workspace, name: str, instance_type: str, region: str = "", registry: str = ""
) -> ReleaseRecord:
    """Return the newest release of an image, the best one of a framework for a type, or the one with a URI.

    Raises UsageError if there is none.
    """
    images = workspace.project.images
    if is_uri(name):
        record = find_record(images, name)
        if record is None:
            raise UsageError(
                f"`{name}` is not a release of this project", hint="name an image of the project"
            )
        return record
    is_framework = bool(instance_type) and name in FRAMEWORKS
    query = image_uris.ImageQuery(
        region=region,
        registry=registry,
        instance=find_gpus(instance_type) if is_framework else None,
        project=workspace.project,
    )
    return image_uris.find(images, name, query, lambda: image_names(workspace, name))


def placeholder(workspace: Workspace, image: str, region: str = "") -> str:
    """Return an example of an image URI, with a placeholder for the account."""
    project = workspace.project
    registry = f"000000000000.dkr.ecr.{region or project.region or 'us-east-1'}.amazonaws.com"
    return f"{registry}/{project.repository_prefix}/{image}"


def is_uri(name: str) -> bool:
    """Return whether a text is the URI of an image instead of a name."""
    return "/" in name or ":" in name or "@" in name


def planned_image(image: "Image", catalog: Catalog) -> LaunchImage:
    """Return the properties of an image that may not be built yet. Its URI is empty."""
    planned = LaunchImage(
        image.name,
        "",
        launchers=image.launchers,
        training_module=image.training_module or "",
        entry_point=image.entry_point or "",
        gpu=image.gpu,
        gpu_architecture=image.gpu_architecture,
        neuron_architecture=image.neuron_architecture,
        platform=image.platform,
        is_oci=image.format != FORMATS[0],
        source="the recipe of the image",
        smoke=image.smoke,
    )
    parts = [ReleasedComponent(part.component, part.version, part.variant) for part in image.all_parts]
    planned = add_parts(planned, parts, catalog)
    is_complete = is_all_listed(planned.components, image.content)
    versions = {**planned.versions, **toolkit_versions(image)}
    return replace(planned, versions=versions, is_complete=is_complete)


def _by_uri(workspace: Workspace, uri: str) -> LaunchImage:
    record = find_record(workspace.project.images, uri)
    if record is not None:
        return _released(workspace, record)
    repository = uri.partition("@")[0].partition("/")[2]
    for component in workspace.catalog.components.values():
        if component.registries is None:
            continue
        for release in component.releases:
            for variant in release.variants:
                if variant.spec.base and variant.spec.base.reference == repository:
                    image = LaunchImage(
                        uri,
                        uri,
                        launchers=component.launchers,
                        training_module=variant.spec.environment.get("SAGEMAKER_TRAINING_MODULE", ""),
                        gpu=variant.spec.gpu,
                        source="the base in recipes/components",
                    )
                    part = ReleasedComponent(component.name, release.version, variant.name)
                    return add_parts(image, [part], workspace.catalog)
    return LaunchImage(uri, uri, is_known=False)


def _released(workspace: Workspace, record: ReleaseRecord) -> LaunchImage:
    return launch_image(record, workspace.catalog, workspace.recipes.get(record.image))


def find_record(images: Path, uri: str) -> ReleaseRecord | None:
    """Return the release of the project with this URI."""
    records = (_record(ledger, uri) for ledger in matching_paths(images, "*/releases.json"))
    return next((record for record in records if record), None)


def _record(ledger: Path, uri: str) -> ReleaseRecord | None:
    """Return the newest record of an image with this URI, by digest or by tag."""
    digest = uri.partition("@")[2]
    for record in reversed(load(ledger)):
        for location in record.locations:
            repository = f"{location.registry}/{location.repository}"
            if uri == location.image_uri or uri in [f"{repository}:{tag}" for tag in location.tags]:
                return location
            # A copy in another registry has the same bytes.
            if digest and digest == location.digest:
                return location
    return None

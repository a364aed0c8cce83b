"""Images that a change affects, and their distribution over the jobs of a pipeline."""

import contextlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from bakehouse.catalog import git_history
from bakehouse.catalog.git_history import Past
from bakehouse.catalog.project import ProjectSettings
from bakehouse.catalog.recipe import Recipe
from bakehouse.errors import RecipeError, UsageError
from bakehouse.plan import dockerfile, image_keys, image_lock
from bakehouse.plan.key_reasons import key_reasons
from bakehouse.plan.model import Image, StageKey, key_with_code
from bakehouse.plan.planner import make_plan
from bakehouse.plan.recipe_diff import recipe_differences
from bakehouse.plan.workspace import Workspace, conflict_text
from bakehouse.resolve.resolver import Unsatisfiable, resolve
from bakehouse.util import file_format
from bakehouse.util.json_reader import parse_json

_FILES = (image_lock.FILE, dockerfile.FILE)
_BAKEHOUSE = "another version of Bakehouse: its templates or components"
_STAGE = 20_000_000
"""Weight of a stage in bytes of packages, because a stage without packages takes time too."""


@dataclass(frozen=True, slots=True)
class ChangedImages:
    """Images whose key differs from the key at a commit, and the reasons."""

    images: tuple[Image, ...]
    stages: frozenset[StageKey]
    """Their stages that no image of the project had at the commit."""
    reasons: Mapping[str, tuple[str, ...]]
    """The known reasons for the new key, by name of the image."""


def changed_since(project: ProjectSettings, images: Iterable[Image], revision: str) -> tuple[Image, ...]:
    """Return the images whose key differs from the key at a commit.

    Comparing the keys in committed locks also finds changes of Bakehouse's own templates and catalogue. Locks
    do not cover training code, so it is compared with the code of the commit. Raises UsageError.
    """
    keys, images = keys_at(project, revision), tuple(images)
    if not any(image.content.code and keys.get(image.name) == image.recipe_key for image in images):
        return _changed(images, keys, {})
    with git_history.past(project, revision, refusal_of=conflict_text) as past:
        return _changed(images, keys, past.recipes)


def compare(workspace: Workspace, images: Iterable[Image], revision: str) -> ChangedImages:
    """Return the images whose key differs from the key at a commit, with the new stages and the reasons.

    This version of Bakehouse plans the stages of the commit from its recipes. If the resulting key of an
    image is not the committed one, Bakehouse itself has changed, and all stages of the image are new.
    Raises UsageError.
    """
    project, images = workspace.project, tuple(images)
    keys = keys_at(project, revision)
    with git_history.past(project, revision, refusal_of=conflict_text) as past:
        changed = _changed(images, keys, past.recipes)
        old = _past_images(workspace, past, keys.keys() - past.unread.keys()) if changed else {}
        same = {name for name, image in old.items() if image.recipe_key == keys[name]}
        known = {stage.key for name in same for stage in old[name].stages}
        differences = {
            image.name: tuple(recipe_differences(past.recipes[image.name], workspace.recipes[image.name]))
            for image in changed
            if image.name in same
        }
    committed = _committed_files(project, revision) if changed else {}
    reasons: dict[str, tuple[str, ...]] = {}
    for image in changed:
        name = image.name
        if name not in keys:
            reasons[name] = ("new image",)
            continue
        reasons[name] = key_reasons(image, *(committed.get((name, file), b"") for file in _FILES))
        if name in past.unread:
            reasons[name] += (f"others are not known, because {past.unread[name]}",)
        elif name in old and name not in same:
            reasons[name] += (_BAKEHOUSE,)
        elif not reasons[name] and name in same:
            stages = (stage.name for stage in image.stages if stage.key not in known)
            reasons[name] = tuple(difference.text for difference in differences[name]) or tuple(
                f"files of component {stage}" for stage in stages
            )
    new = {stage.key for image in changed for stage in image.stages} - known
    return ChangedImages(changed, frozenset(new), reasons)


def _committed_files(project: ProjectSettings, revision: str) -> Mapping[tuple[str, str], bytes]:
    """Return the locks and Dockerfiles of a commit, by image and file name."""
    files = git_history.files_at(project.root, revision, project.images.name, _FILES)
    paths = ((PurePosixPath(path), content) for path, content in files.items())
    return {(path.parent.name, path.name): content for path, content in paths}


def _changed(
    images: Iterable[Image], keys: Mapping[str, object], recipes: Mapping[str, Recipe]
) -> tuple[Image, ...]:
    """Return the images whose key differs; `keys` and `recipes` are those of a commit."""
    past_keys = dict(keys)
    for image in images:
        if keys.get(image.name) == image.recipe_key and image.name in recipes:
            past_keys[image.name] = key_with_code(image.recipe_key, recipes[image.name].content)
    return tuple(image for image in images if past_keys.get(image.name) != image.key)


def _past_images(workspace: Workspace, past: Past, names: Collection[str]) -> dict[str, Image]:
    """Return the images of a commit, by name, as this version of Bakehouse plans them."""
    images = {}
    for name in names:
        with contextlib.suppress(KeyError, RecipeError, Unsatisfiable):
            resolution = resolve(past.recipes[name], past.catalog)
            plan = make_plan([resolution], workspace.templates, workspace.project.region, past.apt_locks)
            images[name] = plan.images[0]
    return images


def keys_at(project: ProjectSettings, revision: str) -> dict[str, object]:
    """Return the recipe keys of a commit from the locks of images, otherwise from the file of all keys.

    Raises UsageError.
    """
    directory, names = project.images.name, (image_lock.FILE, image_keys.FILE)
    files = git_history.files_at(project.root, revision, directory, names)
    every = files.pop(f"{directory}/{image_keys.FILE}", b"").decode(errors="replace")
    keys: dict[str, object] = {}
    if image_keys.is_ours(every):
        with file_format.reading(project.images / image_keys.FILE):
            keys |= {name: known and known.key for name, known in image_keys.parse(every).items()}
    for path, content in files.items():
        if path.endswith(f"/{image_lock.FILE}"):
            keys[PurePosixPath(path).parent.name] = _key(content)
    return keys


def _key(content: bytes) -> object:
    """Return the recipe key in a lock, or None if a merge damaged it."""
    try:
        return parse_json(content).get("key")
    except (ValueError, AttributeError):
        return None


def parse_shard(text: str) -> tuple[int, int]:
    """Return number and count of a shard such as `2/4`. Raises UsageError."""
    match = re.fullmatch(r"([1-9][0-9]{0,2})/([1-9][0-9]{0,2})", text)
    if match and int(match[1]) <= int(match[2]):
        return int(match[1]), int(match[2])
    raise UsageError(f"invalid shard `{text}`", hint="use NUMBER/COUNT, such as `2/4`")


def shard(images: Sequence[Image], number: int, count: int) -> tuple[Image, ...]:
    """Return one of `count` shares of the images.

    Images are assigned to the share where they add the least work, largest first. A stage that the share
    already builds adds no work. The weight of a stage is a constant plus the bytes of its Python packages.
    """
    shares: list[list[Image]] = [[] for _ in range(count)]
    weights = [0] * count
    stages: list[set[str]] = [set() for _ in range(count)]
    for image in sorted(images, key=lambda image: (-_weight(image, ()), image.name)):
        totals = [weights[index] + _weight(image, stages[index]) for index in range(count)]
        best = totals.index(min(totals))
        shares[best].append(image)
        weights[best] = totals[best]
        stages[best] |= {stage.key for stage in image.stages}
    selected = {image.name for image in shares[number - 1]}
    return tuple(image for image in images if image.name in selected)


def _weight(image: Image, built: Collection[str]) -> int:
    """Return the work that an image adds to a share that already builds some stages."""
    stages = [stage for stage in image.stages if stage.key not in built]
    return _STAGE + sum(_STAGE + sum(package.bytes for package in stage.wheels) for stage in stages)

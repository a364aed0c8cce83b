"""Images that a change affects, and their distribution over the jobs of a pipeline."""

import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import PurePosixPath

from bakehouse.catalog import git_history
from bakehouse.catalog.project import Project
from bakehouse.errors import UsageError
from bakehouse.plan import image_keys, image_lock
from bakehouse.plan.model import Image, key_with_code
from bakehouse.util.json_reader import parse_json

_STAGE = 20_000_000
"""Weight of a stage in bytes of packages, because a stage without packages takes time too."""


def changed_since(project: Project, images: Iterable[Image], revision: str) -> tuple[Image, ...]:
    """Return the images whose key differs from that at a commit.

    Comparing the keys in committed locks also finds changes of Bakehouse's own templates and catalogue. Locks
    do not cover training code, so it is compared with that of the commit. Raises UsageError.
    """
    keys = keys_at(project, revision)
    images = tuple(images)
    same_recipe = [image for image in images if keys.get(image.name) == image.recipe_key]
    past_keys = dict(keys)
    if any(image.content.code for image in same_recipe):
        with git_history.past(project, revision) as past:
            past_keys |= {
                image.name: key_with_code(image.recipe_key, past.recipes[image.name].content)
                for image in same_recipe
                if image.name in past.recipes
            }
    return tuple(image for image in images if past_keys.get(image.name) != image.key)


def keys_at(project: Project, revision: str) -> dict[str, object]:
    """Return the recipe keys that a commit has in the locks of images, or else in the file of all keys.

    Raises UsageError.
    """
    directory, names = project.images.name, (image_lock.FILE, image_keys.FILE)
    files = git_history.files_at(project.root, revision, directory, names)
    every = files.pop(f"{directory}/{image_keys.FILE}", b"").decode(errors="replace")
    keys: dict[str, object] = {**image_keys.parse(every)} if image_keys.is_ours(every) else {}
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

    Images go to the share where they add the least work, largest first: a stage that the share builds anyway
    adds none. The weight of a stage is a constant plus the bytes of its Python packages.
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
    """Return the work that an image adds to a share that builds some stages anyway."""
    stages = [stage for stage in image.stages if stage.key not in built]
    return _STAGE + sum(_STAGE + sum(package.bytes for package in stage.wheels) for stage in stages)

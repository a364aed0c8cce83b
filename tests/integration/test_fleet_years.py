"""A year of twelve images in one repository, without an engine: upgrades, clones, renames, moves."""

import hashlib
import os
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.ledger.releases import append
from tests.support.git_repository import git
from tests.support.release_records import a_record

pytestmark = [pytest.mark.release, pytest.mark.timeout(1200)]
OLD, NEW = "old.example", "new.example"
RECIPE = """\
summary: Trains models of {team}
name: {team}-py${{python|tag}}-deb${{debian}}
matrix: {{python: ["3.11", "3.13"], debian: ["12", "13"]}}
base: {{debian: "${{debian}}"}}
components: {{python: "${{python}}"}}
requirements: ../../locks/{lock}.lock
"""
IMAGE = "search-py311-deb12"


@dataclass(frozen=True)
class Clone:
    """A clone of the repository, with a home directory, a umask and a time zone of its own."""

    root: Path
    home: Path
    umask: int = 0o022
    time_zone: str = "UTC"

    def bake(self, *words: str, code: int = 0) -> str:
        """Run a command; return both of its outputs."""
        command = [str(HOME / "bake"), *words]
        variables = {"HOME": str(self.home), "TZ": self.time_zone, "NO_COLOR": "1", "GITHUB_ACTIONS": ""}
        result = subprocess.run(
            command,
            cwd=self.root,
            env=os.environ | variables,
            capture_output=True,
            text=True,
            umask=self.umask,
            check=False,
        )
        assert result.returncode == code, result.stdout + result.stderr
        return result.stdout + result.stderr

    def lock(self, team: str, version: str) -> None:
        digest = hashlib.sha256(version.encode()).hexdigest()
        line = f"shared=={version} --hash=sha256:{digest}  # shared-{version}-py3-none-any.whl 1000\n"
        path = self.root / "locks" / f"{team}.lock"
        path.parent.mkdir(exist_ok=True)
        path.write_text(line)

    def commit(self, message: str) -> None:
        git(self.root, "add", "--all")
        git(self.root, "commit", "--quiet", "--message", message)

    def release(self, number: int, image: str = IMAGE, registry: str = OLD) -> str:
        """Record a release without a push; return its image URI."""
        digest = f"sha256:{number:064x}"
        uri = f"{registry}/team/{image}@{digest}"
        record = replace(
            a_record(),
            image=image,
            date=f"2026-{1 + number // 28:02}-{1 + number % 28:02}",
            digest=digest,
            key=f"{number:064x}",
            tags=(f"{image}-{number}",),
            registry=registry,
            repository=f"team/{image}",
            image_uri=uri,
        )
        append(self.root / "images" / image / "releases.json", record, self.root / "build/locks")
        return uri


@pytest.fixture
def fleet(tmp_path: Path) -> Clone:
    """The repository with twelve rendered images of three teams."""
    clone = Clone(tmp_path / "fleet", tmp_path / "home")
    for directory in (clone.root / "recipes/images", clone.home):
        directory.mkdir(parents=True)
    settings = f'[tool.bakehouse]\nrecipes = ["recipes"]\nregistry = "{OLD}/team"\n'
    (clone.root / "pyproject.toml").write_text(settings)
    (clone.root / ".gitignore").write_text("build/\n")
    (clone.root / ".gitattributes").write_text("images/*/releases.json merge=union\n")
    for team in ("ads", "search", "vision"):
        clone.lock(team, "1.0")
        (clone.root / f"recipes/images/{team}.yaml").write_text(RECIPE.format(team=team, lock=team))
    clone.bake("render")
    git(clone.root, "init", "--quiet")
    clone.commit("Start")
    return clone


def cloned(fleet: Clone, name: str) -> Clone:
    parent = fleet.root.parent
    other = Clone(parent / name, parent / f"{name}-home", umask=0o077, time_zone="Pacific/Kiritimati")
    other.home.mkdir()
    git(fleet.root, "clone", "--quiet", str(fleet.root), str(other.root))
    return other


def test_a_clone_has_the_same_files_and_upgrades_of_two_teams_merge(fleet: Clone) -> None:
    other = cloned(fleet, "other")
    assert "of 12 images are up to date" in other.bake("render", "--check")
    assert other.bake("lock").startswith("everything is locked")
    assert git(other.root, "status", "--short") == ""

    for clone, team in ((fleet, "ads"), (other, "search")):
        clone.lock(team, "2.0")
        clone.bake("render")
        changed = git(clone.root, "diff", "--name-only").splitlines()
        assert len(changed) == 2 * 4 + 1
        assert clone.bake("diff", "--from", "HEAD").count("shared 1.0 → 2.0") == 4
        clone.commit(f"Upgrade {team}")
    git(other.root, "pull", "--quiet", "--no-rebase", "--no-edit", "origin", "main")
    assert "are up to date" in other.bake("render", "--check")
    assert len(other.bake("plan", "--from", "HEAD^1", "--names").split()) == 4
    assert len(other.bake("plan", "--from", "HEAD~2", "--names").split()) == 8


def test_thirty_releases_of_two_clones_are_merged_and_looked_up(fleet: Clone) -> None:
    other = cloned(fleet, "other")
    uris = [(fleet if number % 2 else other).release(number) for number in range(30)]
    for clone in (fleet, other):
        clone.commit("Release")
    git(other.root, "pull", "--quiet", "--no-rebase", "--no-edit", "origin", "main")

    assert other.bake("uri", IMAGE) == f"{uris[-1]}\n"
    listed = other.bake("releases", IMAGE)
    assert [uri for uri in uris if uri in listed] == uris
    assert len(other.bake("plan", "--missing", "release", "--names").split()) == 12


def test_a_renamed_team_and_a_moved_registry_keep_the_releases(fleet: Clone) -> None:
    uri = fleet.release(1)
    fleet.commit("Release")
    images = fleet.root / "recipes/images"
    recipe = (
        RECIPE.format(team="ranking", lock="search") + "renamed_from: search-py${python|tag}-deb${debian}\n"
    )
    (images / "ranking.yaml").write_text(recipe)
    assert f"`ranking-py311-deb12` is renamed from `{IMAGE}`, which still has" in fleet.bake("render", code=2)
    (images / "search.yaml").unlink()
    fleet.bake("render")

    assert not list((fleet.root / "images").glob("search-*"))
    assert fleet.bake("uri", "ranking-py311-deb12") == f"{uri}\n"
    assert "use `ranking-py311-deb12`, which has its releases" in fleet.bake("uri", IMAGE, code=64)
    assert f"ranking-py311-deb12, renamed from {IMAGE}\n" in fleet.bake("diff", "--from", "HEAD")
    fleet.commit("Rename")
    assert "are up to date" in cloned(fleet, "later").bake("render", "--check")

    settings = fleet.root / "pyproject.toml"
    settings.write_text(settings.read_text().replace(OLD, NEW))
    answer = fleet.bake("uri", "ranking-py311-deb12", code=64)
    assert f"was never published to `{NEW}/team`" in answer
    assert uri not in answer
    moved = fleet.release(1, "ranking-py311-deb12", NEW)
    assert fleet.bake("uri", "ranking-py311-deb12") == f"{moved}\n"
    assert fleet.bake("uri", "ranking-py311-deb12", "--registry", OLD) == f"{uri}\n"


def test_a_removed_recipe_leaves_only_its_ledger(fleet: Clone) -> None:
    fleet.release(1, "ads-py311-deb12")
    (fleet.root / "recipes/images/ads.yaml").unlink()
    fleet.bake("render")
    left = [path.relative_to(fleet.root / "images") for path in (fleet.root / "images").glob("ads-*/*")]
    assert left == [Path("ads-py311-deb12/releases.json")]
    assert not list((fleet.root / "images").glob("ads-py313-*"))

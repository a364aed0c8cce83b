"""The lock of an image names every file that its build takes."""

import json
from hashlib import sha256
from typing import Any

from bakehouse.plan import image_lock
from tests.support.locked_debian import PACKAGES, index
from tests.support.trees import COMPONENTS, IMAGE, SHA, Tree


def lock(tree: Tree) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(image_lock.text(tree.planned_image()))
    return document


def test_packages_of_the_distribution_stand_with_version_sum_and_size(tree: Tree) -> None:
    tree.write("apt/bookworm.packages", index())
    content = lock(tree)
    image = tree.planned_image()
    assert [package["sha256"] for package in content["system"]] == [
        deb.sha256 for deb in sorted(image.debs, key=lambda d: d.name)
    ]
    assert content["system"][0] == {
        "name": "apt",
        "version": "1.0",
        "sha256": image.debs[0].sha256,
        "bytes": 1000,
        "file": "pool/main/a/apt/apt_1.0_amd64.deb",
    }
    assert {package["name"] for package in content["system"]} == {*PACKAGES} - {"awk-of-mine"}
    assert content["base"] == {"reference": image.base.reference, "bootstrapped": "bookworm"}
    assert content["key"] == image.key


def test_what_mirrors_decide_is_null(tree: Tree) -> None:
    assert lock(tree)["system"] == [{"name": "gcc", "version": None, "sha256": None}]


def test_a_base_of_a_registry_stands_with_its_digest(tree: Tree) -> None:
    digest = f"sha256:{SHA}"
    tree.component(
        "debian",
        COMPONENTS["debian"].replace(
            "{bootstrap: bookworm, packages: [ca-certificates]}",
            f'{{image: "vendor/debian:12", digest: "{digest}"}}',
        ),
    )
    assert lock(tree)["base"] == {"reference": "vendor/debian:12", "digest": digest}


def test_python_packages_and_archives_stand_once_with_their_files(tree: Tree) -> None:
    tree.component(
        "torch",
        COMPONENTS["torch"].replace(
            '      - name: cpu-py311\n        requires: {python: "3.11"}\n',
            '      - name: cpu-py311\n        requires: {python: "3.11"}\n        lock: lock.txt\n'
            f'        artifacts:\n          wheel: {{url: "https://x.example/t-1.whl", sha256: "{SHA}"}}\n'
            f'          source: {{url: "https://x.example/s.tgz", sha256: "{SHA}", bytes: 2861523148}}\n',
        ),
    )
    tree.write(
        "components/torch/lock.txt", f"six==1.17.0 --hash=sha256:{SHA}  # six-1.17.0-py3-none-any.whl 11050\n"
    )
    content = lock(tree)
    assert content["python"] == [
        {
            "name": "six",
            "version": "1.17.0",
            "sha256": SHA,
            "bytes": 11050,
            "file": "six-1.17.0-py3-none-any.whl",
        }
    ]
    assert content["archives"] == [
        {"file": "s.tgz", "sha256": SHA, "bytes": 2861523148, "source": "https://x.example/s.tgz"},
        {"file": "t-1.whl", "sha256": SHA, "bytes": None, "source": "https://x.example/t-1.whl"},
    ]


def test_files_are_listed_with_their_sha256_but_training_code_is_not(tree: Tree) -> None:
    assert "files" not in lock(tree)
    tree.write("images/src/train.py", "pass\n")
    tree.write("images/run.sh", "#!/bin/sh\n").chmod(0o755)
    tree.image(IMAGE + "code: {directory: src, entry_point: train.py}\nfiles: [{from: run.sh, to: /opt/}]\n")

    assert lock(tree)["files"] == [
        {"file": "/opt/run.sh", "sha256": sha256(b"#!/bin/sh\n").hexdigest(), "bytes": 10, "executable": True}
    ]


def test_each_file_has_a_line_of_its_own(tree: Tree) -> None:
    tree.write("apt/bookworm.packages", index())
    lines = image_lock.text(tree.planned_image()).splitlines()
    assert sum(line.startswith('  {"name": ') for line in lines) == len(tree.planned_image().debs)

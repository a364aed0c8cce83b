"""What may import what: one direction, and one door to each outside tool."""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from bakehouse.project import HOME

SHARED = {"errors", "files"}
"""Any module may import these."""

ANY = "*"
"""The pipeline spelled out may import all that stands above it."""

ALLOWED = {
    # what all share
    "errors": "",
    "files": "",
    "report": "",
    "deadline": "",
    # from a recipe to an image that is planned and rendered
    "yamlfile": "",
    "fields": "yamlfile",
    "budgets": "yamlfile fields",
    "matrix": "yamlfile fields",
    "keys": "",
    "lockfile": "keys",
    "component": "lockfile",
    "trimming": "yamlfile fields component",
    "faces": "yamlfile fields component lockfile trimming",
    "registries": "yamlfile fields component",
    "catalog": "yamlfile fields matrix component faces registries",
    "ownfiles": "fields",
    "recipe": "yamlfile fields budgets matrix component lockfile faces trimming catalog ownfiles",
    "schema": "yamlfile fields matrix catalog recipe",
    "instances": "yamlfile component catalog",
    "sizing": "instances",
    "candidates": "keys lockfile component recipe",
    "fitting": "component catalog recipe candidates",
    "resolution": "lockfile component catalog recipe candidates fitting",
    "aptlock": "",
    "baselock": "aptlock",
    "aptsteps": "component aptlock baselock resolution",
    "plan": "aptlock budgets lockfile component trimming recipe",
    "stages": "aptlock aptsteps budgets keys trimming plan resolution",
    "planning": (
        "yamlfile aptlock baselock aptsteps budgets keys component ownfiles recipe resolution plan stages"
    ),
    "wording": "lockfile component candidates",
    "pins": "component recipe wording",
    "nearest": "component catalog recipe candidates resolution wording pins",
    "explain": "yamlfile component catalog recipe candidates plan wording pins nearest",
    "chosen": "component catalog candidates resolution wording pins nearest",
    "question": (
        "yamlfile component faces catalog recipe candidates resolution wording pins nearest explain chosen"
    ),
    "comparison": "yamlfile catalog lockfile recipe resolution",
    "outdated": "component catalog candidates resolution wording nearest explain chosen",
    "imagelock": "component plan",
    "layering": "budgets plan",
    "rendering": "plan imagelock layering",
    "tomlplace": "",
    "registry_settings": "",
    "registry": "deadline plan",
    "registry_tables": "yamlfile registry registry_settings tomlplace",
    "project": "yamlfile registry_settings registry_tables tomlplace",
    "revisions": "fields yamlfile catalog recipe project",
    "catalogcache": "catalog",
    "workspace": (
        "yamlfile baselock catalog catalogcache recipe resolution plan planning explain rendering project"
    ),
    # the machine: programs, locks, the engine
    "processes": "",
    "locks": "deadline",
    "owners": "",
    "scratch": "owners",
    "engine": "",
    "archives": "",
    "network_faults": "",
    "engine_words": "",
    "docker_container": "engine archives network_faults engine_words",
    "containers": "owners keys engine archives engine_words docker_container",
    "apt": "",
    "aptconfig": "",
    "dockerd": "",
    "daemon": "plan",
    "clocked_runc": "",
    "other_clock": "clocked_runc dockerd",
    "second_engine": "owners dockerd other_clock",
    "engine_use": "deadline locks dockerd",
    "provision": "apt dockerd engine_use daemon",
    "doctor": "apt dockerd daemon provision",
    # what a build is given, building
    "pipconfig": "",
    "fileserver": "",
    "certificates": "pipconfig",
    "simple_index": "",
    "mirrors": "plan",
    "wanted": "aptlock component lockfile plan",
    "store": "deadline plan locks mirrors",
    "reach": "",
    "logins": "reach",
    "web": "reach logins",
    "s3_files": "web",
    "sources": "deadline aptconfig pipconfig simple_index wanted reach web s3_files",
    "patience": "web",
    "fetching": "deadline mirrors wanted store web sources patience",
    "step_server": "fileserver simple_index wanted fetching",
    "supplies": ("scratch aptconfig pipconfig certificates wanted reach fetching step_server"),
    "gathering": (
        "aptlock plan project engine pipconfig certificates mirrors wanted store reach sources fetching "
        "supplies"
    ),
    "buildevents": "",
    "buildtimes": "buildevents",
    "buildfailure": "buildevents",
    "buildx": "processes scratch engine_use buildevents buildfailure",
    "redrawn": "",
    "progress": "report buildevents buildtimes redrawn",
    "aptlocking": "aptlock aptconfig processes scratch",
    "bootstrap": "aptlock plan processes locks scratch engine aptconfig buildevents",
    "fetch_progress": "progress fetching redrawn",
    "feeding": "supplies gathering buildevents buildfailure buildx progress",
    "build": "plan engine supplies gathering feeding buildfailure buildx progress bootstrap",
    "built_before": "plan engine imagelock build",
    # what an image weighs
    "elf": "",
    "decompression": "",
    "layers": "elf",
    "saved_image": "decompression layers",
    "size_report": "component fields layers saved_image trimming",
    "layer_entries": "",
    "reproduction": "plan rendering engine saved_image layer_entries",
    # smoke tests
    "checks": "plan engine",
    "ranks": "",
    "jobs": "",
    "cluster": "engine jobs ranks",
    "transports": "",
    "jobstream": "jobs cluster",
    "delivery": "",
    "job_causes": "",
    "job_failure": "jobs ranks cluster job_causes",
    "job_report": "jobs ranks cluster transports job_causes job_failure",
    "run_options": "jobs",
    "smoke_report": "plan checks",
    "smoke_checks": "plan checks jobs",
    "verdicts": "checks jobs ranks cluster smoke_report smoke_checks",
    "smoke": "engine build checks cluster smoke_report smoke_checks verdicts",
    "junit": "checks smoke_report",
    # publishing
    "manifests": "keys plan",
    "registry_answers": "registry",
    "distribution": "deadline plan registry manifests registry_answers",
    "transfer": "deadline plan registry manifests",
    "refusals": "plan registry manifests registry_answers transfer",
    "release_tags": "deadline plan registry manifests registry_answers distribution refusals",
    "installed": "engine plan",
    "purls": "aptlock component lockfile plan installed",
    "sbom": "lockfile plan installed purls",
    "provenance": "plan purls",
    "attaching": "plan manifests registry_answers distribution",
    "push_queue": "deadline plan",
    "releasable": "plan build smoke_report manifests",
    "push": (
        "deadline plan locks build smoke_report registry manifests registry_answers distribution transfer "
        "refusals release_tags push_queue releasable"
    ),
    "pusher": "plan owners engine_use registry manifests registry_answers transfer",
    "registry_keeper": "",
    "embedded_registry": "locks registry registry_keeper",
    "lifecycle": "",
    "aws_answers": "",
    "aws": "aws_answers",
    "ecr_hosts": "registry",
    "ecr_repositories": "registry_settings lifecycle aws",
    "ecr": "plan registry registry_settings lifecycle transfer aws ecr_hosts ecr_repositories",
    "releases": "locks registry",
    "instance_gpus": "",
    "image_uris": "project registry releases instance_gpus",
    "recording": "plan smoke_report release_tags releases",
    "promotion": (
        "deadline plan locks smoke_report registry manifests registry_answers distribution transfer refusals "
        "release_tags push releases"
    ),
    "team_ledger": "aws_answers releases",
    "ledger": "locks project releases team_ledger yamlfile",
    "fleet_size": "releases size_report",
    "size_tables": "size_report fleet_size",
    "measuring": "budgets plan rendering engine build layers saved_image size_report size_tables",
    "verification": "deadline plan registry manifests registry_answers distribution releases",
    "destinations": (
        "yamlfile project registry registry_settings workspace provision pusher embedded_registry aws "
        "ecr_hosts ecr"
    ),
    "base_logins": "plan project registry scratch ecr_hosts destinations",
    "ecr_replication": "deadline registry manifests transfer release_tags ecr",
    "regions": "registry release_tags ecr releases",
    "ecr_scan": "deadline yamlfile registry_tables release_tags transfer releases aws ecr ecr_replication",
    "attestation": (
        "deadline locks engine build registry manifests registry_answers transfer release_tags push "
        "releases installed sbom provenance attaching"
    ),
    "image_push": (
        "deadline plan project revisions workspace engine build smoke_report registry manifests push "
        "push_queue pusher attestation aws ecr release_tags releasable releases image_uris recording ledger "
        "destinations regions ecr_replication ecr_scan"
    ),
    "publishing": (
        "plan project workspace containers provision build smoke_report registry distribution push "
        "push_queue revisions release_tags releases image_uris recording promotion ledger verification "
        "destinations regions ecr_replication ecr_scan image_push"
    ),
    # what a job is told
    "findings": "",
    "launch_rules": "findings",
    "strategies": "yamlfile findings launch_rules",
    "instance_groups": "instances findings launch_rules",
    "launch_settings": "yamlfile findings launch_rules strategies instance_groups",
    "model_trainer": "yamlfile findings launch_rules strategies instance_groups launch_settings",
    # what a job is checked for before it is sent, and the code that sends it
    "training_request": "component catalog releases instance_groups launch_settings",
    "efa_rules": "findings launch_rules instance_groups training_request",
    "compiler_rules": "findings launch_rules launch_settings training_request",
    "image_rules": "instance_gpus findings launch_rules launch_settings training_request",
    "sending_rules": "instance_gpus findings launch_rules launch_settings training_request",
    "estimator": (
        "findings launch_rules launch_settings model_trainer training_request efa_rules compiler_rules "
        "image_rules sending_rules"
    ),
    "literals": "",
    "api_request": "training_request",
    "boto3_code": "registry literals training_request api_request",
    "sdk_code": "literals training_request",
    "asked_job": (
        "catalog instances jobs releases findings instance_groups launch_settings training_request estimator"
    ),
    "snippets": "catalog registry releases findings training_request boto3_code sdk_code asked_job",
    "running": (
        "catalog instances engine network_faults jobs cluster delivery job_report instance_groups "
        "launch_settings model_trainer"
    ),
    # a job on SageMaker
    "training_service": "aws_answers",
    "training_logs": "cluster training_service",
    "following": "aws_answers cluster training_service training_logs",
    "launch_report": "job_causes job_report following",
    "launching": (
        "aws_answers instances workspace jobs jobstream delivery registry instance_gpus image_uris findings "
        "training_request api_request asked_job training_service following launch_report"
    ),
    # pins and locks
    "pylock": "processes pipconfig reach web sources",
    "pin": "yamlfile component faces plan mirrors wanted store web sources pylock",
    "system_locks": "aptlock aptlocking aptsteps recipe resolution workspace",
    "baselocking": "aptlock baselock aptlocking rendering scratch supplies buildevents buildx",
    "pulled_locks": (
        "baselock aptsteps planning recipe resolution workspace aptlocking baselocking supplies buildevents "
        "provision daemon base_logins"
    ),
    "drift": (
        "aptlock baselock aptsteps component lockfile recipe candidates resolution workspace pylock "
        "buildevents system_locks pulled_locks"
    ),
    "locking": (
        "candidates component catalog lockfile recipe resolution project workspace locks pipconfig "
        "certificates pylock pin buildevents system_locks pulled_locks drift"
    ),
    # rehearsals, and how far images were run
    "rehearsal": "component lockfile plan",
    "standins": "plan project rehearsal",
    "standin_server": "fileserver",
    "standin_bases": "plan rendering project rehearsal standins standin_server",
    "rehearsing": (
        "plan project rendering engine scratch wanted supplies gathering feeding buildx buildfailure "
        "bootstrap progress checks rehearsal standins standin_server standin_bases"
    ),
    "runs": "plan locks",
    # the tasks
    "building": (
        "plan project engine progress provision checks base_logins gathering supplies build built_before"
    ),
    "workflow": ANY,
    "inventory": "planning recipe resolution workspace runs",
    "tables": (
        "yamlfile resolution plan wording chosen question comparison outdated revisions workspace "
        "inventory build checks smoke_report releases rehearsal rehearsing"
    ),
    "fetch_task": "plan wanted workspace gathering fetch_progress",
    "cleaning": "plan workspace containers daemon fetching store",
    "size_reporting": (
        "yamlfile engine daemon plan releases ledger size_report fleet_size size_tables measuring "
        "workspace workflow"
    ),
    "reproducing": (
        "plan workspace processes scratch containers dockerd daemon other_clock second_engine provision "
        "reproduction workflow"
    ),
    "demo": "workspace provision buildtimes progress smoke_report releasable snippets workflow tables",
    "selftest": "project workspace provision",
    "cli": "report yamlfile project",
}
"""Modules in pipeline order, each with those of ours it may import: only ones that stand above it."""

DOORS = {
    "boto3": {"aws", "delivery", "s3_files", "team_ledger", "training_service"},
    "botocore": {"aws", "aws_answers", "ecr_hosts", "s3_files", "team_ledger", "training_service"},
    "cyclonedx": {"sbom"},
    "docker": {"containers", "docker_container", "engine_words", "pusher"},
    "invoke": {"cli"},
    "jinja2": {"rendering"},
    "moto": {"delivery"},
    "packageurl": {"purls", "sbom"},
    "packaging": {
        "candidates",
        "catalog",
        "checks",
        "chosen",
        "comparison",
        "component",
        "faces",
        "lockfile",
        "locking",
        "nearest",
        "pylock",
        "sbom",
        "standins",
    },
    "requests": {
        *("distribution", "docker_container", "embedded_registry", "engine_words", "pusher"),
        "registry_answers",
    },
    "urllib3": {"web"},
    "yaml": {"yamlfile"},
}
"""Packages of others, each with the modules that may import it."""

SLOW = {"boto3", "botocore", "cyclonedx", "docker", "jinja2", "requests", "urllib3"}
"""Imported where they are used: a task that needs none of them starts at once."""

PROGRAMS = {
    "apt",
    "aptconfig",
    "aptlocking",
    "bootstrap",
    "build",
    "daemon",
    "decompression",
    "dockerd",
    "doctor",
    "embedded_registry",
    "logins",
    "network_faults",
    "other_clock",
    "processes",
    "provision",
    "pylock",
    "registry_keeper",
    "reproduction",
    "revisions",
    "second_engine",
    "selftest",
    "sources",
    "supplies",
}
"""Modules that may run other programs."""

PACKAGE = HOME / "bakehouse"
MODULES = sorted(path.stem for path in PACKAGE.glob("*.py") if path.stem != "__init__")


@cache
def tree(module: str) -> ast.Module:
    return ast.parse((PACKAGE / f"{module}.py").read_text(encoding="utf-8"))


def imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Each import as the package and the part of it that is taken."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                package, _, part = alias.name.partition(".")
                yield package, part
        elif isinstance(node, ast.ImportFrom) and node.module:
            package, _, part = node.module.partition(".")
            if package == "bakehouse" and not part:
                yield from ((package, alias.name) for alias in node.names)
            else:
                yield package, part


def at_module_level(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The imports that run when the module is imported."""
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from imports(node)


def allowed(module: str) -> set[str]:
    modules = [*ALLOWED]
    return set(modules[: modules.index(module)] if ALLOWED[module] == ANY else ALLOWED[module].split())


def outside(module: str) -> set[str]:
    """The packages of others that a module imports."""
    return {package for package, _ in imports(tree(module))} - sys.stdlib_module_names - {"bakehouse"}


def test_a_module_imports_only_what_the_table_allows() -> None:
    unknown = [module for module in MODULES if module not in ALLOWED]
    assert not unknown, (
        f"not in the table ALLOWED of {Path(__file__).name}: {unknown}; say what they may import"
    )

    taken = {
        module: {part.partition(".")[0] for package, part in imports(tree(module)) if package == "bakehouse"}
        for module in MODULES
    }
    extra = {
        module: sorted(found)
        for module, names in taken.items()
        if (found := names - SHARED - allowed(module) - {"__version__"})
    }
    assert extra == {}


def test_the_table_has_one_direction_and_nothing_that_is_gone() -> None:
    above: set[str] = set()
    for module in ALLOWED:
        assert allowed(module) <= above, f"{module} may import what stands below it"
        above.add(module)

    assert above == set(MODULES)


def test_the_fixtures_for_other_projects_need_nothing_else_of_ours() -> None:
    taken = {
        part.partition(".")[0]
        for path in (PACKAGE / "testing").glob("*.py")
        for package, part in imports(ast.parse(path.read_text(encoding="utf-8")))
        if package == "bakehouse"
    }
    assert taken == {"testing"}


def test_packages_of_others_have_their_doors() -> None:
    elsewhere = {
        module: sorted(found)
        for module in MODULES
        if (found := {one for one in outside(module) if module not in DOORS.get(one, set())})
    }

    assert elsewhere == {}


def test_what_takes_long_to_import_is_imported_where_it_is_used() -> None:
    at_once = {module: {package for package, _ in at_module_level(tree(module))} & SLOW for module in MODULES}

    assert {module: found for module, found in at_once.items() if found} == {}


def test_only_some_modules_run_programs() -> None:
    running = {module for module in MODULES if ("subprocess", "") in imports(tree(module))}

    assert running == PROGRAMS


def test_docker_buildx_is_run_by_one_module() -> None:
    running = {
        module
        for module in MODULES
        for node in ast.walk(tree(module))
        if isinstance(node, (ast.List, ast.Tuple))
        and {"docker", "buildx"} <= {one.value for one in node.elts if isinstance(one, ast.Constant)}
    }

    assert running == {"buildx"}


def test_what_runs_inside_an_image_needs_nothing_of_ours() -> None:
    paths = [*PACKAGE.glob("inside/*.py"), *HOME.glob("recipes/components/*/smoke.py")]
    needing = [
        str(path.relative_to(HOME))
        for path in paths
        if "bakehouse" in {package for package, _ in imports(ast.parse(path.read_text(encoding="utf-8")))}
    ]

    assert len(paths) > 10
    assert needing == []

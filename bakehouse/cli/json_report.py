"""Reports as JSON values. docs/reference/json.md documents the shapes; tests compare both."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bakehouse.resolve.phrases import (
    absent_warnings,
    location_text,
    part_text,
    predicate,
    requester_text,
    requirement_text,
    target_warnings,
)

if TYPE_CHECKING:
    # Tasks import this module when they start, and most of these imports are slow.
    from collections.abc import Iterable, Mapping, Sequence

    from bakehouse.builder.built_image import BuiltImage
    from bakehouse.catalog.component import Incompatibility
    from bakehouse.cli.doctor import DoctorCheck
    from bakehouse.cluster.smoke_report import SmokeReport
    from bakehouse.jobs.job_spec import CheckedJob
    from bakehouse.jobs.sizing import Recommendation
    from bakehouse.ledger.releases import ReleaseRecord
    from bakehouse.lock.drift import Drift
    from bakehouse.plan.affected import ChangedImages
    from bakehouse.plan.diff import History, Locks
    from bakehouse.plan.explain_package import PackageOrigin
    from bakehouse.plan.model import BootstrappedBase, Plan
    from bakehouse.resolve.candidate import Candidate, Demand
    from bakehouse.resolve.explain import Explanation
    from bakehouse.resolve.resolver import Choice, Resolution
    from bakehouse.resolve.what_if import Assumptions, ImageFit

Json = dict[str, Any]


def releases(records: Iterable[ReleaseRecord]) -> Json:
    """Return the records of the ledger."""
    return {"format": 1, "releases": [asdict(record) for record in records]}


def resolutions(resolved: Iterable[Resolution]) -> list[Json]:
    """Return the components of each image and the warnings about their combination."""
    return [
        {
            "image": resolution.recipe.name or None,
            "components": [component(choice) for choice in resolution.all_choices],
            "warnings": warnings(resolution),
        }
        for resolution in resolved
    ]


def warnings(resolution: Resolution) -> list[Json]:
    """Return the reported problems of an image."""
    problems = [_warning(candidate, problem, resolution) for candidate, problem in resolution.warnings]
    none: Json = {"component": None, "content": None, "with": [], "source": None}
    return problems + [{**none, "reason": text} for text in target_warnings(resolution)]


def _warning(candidate: Candidate, problem: Incompatibility, resolution: Resolution) -> Json:
    return {
        "component": str(candidate),
        "content": problem.content or None,
        "with": [part_text(part, resolution.targets) for part in problem.parts],
        "reason": problem.reason,
        "source": problem.source,
    }


def component(choice: Choice) -> Json:
    """Return one component of an image."""
    return {
        "name": choice.name,
        "version": choice.version,
        "variant": choice.candidate.variant.name or None,
        "provides": dict(choice.spec.provides),
    }


def fit(assumptions: Assumptions, resolved: Sequence[Resolution], undecided: Iterable[str] = ()) -> Json:
    """Return the combinations that satisfy assumptions: in one image, or on each base that fits."""
    fits = resolutions(resolved)
    for combination, resolution in zip(fits, resolved, strict=True):
        combination["warnings"] += [
            _warning(candidate, problem, resolution)
            for candidate, problem, _ in absent_warnings(resolution, assumptions.names)
        ]
    return {"assumptions": str(assumptions), "fits": fits, "not_known": [*undecided]}


def image_fits(assumptions: Assumptions, fits: Sequence[ImageFit]) -> Json:
    """Return for each image whether assumptions fit."""
    images = [
        {
            "image": fit.image,
            "fits": fit.resolution is not None if fit.is_decided else None,
            "changes": fit.changes or None,
            "lacks": fit.lacking or None,
            "warnings": warnings(fit.resolution) if fit.resolution else [],
        }
        for fit in fits
    ]
    return {"assumptions": str(assumptions), "images": images}


def answer(explanation: Explanation) -> list[Json]:
    """Return which changes allow a newer version, and why none allows the newest one."""
    return [
        {"text": line.text, "locations": [location_text(location) for location in line.locations]}
        for line in explanation.answer
    ]


def explanation(resolution: Resolution, explanations: Iterable[Explanation]) -> Json:
    """Return who requires each component and what excludes its newer releases."""
    return {
        "image": resolution.recipe.name,
        "components": [
            {
                **component(explained.choice),
                "newest": explained.newest,
                "required_by": [_demand(demand) for demand in explained.choice.demands],
                "excluded": [
                    {"candidate": str(refusal.candidate), "reason": predicate(refusal)}
                    for refusal in explained.choice.skipped
                ],
                "answer": answer(explained),
            }
            for explained in explanations
        ],
        "warnings": warnings(resolution),
    }


def packages(image: str, origins: Sequence[PackageOrigin]) -> Json:
    """Return the origins of the packages of a name in an image."""
    return {
        "image": image,
        "packages": [
            {
                "name": origin.name,
                "kind": origin.kind,
                "version": origin.version,
                "in_image": origin.in_image,
                "brought_by": [
                    {
                        "reason": reason.text,
                        "location": location_text(reason.location) if reason.location else "",
                    }
                    for reason in origin.reasons
                ],
            }
            for origin in origins
        ],
    }


def _demand(demand: Demand) -> Json:
    return {
        "by": requester_text(demand),
        "requirement": requirement_text(demand.requirement),
        "location": location_text(demand.requirement.location),
    }


def comparison(before: Resolution, after: Resolution, locks: Locks, unread: str = "") -> Json:
    """Return the components, packages and values of recipes that differ between two images.

    `unread` says why the Python packages are not known.
    """
    from bakehouse.plan import diff

    return {
        "before": before.recipe.name,
        "after": after.recipe.name,
        "components": [
            {
                "name": difference.name,
                "before": component(difference.before) if difference.before else None,
                "after": component(difference.after) if difference.after else None,
            }
            for difference in diff.differences(before, after)
        ],
        "packages": [
            {"kind": changes.kind, **asdict(change)}
            for changes in diff.package_changes(before, after, locks)
            if not unread or changes.kind != diff.PYTHON
            for change in changes.changes
        ],
        "recipe": [asdict(change) for change in diff.recipe_changes(before, after)],
        "not_compared": unread or None,
    }


def history(images: History) -> Json:
    """Return the images that differ between two commits."""
    changed = [
        comparison(change.before, change.after, change.locks, change.unread)
        if change.before and change.after
        else {
            "before": change.image,
            "after": change.image,
            "components": None,
            "packages": [],
            "recipe": [],
            "not_compared": "it cannot be resolved at both commits",
        }
        for change in images.changed
    ]
    return {"changed": changed, "added": images.added, "removed": images.removed, "same": images.same}


def outdated_components(components: Mapping[str, Sequence[Explanation]]) -> list[Json]:
    """Return for each image the components with a newer release, and what holds each back."""
    return [
        {
            "image": image,
            "components": [
                {"name": row.name, "version": row.version, "newest": row.newest, "answer": answer(row)}
                for row in rows
            ],
        }
        for image, rows in components.items()
    ]


def plan(planned: Plan, affected: ChangedImages | None = None) -> Json:
    """Return stages by build key, and images with the stages they use.

    With `affected`, only new stages are listed, and each image has the reasons for its new key.
    """
    return {
        "stages": [
            {"key": key, "name": stage.name}
            for key, stage in planned.stages.items()
            if affected is None or key in affected.stages
        ],
        "images": [
            {
                "name": image.name,
                "key": image.key,
                "stages": [stage.key for stage in image.stages],
                "python_package_bytes": image.wheel_bytes,
                **({"reasons": list(affected.reasons[image.name])} if affected else {}),
            }
            for image in planned.images
        ],
    }


def built(images: Sequence[BuiltImage], bases: Mapping[str, BootstrappedBase]) -> list[Json]:
    """Return bases, by name, and built images."""
    made = [{"base": name, "reference": base.reference} for name, base in bases.items()]
    return made + [
        {"image": item.image.name, "key": item.image.key, "digest": item.digest, "bytes": item.bytes}
        for item in images
    ]


def smoke(reports: Sequence[SmokeReport]) -> list[Json]:
    """Return smoke-test results: `passed`, `failed` or `not tested` for each check."""
    return [
        {
            "image": report.image,
            "content": report.content,
            "transport": report.transport,
            "checks": [
                {"name": check.name, "outcome": check.outcome.value, "reason": check.reason or None}
                for check in report.checks
            ],
            "machine": report.machine,
            "date": report.date,
            "unfinished": list(report.unfinished),
        }
        for report in reports
    ]


def doctor(findings: Iterable[DoctorCheck]) -> list[Json]:
    """Return what each check of this machine found."""
    return [
        {
            "name": finding.name,
            "state": finding.state.value,
            "detail": finding.detail,
            "cost": finding.cost or None,
            "hint": finding.hint or None,
            "needed": finding.needed,
        }
        for finding in findings
    ]


def drift(differences: Iterable[Drift]) -> list[Json]:
    """Return the differences between locks and what they lock."""
    return [
        {"kind": item.kind.value, "where": item.where, "text": item.text, "blocks_release": item.kind.is_open}
        for item in differences
    ]


def job_check(result: CheckedJob) -> Json:
    """Return whether a job is valid, with all findings; null if that is not known."""
    image = result.image
    return {
        "image": image.name if image else None,
        "image_uri": (image.uri or None) if image else None,
        "valid": (True if result.is_known else None) if not result.errors else False,
        "findings": [
            {
                "severity": "error" if finding.is_error else "warning",
                "rule": finding.rule.name,
                "message": finding.message,
                "hint": finding.hint or None,
                "source": finding.rule.source,
            }
            for finding in result.findings
        ],
    }


def sizing(result: Recommendation) -> Json:
    """Return combinations of instances for a job, with their cost where prices are known."""
    return {
        "need": asdict(result.need),
        "instances": [
            {
                "instances": row.mix.counts,
                "gpus": row.mix.accelerators,
                "vcpus": row.mix.vcpus,
                "vcpus_per_gpu": round(row.mix.ratio, 2),
                "enough": row.is_enough,
                "price_per_hour": row.price,
                "seconds_per_step": row.seconds,
                "cost_of_100_steps": row.cost,
            }
            for row in result.rows
        ],
        "notes": list(result.notes),
    }

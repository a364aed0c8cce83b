"""A fleet with a hostile text in every kind of record."""

from dataclasses import replace

from bakehouse.builder.build_log import Build
from bakehouse.builder.timings import StepTime
from bakehouse.commands.report.commits import ChangedImage, Comparison
from bakehouse.commands.report.fleet import CheckRow, Download, Fleet, ReleaseRow, SmokeResults
from bakehouse.ledger.release_changes import Change
from bakehouse.plan.diff import PackageChanges
from bakehouse.util.value_change import ValueChange

HOSTILE = "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>&amp;\"'\u202e\ud800"


def hostile(fleet: Fleet) -> Fleet:
    """Return a fleet with a hostile text in every kind of record."""
    [image] = fleet.images
    state = replace(image.states["cpu"], text=HOSTILE, note=HOSTILE)
    release = ReleaseRow(
        date=HOSTILE,
        image_uri=f"{HOSTILE}@{HOSTILE}",
        tags=(HOSTILE,),
        bytes=1,
        revision=HOSTILE,
        state=HOSTILE,
        is_current=False,
        checks=((HOSTILE, HOSTILE),),
        parts=((HOSTILE, HOSTILE),),
        since=HOSTILE,
        changes=(Change(HOSTILE, HOSTILE, None, HOSTILE),),
    )
    step = StepTime(HOSTILE, HOSTILE, HOSTILE, (HOSTILE,), 1.0, False, (), 0.0)
    check = CheckRow(HOSTILE, HOSTILE, False, 1.0, HOSTILE, HOSTILE, HOSTILE, (HOSTILE,), HOSTILE)
    image = replace(
        image,
        # Names of images are names of files
        name=HOSTILE.encode(errors="ignore").decode(),
        summary=HOSTILE,
        purpose=HOSTILE,
        versions=(HOSTILE, HOSTILE, HOSTILE),
        facets=dict.fromkeys(image.facets, HOSTILE),
        states=dict.fromkeys(image.states, state),
        warnings=((HOSTILE, f"javascript:{HOSTILE}"),),
        tests=SmokeResults((check,), HOSTILE, HOSTILE, HOSTILE),
        code={HOSTILE: HOSTILE},
        base=HOSTILE,
        downloads=(Download(HOSTILE, 10, True, (0,)),),
        packages={HOSTILE: (0,)},
        releases=(release,),
    )
    return replace(
        fleet,
        images=(image,),
        places=[(HOSTILE, 1, HOSTILE)] * len(fleet.places),
        packages=[(HOSTILE, HOSTILE, 10)],
        stages=[(HOSTILE, HOSTILE)] * len(fleet.stages),
        builds=(Build(HOSTILE, HOSTILE, (step,)),),
        commit=HOSTILE,
        since=Comparison(HOSTILE, HOSTILE, (_change(image.name),), (image.name,), (HOSTILE,), 1),
    )


def _change(name: str) -> ChangedImage:
    difference = ValueChange(HOSTILE, HOSTILE, HOSTILE)
    packages = PackageChanges(HOSTILE, (ValueChange(HOSTILE, None, HOSTILE),), 1, 2)
    return ChangedImage(name, "", (difference,), (packages,), (HOSTILE,), (difference,), 1, 2)

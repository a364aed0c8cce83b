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


def hostile(fleet: Fleet, text: str = HOSTILE) -> Fleet:
    """Return a fleet with a text in every kind of record."""
    [image] = fleet.images
    state = replace(image.states["cpu"], text=text, note=text)
    release = ReleaseRow(
        date=text,
        image_uri=f"{text}@{text}",
        tags=(text,),
        bytes=1,
        revision=text,
        state=text,
        is_current=False,
        checks=((text, text),),
        parts=((text, text),),
        since=text,
        changes=(Change(text, text, None, text),),
    )
    step = StepTime(text, text, text, (text,), 1.0, False, (), 0.0)
    check = CheckRow(text, text, False, 1.0, text, text, text, (text,), text)
    image = replace(
        image,
        # Names of images are names of files
        name=text.encode(errors="ignore").decode(),
        summary=text,
        purpose=text,
        versions=(text, text, text),
        facets=dict.fromkeys(image.facets, text),
        states=dict.fromkeys(image.states, state),
        warnings=((text, f"javascript:{text}"),),
        tests=SmokeResults((check,), text, text, text),
        code={text: text},
        base=text,
        downloads=(Download(text, 10, True, (0,)),),
        packages={text: (0,)},
        releases=(release,),
    )
    return replace(
        fleet,
        images=(image,),
        places=[(text, 1, text)] * len(fleet.places),
        packages=[(text, text, 10)],
        stages=[(text, text)] * len(fleet.stages),
        builds=(Build(text, text, (step,)),),
        project=text,
        commit=text,
        since=Comparison(text, text, (_change(image.name, text),), (image.name,), (text,), 1),
    )


def _change(name: str, text: str) -> ChangedImage:
    difference = ValueChange(text, text, text)
    packages = PackageChanges(text, (ValueChange(text, None, text),), 1, 2)
    return ChangedImage(name, "", (difference,), (packages,), (text,), (difference,), 1, 2)

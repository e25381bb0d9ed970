"""What a placement is judged by belongs to it: another profile is told, and one of other hardware is a warning."""

import dataclasses

from profiles import profile
from reported import ReportedJob

from placer.evaluation import evaluate
from placer.matching import profile_notes


def test_times_of_another_profile_than_the_plans_are_told(job_reported: ReportedJob) -> None:
    plan, own = job_reported.document, job_reported.profile
    assert profile_notes(plan, own) == ()
    again = dataclasses.replace(own, created="2026-02-02T00:00:00+00:00")
    assert profile_notes(plan, again) == (
        "times are of another profile of a CPU and rtx-4090 than the plan was solved with (calibrated or made again "
        "since)",
    )
    (said,) = profile_notes(plan, profile(cpu="another CPU"))
    assert said.startswith(
        "warning: times are of a profile of another CPU and rtx-4090, and the plan was solved for a CPU and rtx-4090"
    )


def test_an_evaluation_says_whose_times_it_counts(job_reported: ReportedJob) -> None:
    job = job_reported
    own = evaluate(job.document, job.model, job.trace, job.profile)
    other = evaluate(job.document, job.model, job.trace, profile(cpu="another CPU"))
    assert not any("profile of" in note for note in own.notes)
    assert any(note.startswith("warning: times are of a profile of another CPU") for note in other.notes)

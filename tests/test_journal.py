"""Samples kept on disk: an interrupted campaign goes on, a finished one is read back, another one is refused."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from placer.errors import BadInputError
from placer.kernels.expert_shape import ExpertShape
from placer.profiler.timing.call import Call, Role
from placer.profiler.timing.campaign import Progress, time_campaign
from placer.profiler.timing.journal import Journal, earlier_rounds, read_events
from placer.profiler.timing.processor_time import ProcessorTime
from placer.profiler.timing.quiet import undisturbed
from placer.profiler.timing.samples import Samples
from placer.profiler.timing.spec import CampaignSpec

SPEC = CampaignSpec(
    device="cpu",
    backend="torch",
    threads=1,
    subpools=1,
    shape=ExpertShape(hidden_size=64, expert_intermediate_size=32, experts=8, top_k=2),
    seed=0,
    max_seconds=20.0,
    rounds=9,
    extra_calls=(Call((1, 1), 1, Role.HELDOUT, "trace"), Call((2, 1, 1), 2, Role.HELDOUT, "trace")),
    only_extra=True,
    resident_bytes=1 << 20,
)
NAME = "cpu-torch-1x1-calls.jsonl"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Samples]:
    folder = tmp_path_factory.mktemp("kept") / "samples"
    return folder, time_campaign(SPEC, keep_samples=folder)


def test_every_sample_is_on_disk(kept: tuple[Path, Samples]) -> None:
    folder, samples = kept
    events = [json.loads(line) for line in (folder / NAME).read_text().splitlines()]
    assert events[0]["event"] == "campaign"
    assert events[0]["spec"]["backend"] == "torch"
    rounds = [event for event in events if event["event"] == "round"]
    used = undisturbed([ProcessorTime(**event["used"]) for event in rounds])
    assert [rounds[index]["times_us"] for index in used] == samples.times_us.tolist()
    assert events[-1]["event"] == "done"


def test_a_finished_campaign_is_read_back_and_not_timed_again(kept: tuple[Path, Samples]) -> None:
    folder, samples = kept
    stages: list[Progress] = []
    again = time_campaign(SPEC, stages.append, keep_samples=folder)
    assert stages == []
    assert again.times_us.tolist() == samples.times_us.tolist()
    assert "nothing was timed now" in again.notes[0]
    # Samples of a busy machine would be read back for ever: the advice names what to remove.
    busy = ProcessorTime(own_s=10.0, others_s=10.0, stolen_s=0.0, wall_s=10.0)
    for found in (samples, again):
        said = replace(found, used=busy).quiet_warning()
        assert said is not None
        assert f"first remove the folder {folder}" in said


def test_samples_kept_before_outputs_were_checked_are_read_without_an_error(
    kept: tuple[Path, Samples], tmp_path: Path
) -> None:
    assert kept[1].kernel.output_error is not None
    events = [json.loads(line) for line in (kept[0] / NAME).read_text().splitlines()]
    for event in events:
        event.pop("output_error", None)
    (tmp_path / NAME).write_text("".join(json.dumps(event) + "\n" for event in events))
    assert time_campaign(SPEC, keep_samples=tmp_path).kernel.output_error is None


def test_an_interrupted_campaign_goes_on_where_it_stopped(tmp_path: Path) -> None:
    def interrupt(progress: Progress) -> None:
        if (tmp_path / NAME).exists() and earlier_rounds(read_events(tmp_path / NAME)) is not None:
            raise KeyboardInterrupt

    long = replace(SPEC, rounds=100)
    with pytest.raises(KeyboardInterrupt):
        time_campaign(long, interrupt, keep_samples=tmp_path)
    # The machine failed while it wrote a line.
    with (tmp_path / NAME).open("a") as file:
        file.write('{"event": "round", "kept": [0')
    earlier = earlier_rounds(read_events(tmp_path / NAME))
    assert earlier is not None
    done = len(earlier.times_us)
    assert 1 <= done < 100
    samples = time_campaign(replace(long, max_seconds=60.0), keep_samples=tmp_path)
    # Rounds in which other programs ran are on disk all the same.
    everything = earlier_rounds(read_events(tmp_path / NAME))
    assert everything is not None
    assert everything.times_us[:done] == earlier.times_us
    assert samples.times_us.tolist() == [everything.times_us[i] for i in undisturbed(everything.used)]
    assert f"{done} rounds of an earlier run" in samples.notes[0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seed": 1}, "seed was 0, is now 1"),
        ({"shape": ExpertShape(64, 64, 8, 2)}, "shape was"),
        ({"resident_bytes": 1 << 21}, "resident_bytes was 1048576, is now 2097152"),
    ],
)
def test_samples_of_another_campaign_are_refused(
    kept: tuple[Path, Samples], change: dict[str, object], said: str
) -> None:
    with pytest.raises(BadInputError, match=said) as caught:
        time_campaign(replace(SPEC, **change), keep_samples=kept[0])  # type: ignore[arg-type]
    assert "another folder" in caught.value.hint


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda lines: [lines[0], "nonsense\n"], "line 2: not an event"),
        (lambda lines: ['{"a": 1}\n'], "line 1: not an event"),
        (lambda lines: lines[1:], "no samples of a timing campaign"),
        (lambda lines: [line.replace('"kept": [0, 1]', '"kept": [0, 9]') for line in lines], "not an event"),
        (lambda lines: [line.replace('"cpu": "', '"cpu": "Another ') for line in lines[:-1]], "cpu was"),
        (lambda lines: [line.replace("torch ", "torch 1.") for line in lines[:-1]], "version was"),
    ],
)
def test_damaged_samples_and_those_of_another_machine_are_refused(
    kept: tuple[Path, Samples], tmp_path: Path, damage: Callable[[list[str]], list[str]], said: str
) -> None:
    lines = (kept[0] / NAME).read_text().splitlines(keepends=True)
    (tmp_path / NAME).write_text("".join(damage(lines)))
    with pytest.raises(BadInputError, match=said):
        time_campaign(SPEC, keep_samples=tmp_path)


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInputError, match="cannot keep samples"):
        Journal(tmp_path / "file", SPEC)

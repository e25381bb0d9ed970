"""Every reader, given damaged and hostile bytes, gives a result or says in one line what is wrong."""

from pathlib import Path
from random import Random

import pytest
from fuzzing.corpus import nth_input, seeds
from fuzzing.failures import kept
from fuzzing.readers import READERS
from fuzzing.trial import trial

INPUTS = 100
"""`make fuzz` gives each reader 200,000."""


@pytest.mark.parametrize("name", READERS)
def test_a_reader_stands_a_short_campaign(name: str, tmp_path: Path) -> None:
    reader = READERS[name]
    reader.prepare(tmp_path)
    samples, path = seeds(reader), tmp_path / reader.file
    there = {each.name for each in tmp_path.iterdir()} | {reader.file}
    assert trial(reader, path, samples[0], use=True).verdict == "accepted"
    for number in range(len(samples), len(samples) + INPUTS):
        found = trial(reader, path, nth_input(reader, samples, 1, number), use=number % 16 == 0)
        assert found.fault == "", f"input {number}"
    assert {each.name for each in tmp_path.iterdir()} == there


@pytest.mark.parametrize(("name", "failure"), kept(), ids=lambda value: getattr(value, "name", value))
def test_what_once_failed_is_told_in_words(name: str, failure: Path, tmp_path: Path) -> None:
    reader = READERS[name]
    reader.prepare(tmp_path)
    assert trial(reader, tmp_path / reader.file, failure.read_bytes(), use=True).fault == ""


@pytest.mark.parametrize("name", READERS)
def test_equal_seeds_give_equal_inputs_that_differ_from_sound_ones(name: str) -> None:
    reader = READERS[name]
    samples = seeds(reader)
    made = [nth_input(reader, samples, 7, number) for number in range(40, 56)]
    assert made == [nth_input(reader, samples, 7, number) for number in range(40, 56)]
    assert sum(data not in samples for data in made) >= 8
    assert made != [reader.mutated(samples[0], samples, Random(0)) for _ in made]

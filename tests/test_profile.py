"""Profiles: what they must match, how two become one, and their timed calls as a table."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from profiles import BYTES_PER_EXPERT, SHAPE, profile
from rich.console import Console
from tiny_model import tiny_model

from placer.answer.profile import profile_answer
from placer.errors import BadInputError
from placer.model.spec import ModelSpec
from placer.points import COLUMNS, points_csv
from placer.profiler.attained import attained
from placer.profiler.merged_profile import merge_profiles
from placer.profiler.profile import Profile, read_profile, write_profile
from placer.profiler.profile_use import MOST_MAPE, ProfileUse, check_profile_error, check_profile_matches


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


def test_a_profile_of_the_models_shapes_matches(model: ModelSpec) -> None:
    assert check_profile_matches(profile(), model, tp=1) == ()
    assert check_profile_matches(profile(threads=3), model, tp=1, use=ProfileUse(threads=3)) == ()


@pytest.mark.parametrize(
    ("shape", "tp", "threads", "said"),
    [
        (replace(SHAPE, hidden_size=512), 1, None, "hidden size 512"),
        (replace(SHAPE, expert_intermediate_size=256), 1, None, "expert width 256"),
        (replace(SHAPE, experts=16), 1, None, "experts per layer 16"),
        (SHAPE, 2, None, "tp 2, not 1"),
        (SHAPE, 1, 4, "1 CPU threads, the server is to run 4"),
    ],
)
def test_what_does_not_match_is_refused_unless_it_is_forced(
    model: ModelSpec, shape: object, tp: int, threads: int | None, said: str
) -> None:
    other = profile(shape, tp=tp)  # type: ignore[arg-type]
    with pytest.raises(BadInputError, match=said) as caught:
        check_profile_matches(other, model, tp=1, use=ProfileUse(threads))
    assert "placer profile" in caught.value.hint
    (forced,) = check_profile_matches(other, model, tp=1, use=ProfileUse(threads, force=True))
    assert said in forced


def test_another_method_is_refused_also_when_it_is_forced(model: ModelSpec) -> None:
    with pytest.raises(BadInputError, match="is of torch, the server is to run RAWINT4"):
        check_profile_matches(profile(), model, tp=1, use=ProfileUse(cpu_method="RAWINT4", force=True))


def off_by(mape: float) -> Profile:
    made = profile()
    overall = replace(made.cpu.report.overall, mape=mape)
    return replace(made, cpu=replace(made.cpu, report=replace(made.cpu.report, overall=overall)))


def test_a_profile_that_is_far_off_is_refused_unless_it_is_forced() -> None:
    assert check_profile_error(off_by(MOST_MAPE)) == ()
    with pytest.raises(BadInputError, match="CPU cost model is off by 45% on held-out calls") as caught:
        check_profile_error(off_by(0.45))
    assert "run 'placer profile' again" in caught.value.hint
    assert "--force-profile" in caught.value.hint
    (forced,) = check_profile_error(off_by(0.45), force=True)
    assert "off by 45%" in forced


def test_so_is_one_whose_gpu_was_timed_badly() -> None:
    made = profile()
    timed = replace(made, gpu=replace(made.gpu, kernel=off_by(0.45).cpu))
    with pytest.raises(BadInputError, match="GPU cost model is off by 45%"):
        check_profile_error(timed)


def test_the_kernels_error_is_told_and_a_profile_made_before_it_was_known_still_read(tmp_path: Path) -> None:
    # An expert of 60 kB, off by 1 % (`profiles.samples`).
    assert "off by 1.0%; an expert takes 60,000 B" in printed(profile())
    document = profile().document()
    del document["cpu"]["output_error"]
    (tmp_path / "earlier.json").write_text(json.dumps(document))
    earlier = read_profile(tmp_path / "earlier.json")
    assert earlier.cpu.output_error is None
    assert "off by" not in printed(earlier)


def test_an_error_that_the_format_explains_is_told_apart_from_one_that_it_does_not() -> None:
    made = profile()
    coarse = replace(made, cpu=replace(made.cpu, method="AMXINT4", output_error=0.269))
    said = " ".join(printed(coarse).split())
    assert "off by 26.9% (25% is what AMXINT4 rounds off there)" in said
    assert "rounds off there" not in printed(made)


def test_a_fit_that_solve_refuses_says_so_when_it_is_made() -> None:
    made = profile()
    overall = replace(made.cpu.report.overall, mape=0.45)
    far_off = replace(made, cpu=replace(made.cpu, report=replace(made.cpu.report, overall=overall)))
    said = " ".join(printed(far_off).split())
    assert "warning: the CPU cost model is off by 45% on held-out calls" in said
    assert "'placer solve' refuses this profile" in said
    assert "refuses this profile" not in printed(made)


def printed(made: Profile) -> str:
    console = Console(width=100)
    with console.capture() as capture:
        console.print(profile_answer(made))
    return capture.get()


def test_a_merged_profile_has_the_cpu_of_one_and_the_gpu_of_the_other(tmp_path: Path) -> None:
    server, workstation = profile(cpu="a server", gpu="h200"), profile(cpu="a desk", gpu="rtx-5090")
    merged = merge_profiles(server, workstation)
    assert merged.cpu == server.cpu
    assert merged.gpu == workstation.gpu
    assert merged.merged is not None
    assert (merged.merged.cpu.device, merged.merged.cpu.profile_sha256) == ("a server", server.sha256)
    assert (merged.merged.gpu.device, merged.merged.gpu.profile_sha256) == ("rtx-5090", workstation.sha256)
    write_profile(merged, tmp_path / "merged.json")
    assert read_profile(tmp_path / "merged.json") == merged
    # Merged once more, each side keeps where it first came from.
    again = merge_profiles(merged, profile(cpu="a laptop", gpu="l40s"))
    assert again.merged is not None
    assert again.merged.cpu == merged.merged.cpu
    assert again.merged.gpu.device == "l40s"


@pytest.mark.parametrize(
    ("shape", "tp", "said"),
    [
        (replace(SHAPE, expert_intermediate_size=256), 1, "different models: expert width 128 .* and 256"),
        (replace(SHAPE, experts=16), 1, "different models: experts per layer"),
        (replace(SHAPE, top_k=4), 1, "different models: top-k"),
        (SHAPE, 2, "tp 1 and tp 2"),
    ],
)
def test_profiles_of_different_shapes_are_not_merged(shape: object, tp: int, said: str) -> None:
    with pytest.raises(BadInputError, match=said) as caught:
        merge_profiles(profile(), profile(shape, tp=tp))  # type: ignore[arg-type]
    assert caught.value.hint


def test_a_file_whose_kernel_was_timed_at_other_shapes_is_refused(tmp_path: Path) -> None:
    other = profile(replace(SHAPE, experts=16))
    write_profile(replace(profile(), cpu=other.cpu), tmp_path / "patched.json")
    with pytest.raises(BadInputError, match="timed at other shapes"):
        read_profile(tmp_path / "patched.json")


def test_the_table_has_a_line_for_every_timed_call() -> None:
    made = profile()
    rows = list(csv.DictReader(io.StringIO(points_csv(made))))
    assert len(rows) == len(made.cpu.points)
    assert tuple(rows[0]) == COLUMNS
    assert {row["use"] for row in rows} == {"fit", "choose", "report"}
    assert sum(row["use"] == "report" for row in rows) == made.cpu.report.overall.calls
    for row in rows:
        assert abs(float(row["error"])) < 0.01
        assert int(row["active_experts"]) == len(row["rows"].split())
        assert int(row["rows_total"]) == sum(map(int, row["rows"].split()))


def test_the_share_of_the_roofline_is_its_time_over_the_measured_one() -> None:
    reached = {each.rows: each for each in attained(profile())}
    # Eight experts of 60 kB at 10 GB/s are 48 µs; measured are 5 + 8·(10 + 2).
    one = reached[1]
    assert (one.active, one.bound) == (8, "memory")
    assert one.memory_us == pytest.approx(8 * BYTES_PER_EXPERT / 10e9 * 1e6)
    assert one.share == pytest.approx(48 / 101)
    # 256 rows of 6·256·128 operations at the faster product, 100 Gop/s, are 503 µs an expert.
    many = reached[256]
    assert (many.active, many.bound) == (2, "arithmetic")
    assert many.arithmetic_us == pytest.approx(2 * 256 * 6 * 256 * 128 / 100e9 * 1e6)
    assert "int8" in many.peak


def test_without_bytes_and_arithmetic_there_is_no_roofline() -> None:
    made = profile()
    assert attained(replace(made, cpu=replace(made.cpu, arithmetic=()))) == ()
    assert attained(replace(made, cpu=replace(made.cpu, bytes_per_expert=0))) == ()

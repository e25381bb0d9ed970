"""A kernel's gate: instruction sets first, then sizes, each refusal by name."""

from pathlib import Path

from placer.kernels.cpu_needs import CpuNeeds, cpu_flags
from placer.kernels.expert_shape import ExpertShape

NEEDS = CpuNeeds(flags=("avx512f", "avx512bw"), multiple=64, because="of its blocks", otherwise="use another")
BOTH = frozenset({"avx512f", "avx512bw", "sse2"})


def test_what_is_met_is_no_problem() -> None:
    assert NEEDS.problem(ExpertShape(128, 64, 8, 2), BOTH) is None


def test_missing_instruction_sets_are_named() -> None:
    problem = NEEDS.problem(ExpertShape(128, 64, 8, 2), frozenset({"avx512f"}))
    assert problem is not None
    assert problem.what == "this CPU lacks avx512bw"
    assert problem.cure == "use another"


def test_each_size_is_named() -> None:
    for shape, size in (
        (ExpertShape(100, 64, 8, 2), "hidden size 100"),
        (ExpertShape(64, 96, 8, 2), "width 96"),
    ):
        problem = NEEDS.problem(shape, BOTH)
        assert problem is not None
        assert f"{size} is not a multiple of 64: of its blocks" in problem.what


def test_flags_are_read_as_linux_lists_them(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nmodel name\t: X\nflags\t\t: fpu avx2 avx512f\n\nprocessor\t: 1\n")
    assert cpu_flags(cpuinfo) == {"fpu", "avx2", "avx512f"}
    assert cpu_flags(tmp_path / "absent") == frozenset()

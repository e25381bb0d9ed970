"""What is said of a name that is not in a list."""

import pytest

from placer.cpu_datasheet import cpu_datasheet
from placer.datasheet import GPU_NAMES, gpu_datasheet
from placer.errors import BadInputError
from placer.known_name import unknown_name, unknown_value

OBJECTIVES = ("throughput", "latency", "goodput")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("troughput", "did you mean throughput? use one of: throughput, latency, goodput"),
        ("speed", "use one of: throughput, latency, goodput"),
        ("", "use one of: throughput, latency, goodput"),
    ],
)
def test_names_that_are_alike_come_first(name: str, hint: str) -> None:
    error = unknown_value("--objective", name, OBJECTIVES)
    assert error.what == f"--objective '{name}' is not known"
    assert error.hint == hint


def test_the_beginning_of_a_name_counts_for_more_than_its_likeness() -> None:
    """h200 is more alike to h100 than h100-sxm is, but not what is meant."""
    assert unknown_name("GPU", "h100", GPU_NAMES).hint.startswith("did you mean h100-pcie or h100-sxm?")
    assert unknown_name("GPU", "RTX 4090", GPU_NAMES).hint.startswith("did you mean rtx-4090?")


def test_a_long_list_is_left_out_where_a_name_is_alike() -> None:
    names = [f"name-{letter}" for letter in "abcdefghijklmnop"]
    assert unknown_name("thing", "namea", names).hint == "did you mean name-a?"
    assert unknown_name("thing", "zzz", names).hint == f"use one of: {', '.join(names)}"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("8480", "xeon-8480+"),
        ("Intel(R) Xeon(R) Platinum 8480C", "xeon-8480+"),
        ("AMD EPYC 9654 96-Core Processor", "epyc-9654"),
        ("AMD Ryzen 9 7950X 16-Core Processor", "ryzen-9-7950x"),
    ],
)
def test_a_cpu_is_known_by_its_number(name: str, meant: str) -> None:
    with pytest.raises(BadInputError) as caught:
        cpu_datasheet(name)
    assert caught.value.hint == f"did you mean {meant}?"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("nvidia 4090", "rtx-4090"),
    ],
)
def test_a_gpu_is_known_by_its_device_name(name: str, meant: str) -> None:
    with pytest.raises(BadInputError) as caught:
        gpu_datasheet(name)
    assert caught.value.hint.startswith(f"did you mean {meant}?")

"""What `placer hardware` prints of a machine that is not quiet, or slow."""

import json

import pytest
from json_documents import check_document

from placer.answer.console import print_answer
from placer.answer.hardware import hardware_answer
from placer.hardware_document import hardware_document


def test_slow_products_keep_their_digits_and_a_busy_machine_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = hardware_document()
    check_document(["hardware"], json.dumps(document))
    document["dense_flops"] = {
        "1_thread": {"float32": 51e9, "bf16": 689e6},
        "all_threads": {"float32": 18e9, "bf16": 724e6},
        "provenance": "made up",
    }
    document["quiet_warning"] = "the machine was not quiet: other programs kept 1.0 cores busy"
    print_answer(hardware_answer(document))
    printed = " ".join(capsys.readouterr().err.split())
    assert (
        "float32 18 Gop/s (51 Gop/s with one thread), bf16 724 Mop/s (689 Mop/s with one thread)" in printed
    )
    assert "warning: the machine was not quiet: other programs kept 1.0 cores busy" in printed
    document["quiet_warning"] = None
    print_answer(hardware_answer(document))
    assert "warning" not in capsys.readouterr().err

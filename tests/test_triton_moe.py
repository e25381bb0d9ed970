"""Our Triton kernels without a GPU: interpreted against the reference, and compiled for the GPUs they are for."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TRITON = Path(__file__).parent.parent / ".runtimes" / "triton"
"""Where `make test-runtimes` puts triton, which the CPU build of torch does not bring."""
SHARED_BYTES = 99 * 1024
"""What a block may have on the smallest of the GPUs, of compute capability 8.9 and 12.0 (CUDA C++ guide)."""

pytestmark = [
    pytest.mark.runtime,
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None and not TRITON.is_dir(),
        reason="triton is not installed (make test-runtimes does)",
    ),
]

INTERPRETED = """
import json, sys, torch
from expert_calls import random_call, relative_error
from placer.kernels.block_fp8 import random_blocks
from placer.kernels.expert_mlp import reference_forward
from placer.kernels.expert_shape import ExpertShape
from placer.kernels.triton_fp8 import TritonFp8
shape = ExpertShape(256, 128, 4, 2)
backend = TritonFp8(device="cpu")
backend.load(shape, 2, random_blocks(shape, 1), max_tokens=40)
errors = []
for tokens in (1, 5, 40):
    x, ids, weights = random_call(shape, tokens, tokens)
    ids[0, 0] = -1
    expected = reference_forward(lambda e: backend.loaded(1, e), x, ids, weights)
    errors.append(relative_error(backend.forward(1, x, ids, weights), expected))
nothing = backend.forward(0, x, torch.full_like(ids, -1), weights)
print(json.dumps({"errors": errors, "nothing": float(nothing.abs().sum()), "version": backend.version()}))
"""

COMPILED = """
import json, sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from placer.kernels import triton_moe
from placer.kernels.triton_fp8 import GATE_UP_STAGES, MOST_ROWS

POINTERS = {"x": "*fp8e4nv", "w": "*fp8e4nv", "hidden": "*fp8e4nv", "slots": "*i32", "experts": "*i32",
            "x_scale": "*fp32", "w_scale": "*fp32", "hidden_scale": "*fp32", "weights": "*fp32", "out": "*bf16"}
SIZES = {"HIDDEN": 2048, "WIDTH": 768, "K": 8, "ROWS": MOST_ROWS}

def compiled(kernel, options):
    names = kernel.arg_names
    signature = {name: POINTERS.get(name, "constexpr") for name in names}
    constants = {(names.index(name),): SIZES[name] for name in names if name in SIZES}
    aligned = {(names.index(name),): [["tt.divisibility", 16]] for name in names if name in POINTERS}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=aligned)
    target = GPUTarget("cuda", int(sys.argv[1]), 32)
    found = triton.compile(source, target=target, options=options)
    return {"shared": found.metadata.shared, "machine_code": len(found.asm["cubin"]),
            "fp8": any(each in line for line in found.asm["ptx"].splitlines() if "mma" in line
                       for each in ("e4m3.e4m3", "f8f6f4"))}

print(json.dumps([compiled(triton_moe.gate_up_kernel, {"num_warps": 8, "num_stages": GATE_UP_STAGES}),
                  compiled(triton_moe.down_kernel, {})]))
"""


def ran(script: str, *arguments: str, **environment: str) -> Any:
    """What ``script`` printed last, as JSON, from a process that finds triton."""
    paths = os.pathsep.join((str(Path(__file__).parent), str(TRITON)))
    process = subprocess.run(
        [sys.executable, "-P", "-c", script, *arguments],
        env={**os.environ, "PYTHONPATH": paths, **environment},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])


def test_interpreted_they_agree_with_the_reference() -> None:
    found = ran(INTERPRETED, TRITON_INTERPRET="1")
    # Rows stay float32 there: what is off is the bfloat16 of the rows and of their sum.
    assert max(found["errors"]) < 0.006
    assert found["nothing"] == 0
    assert found["version"].startswith("triton ")


@pytest.mark.parametrize("capability", [89, 90, 100, 120])
def test_they_compile_to_fp8_products_within_the_memory_of_a_block(capability: int, tmp_path: Path) -> None:
    for kernel in ran(COMPILED, str(capability), TRITON_CACHE_DIR=str(tmp_path)):
        assert kernel["machine_code"] > 0
        assert kernel["fp8"]
        assert kernel["shared"] <= SHARED_BYTES

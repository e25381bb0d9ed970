"""The bundled example: a small trained checkpoint that engines load, and its recorded routing."""

import json
from itertools import permutations

import numpy as np
import pytest

from placer.errors import BadInputError
from placer.examples import example_folder
from placer.model.spec import read_model
from placer.profiler.trace.file import read_trace
from placer.profiler.trace.selection import coverage, coverage_of_mask, selection_counts
from placer.profiler.trace.split import split_requests, tokens_where
from placer.profiler.trace.trace import Phase, TokenTrace

FOLDER = example_folder("tiny-moe")


def trace_of(name: str) -> TokenTrace:
    trace = read_trace(FOLDER / "traces" / name)
    assert isinstance(trace, TokenTrace)
    return trace


def hottest_half(trace: TokenTrace) -> np.ndarray:
    counts = selection_counts(trace)
    mask = np.zeros(counts.shape, dtype=bool)
    np.put_along_axis(mask, np.argsort(-counts, axis=1)[:, : counts.shape[1] // 2], True, axis=1)
    return mask


def by_domain(trace: TokenTrace) -> dict[str, TokenTrace]:
    assert trace.domain is not None
    return {name: tokens_where(trace, trace.domain == at) for at, name in enumerate(trace.header.domains)}


def test_the_checkpoint_is_small_and_its_shapes_suit_every_kernel() -> None:
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < 12e6
    model = read_model(FOLDER)
    assert model.moe_layers == (0, 1, 2, 3, 4)
    assert (model.experts, model.top_k) == (16, 4)
    # kt-kernel refuses widths that 128 does not divide.
    assert (model.hidden_size, model.expert_intermediate_size) == (128, 128)
    assert model.provenance["sizes"] == "safetensors headers"
    assert "mismatch" not in model.provenance


def test_the_config_names_the_experts_as_every_reader_expects() -> None:
    config = json.loads((FOLDER / "config.json").read_text())
    assert config["num_experts"] == config["num_local_experts"] == 16
    assert config["dtype"] == config["torch_dtype"] == "bfloat16"


def test_both_traces_are_of_this_checkpoint_and_hold_both_phases_of_all_domains() -> None:
    model = read_model(FOLDER)
    for name, requests in (("trace.safetensors", 96), ("heldout.safetensors", 36)):
        trace = trace_of(name)
        assert trace.header.layers == tuple(model.moe_layers)
        assert (trace.header.experts, trace.header.top_k) == (model.experts, model.top_k)
        assert trace.header.domains == ("addresses", "scripture", "code")
        assert np.unique(trace.request).size == requests
        for part in by_domain(trace).values():
            assert set(part.phase) == {Phase.PREFILL, Phase.DECODE}
        assert len(split_requests(trace)) == 3


def test_routing_is_learned_experts_serve_their_domain_far_better_than_another() -> None:
    """Hot halves of one domain, on requests of other texts: of the same domain, and of another."""
    planned, judged = by_domain(trace_of("trace.safetensors")), by_domain(trace_of("heldout.safetensors"))
    counts = {name: selection_counts(part) for name, part in judged.items()}
    own = [coverage_of_mask(counts[name], hottest_half(planned[name])) for name in planned]
    other = [coverage_of_mask(counts[b], hottest_half(planned[a])) for a, b in permutations(planned, 2)]
    assert min(own) > 0.7
    assert float(np.mean(own)) > float(np.mean(other)) + 0.1


def test_no_layer_s_router_has_collapsed() -> None:
    counts = selection_counts(trace_of("trace.safetensors"))
    assert (counts > 0).mean() > 0.95
    assert coverage(counts, 0.25).max() < 0.9


def test_an_unknown_example_is_told_with_those_that_are_there() -> None:
    with pytest.raises(BadInputError, match="there is no example 'none'") as caught:
        example_folder("none")
    assert caught.value.hint == "use one of: qwen3-30b-a3b, tiny-moe"

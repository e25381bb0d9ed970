"""Routed experts in SGLang's and vLLM's answers become requests of a token trace."""

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from shared_data import SHARED_DATA, needs_shared_data

from placer.errors import BadInputError
from placer.profiler.trace.integrity import check_trace
from placer.profiler.trace.known_model import KnownModel
from placer.profiler.trace.routed_file import import_routed
from placer.profiler.trace.routed_response import parse_response
from placer.profiler.trace.routed_trace import routed_trace
from placer.profiler.trace.trace import PADDING, Phase

FIXTURES = SHARED_DATA / "runtime_fixtures"

# Three tokens of two prompt and two generated ones (the last is not fed back), two layers of which layer 0 is
# dense, top-2.
IDS = np.array([[[0, 0], [3, 1]], [[0, 0], [2, 0]], [[0, 0], [1, 2]]])
MODEL = KnownModel(name="M", layers=(1,), hidden_layers=2, experts=4, top_k=2)


def raw(ids: NDArray[Any]) -> str:
    return base64.b64encode(ids.astype("<i4").tobytes()).decode()


def npy(ids: NDArray[Any], kind: Any = np.uint8) -> str:
    stream = io.BytesIO()
    np.save(stream, ids.astype(kind))
    return base64.b64encode(stream.getvalue()).decode()


def sglang(ids: NDArray[Any] = IDS, prompt: int = 2, generated: int = 2) -> dict[str, Any]:
    return {
        "text": "x",
        "output_ids": list(range(generated)),
        "meta_info": {
            "id": "abc",
            "prompt_tokens": prompt,
            "completion_tokens": generated,
            "routed_experts": raw(ids),
        },
    }


def vllm(*ids: NDArray[Any], prompt: int = 2, generated: int = 2) -> dict[str, Any]:
    choices = [
        {"index": number, "token_ids": [7] * generated, "routed_experts": npy(one)}
        for number, one in enumerate(ids or (IDS,))
    ]
    return {"id": "cmpl-1", "prompt_token_ids": [5] * prompt, "choices": choices}


@pytest.mark.parametrize("answer", [sglang(), vllm()])
def test_rows_are_prompt_tokens_then_generated_ones(answer: dict[str, Any]) -> None:
    (response,) = parse_response(answer, MODEL, where="answer")
    np.testing.assert_array_equal(response.ids, IDS)
    assert (response.first_position, response.prompt_rows, response.generated_rows) == (0, 2, 1)


def test_token_ids_come_along_where_the_server_sent_them() -> None:
    (response,) = parse_response(vllm(), KnownModel(), where="answer")
    assert response.token_ids is not None
    assert response.token_ids.tolist() == [5, 5, 7]
    assert response.request == "cmpl-1"
    (without,) = parse_response(sglang(), KnownModel(top_k=2), where="answer")
    assert without.token_ids is None
    assert without.request == "abc"


def test_every_choice_is_a_request() -> None:
    one, other = parse_response(vllm(IDS, IDS[::-1]), KnownModel(), where="answer")
    assert (one.request, other.request) == ("cmpl-1/0", "cmpl-1/1")
    np.testing.assert_array_equal(other.ids, IDS[::-1])


def test_a_prefix_that_was_left_out_moves_the_first_position() -> None:
    # Of 5 prompt and 2 generated tokens, 6 are routed; the answer holds the last 3: positions 3, 4 and 5.
    for answer in (sglang(prompt=5), vllm(prompt=5)):
        (response,) = parse_response(answer, MODEL, where="answer")
        assert (response.first_position, response.prompt_rows, response.generated_rows) == (3, 2, 1)


def test_a_last_token_that_was_routed_after_all_is_a_generated_one() -> None:
    (response,) = parse_response(sglang(generated=1), MODEL, where="answer")
    assert (response.prompt_rows, response.generated_rows) == (2, 1)


def test_the_openai_routes_of_sglang_are_read_too() -> None:
    usage = {"prompt_tokens": 2, "completion_tokens": 2}
    places = [
        {"choices": [{"meta_info": {"routed_experts": raw(IDS)}}], "usage": usage},
        {"choices": [{"sglext": {"routed_experts": raw(IDS)}}], "usage": usage},
        {"choices": [{}], "sglext": {"routed_experts": raw(IDS)}, "usage": usage},
        {"choices": [{"routed_experts": IDS.tolist()}], "usage": usage},
    ]
    for answer in places:
        (response,) = parse_response(answer, KnownModel(top_k=2), where="answer")
        np.testing.assert_array_equal(response.ids, IDS)


def test_fused_shared_experts_are_not_routed_ones() -> None:
    fused = np.concatenate([IDS, [[[0], [4]]] * 3], axis=2)
    (response,) = parse_response(sglang(fused), MODEL, where="answer")
    np.testing.assert_array_equal(response.ids, IDS)
    with pytest.raises(BadInputError, match="3 ids per token"):
        parse_response(vllm(np.full((3, 2, 3), [1, 2, 3])), MODEL, where="answer")


def test_unused_slots_are_padding() -> None:
    (response,) = parse_response(sglang(np.where(IDS == 3, -1, IDS)), KnownModel(top_k=2), where="answer")
    assert response.ids[0, 1].tolist() == [PADDING, 1]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({"text": "x"}, "no answer of SGLang or vLLM"),
        ({"meta_info": {"prompt_tokens": 2}}, "no routed_experts"),
        ({"meta_info": {"routed_experts": raw(IDS)}}, "how many tokens are the prompt's"),
        ({"choices": []}, "no choices"),
        ({"choices": "abc"}, "no choices"),
        ({"choices": [3]}, "choice 0 is no object"),
        (
            {**sglang(), "meta_info": {"prompt_tokens": -1, "routed_experts": "AAAA"}},
            "number of tokens is -1",
        ),
        (
            {**sglang(), "meta_info": {"prompt_tokens": 1.5, "routed_experts": "AAAA"}},
            "number of tokens is 1.5",
        ),
        ({**sglang(), "output_ids": ["a"]}, "token ids are no list"),
        ({"meta_info": {"prompt_tokens": 2, "routed_experts": "?"}}, "neither base64"),
        ({"meta_info": {"prompt_tokens": 2, "routed_experts": "AAA="}}, "neither base64"),
        ({"meta_info": {"prompt_tokens": 2, "routed_experts": 7}}, "is a int"),
        ({"meta_info": {"prompt_tokens": 2, "routed_experts": [[1], [2, 3]]}}, "neither base64"),
        ({"meta_info": {"prompt_tokens": 2, "routed_experts": [[0.5]]}}, "neither base64"),
        ({"meta_info": {"prompt_tokens": 2, "routed_experts": [[1, 2]]}}, "shape"),
        (sglang(prompt=1, generated=1), "do not fill"),
        (sglang(np.full((3, 2, 2), -2)), "holds -2"),
        (sglang(np.full((3, 2, 2), 65535)), "holds 65535"),
        (vllm(np.full((9, 2, 2), 1)), "9 routed tokens for 2 prompt and 2 generated"),
        (vllm(IDS.astype(float)[:0]), "shape"),
    ],
)
def test_an_answer_that_makes_no_sense_is_refused(answer: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInputError, match=says):
        parse_response(
            answer, KnownModel(hidden_layers=5 if "do not" in says else None, top_k=2), where="answer"
        )


def test_raw_ids_need_the_model() -> None:
    with pytest.raises(BadInputError, match="without their shape") as caught:
        parse_response(sglang(), KnownModel(), where="answer")
    assert "--model" in caught.value.hint


def test_pickled_objects_in_an_answer_are_never_loaded(tmp_path: Path) -> None:
    class Runs:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "ran",)

    stream = io.BytesIO()
    np.save(stream, np.array([Runs()], dtype=object), allow_pickle=True)
    answer = vllm()
    answer["choices"][0]["routed_experts"] = base64.b64encode(stream.getvalue()).decode()
    with pytest.raises(BadInputError, match="never loaded"):
        parse_response(answer, KnownModel(), where="answer")
    assert not (tmp_path / "ran").exists()


def test_answers_become_requests_with_phases_and_domains() -> None:
    responses = [
        *parse_response(sglang(), MODEL, where="1"),
        *parse_response(vllm(prompt=5), KnownModel(), where="2"),
    ]
    trace = routed_trace(responses, MODEL, source="s", where="w", domains=["law", None])
    check_trace(trace, "trace")
    assert trace.header.layers == (1,)
    assert trace.topk_ids[:, 0].tolist() == IDS[:, 1].tolist() * 2
    assert trace.request.tolist() == [0, 0, 0, 1, 1, 1]
    assert trace.position.tolist() == [0, 1, 2, 3, 4, 5]
    assert trace.phase.tolist() == [Phase.PREFILL, Phase.PREFILL, Phase.DECODE] * 2
    assert trace.domain is not None
    assert trace.domain.tolist() == [0, 0, 0, -1, -1, -1]
    assert any("1 request from after position 0 on" in note for note in trace.header.notes)


def test_dense_layers_are_told_without_a_model() -> None:
    trace = routed_trace(
        parse_response(vllm(), KnownModel(), where="1"), KnownModel(), source="s", where="file"
    )
    assert (trace.header.layers, trace.header.experts, trace.header.top_k) == ((1,), 4, 2)
    assert any("rows [0]" in note for note in trace.header.notes)
    assert any("highest id, 3" in note for note in trace.header.notes)


def test_tokens_that_the_runtime_did_not_capture_are_dropped_and_counted() -> None:
    lost = IDS.copy()
    lost[1] = 0
    trace = routed_trace(parse_response(vllm(lost), KnownModel(), where="1"), MODEL, source="s", where="w")
    assert trace.position.tolist() == [0, 2]
    assert any("1 tokens that the runtime did not capture" in note for note in trace.header.notes)
    with pytest.raises(BadInputError, match=r"nothing was routed|no layer holds|no token was captured"):
        routed_trace(parse_response(vllm(0 * IDS), KnownModel(), where="1"), MODEL, source="s", where="w")


def test_expert_0_of_a_top_1_model_is_an_expert() -> None:
    model = KnownModel(layers=(1,), hidden_layers=2, experts=4, top_k=1)
    ids = np.zeros((3, 2, 1), dtype=int)
    trace = routed_trace(parse_response(vllm(ids), model, where="1"), model, source="s", where="w")
    assert trace.topk_ids.tolist() == [[[0]], [[0]], [[0]]]


def test_answers_of_two_models_are_refused() -> None:
    responses = [
        *parse_response(vllm(), KnownModel(), where="1"),
        *parse_response(vllm(IDS[:, :1]), KnownModel(), where="2"),
    ]
    with pytest.raises(BadInputError, match="answers of 1 layers, top-2, and of 2 layers, top-2"):
        routed_trace(responses, KnownModel(), source="s", where="w")


def test_a_file_holds_one_answer_a_list_or_one_per_line(tmp_path: Path) -> None:
    lines = [json.dumps(sglang()), "", json.dumps({**vllm(), "domain": "law"})]
    files = {
        "one": json.dumps(sglang(), indent=1),
        "list": json.dumps([sglang(), vllm()]),
        "lines": "\n".join(lines),
        "bom": "\ufeff" + json.dumps(sglang()) + "\r\n",
    }
    requests = {}
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        requests[name] = int(import_routed(tmp_path / name, MODEL).request[-1]) + 1
    assert requests == {"one": 1, "list": 2, "lines": 2, "bom": 1}
    assert import_routed(tmp_path / "lines", MODEL).header.domains == ("law",)


def test_batch_outputs_are_unwrapped_and_failed_requests_counted(tmp_path: Path) -> None:
    lines = [
        {"custom_id": "1", "response": {"status_code": 200, "body": vllm()}, "erro": None},
        {"custom_id": "2", "response": {"status_code": 400, "body": {}}, "erro": None},
        {"custom_id": "3", "response": None, "erro": {"message": "x"}},
    ]
    (tmp_path / "b").write_text("\n".join(map(json.dumps, lines)))
    trace = import_routed(tmp_path / "b", MODEL)
    assert trace.tokens == 3
    assert any("2 requests of the batch failed" in note for note in trace.header.notes)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "JSON"),
        ("{", "JSON"),
        ("[" * 100_000, "JSON"),
        ('{"a": ' + "9" * 5000 + "}", "JSON"),
        ("\xff\xfe", "JSON"),
        ("3", "not an object"),
        ('[{"choices": 1}, 2]', "entry 0"),
        ('{"custom_id": 1, "response": 3}', "no object"),
        ('{"domain": 3, "meta_info": {}}', "domain"),
    ],
)
def test_a_file_that_holds_no_answers_is_refused(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(text.encode("latin-1"))
    with pytest.raises(BadInputError, match=says):
        import_routed(tmp_path / "f", MODEL)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.just("AAAA"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "meta_info",
                    "routed_experts",
                    "prompt_tokens",
                    "token_ids",
                    "usage",
                    "id",
                    "sglext",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(document=st.dictionaries(st.sampled_from(["choices", "meta_info", "usage"]), _JSON, max_size=3))
def test_no_answer_brings_a_traceback(document: dict[str, Any]) -> None:
    try:
        parsed = parse_response(document, MODEL, where="answer")
    except BadInputError:
        return
    assert all(response.ids.ndim == 3 for response in parsed)


@needs_shared_data
def test_both_runtimes_own_encoders_give_the_same_tokens() -> None:
    model = KnownModel(layers=(1, 2, 3, 4, 5), hidden_layers=6, experts=16, top_k=4)
    traces = [
        import_routed(FIXTURES / name, model)
        for name in ("sglang_meta_info_routed_experts.json", "vllm033_routed_experts_choice.json")
    ]
    for trace in traces:
        check_trace(trace, "trace")
        assert (int((trace.phase == Phase.PREFILL).sum()), trace.tokens) == (12, 20)
    np.testing.assert_array_equal(traces[0].topk_ids, traces[1].topk_ids)

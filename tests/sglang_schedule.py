"""Plays requests through sglang-kt's own PrefillAdder and ScheduleBatch.retract_decode, whose model is never called.

Around them stands the loop of its Scheduler (get_next_batch_to_run, _get_new_batch_prefill_raw,
update_running_batch) for a closed loop of clients without prefix cache, with the KV pool as a count.
"""

import dataclasses
import os
from contextlib import contextmanager
from enum import Enum, auto
from types import SimpleNamespace
from typing import Any

from sglang_kt_source import definitions


class _Pool:
    def __init__(self, tokens: int, page: int) -> None:
        self.page = page
        self.free = tokens // page * page

    def available_size(self) -> int:
        return self.free

    def paged(self, tokens: int) -> int:
        return -(-tokens // self.page) * self.page

    def hold(self, request: "_Request", tokens: int) -> None:
        """``request`` holds so many tokens from now on, in whole pages."""
        self.free -= self.paged(tokens) - self.paged(len(request.prefix_indices))
        request.prefix_indices = [1] * tokens

    def next_token(self, requests: "list[_Request]") -> int:
        """What another token of each of ``requests`` takes."""
        return sum(
            self.paged(len(each.prefix_indices) + 1) - self.paged(len(each.prefix_indices))
            for each in requests
        )


class _Cache:
    """A prefix cache that holds nothing."""

    disable = False

    def supports_mamba(self) -> bool:
        return False

    def supports_swa(self) -> bool:
        return False

    def is_tree_cache(self) -> bool:
        return False

    def evictable_size(self) -> int:
        return 0

    def inc_lock_ref(self, _node: object) -> None:
        return None

    def dec_lock_ref(self, _node: object) -> None:
        return None


class _Request:
    host_hit_length = 0
    last_node = None

    def __init__(self, prompt: int, output: int) -> None:
        self.origin_input_ids = [1] * prompt
        self.output_ids: list[int] = []
        self.sampling_params = SimpleNamespace(max_new_tokens=output, ignore_eos=False)
        self.retractions = 0
        self.reset()

    def reset(self) -> None:
        self.prefix_indices: list[int] = []
        self.fill_ids: list[int] = []

    def next_round(self) -> None:
        self.fill_ids = self.origin_input_ids + self.output_ids
        self.set_extend_input_len(len(self.fill_ids) - len(self.prefix_indices))

    def set_extend_input_len(self, tokens: int) -> None:
        self.extend_input_len = tokens

    @property
    def done(self) -> bool:
        return len(self.output_ids) == self.sampling_params.max_new_tokens


def _runtime() -> SimpleNamespace:
    envs = SimpleNamespace(SGLANG_RETRACT_DECODE_STEPS=SimpleNamespace(get=lambda: 20))
    policy = definitions(
        "srt/managers/schedule_policy.py",
        {"PrefillAdder", "AddReqResult", "CLIP_MAX_NEW_TOKENS", "IGNORE_EOS_RESERVE_TOKENS"},
        {
            "os": os,
            "Enum": Enum,
            "auto": auto,
            "contextmanager": contextmanager,
            "SWATokenToKVPoolAllocator": type("SWATokenToKVPoolAllocator", (), {}),
            "is_nsa_prefill_cp_in_seq_split": lambda: False,
        },
    )
    batch = definitions(
        "srt/managers/schedule_batch.py",
        {"ScheduleBatch"},
        {
            "dataclasses": dataclasses,
            "ScheduleBatchDisaggregationDecodeMixin": type("Mixin", (), {}),
            "envs": envs,
        },
    )
    return SimpleNamespace(
        adder=policy["PrefillAdder"],
        go_on=policy["AddReqResult"].CONTINUE,
        no_token=policy["AddReqResult"].NO_TOKEN,
        batch=batch["ScheduleBatch"],
    )


def play(
    *,
    max_running: int,
    kv_tokens: int,
    chunk_tokens: int,
    clients: int,
    prompts: list[int],
    outputs: list[int],
    page_tokens: int = 1,
) -> tuple[list[list[int]], list[int]]:
    """Steps as [decoding requests, prompt tokens], and the retractions of every request."""
    runtime = _runtime()
    pool, cache = _Pool(kv_tokens, page_tokens), _Cache()
    requests = [_Request(prompt, output) for prompt, output in zip(prompts, outputs, strict=True)]
    sent = min(clients, len(requests))
    waiting, running = requests[:sent], []
    chunked: Any = None
    full = False
    first, least = 0.7, 0.7 * 0.14
    ratio = first
    steps: list[list[int]] = []

    def finish(batch: list[_Request]) -> list[_Request]:
        nonlocal sent, full
        ended = [request for request in batch if request.done]
        for request in ended:
            pool.hold(request, 0)
            full = False
            if sent < len(requests):
                waiting.append(requests[sent])
                sent += 1
        return [request for request in batch if not request.done]

    def next_prefill() -> list[_Request]:
        nonlocal chunked, full, waiting
        if (full or not waiting) and chunked is None:
            return []
        if max_running - len(running) <= 0 and chunked is None:
            full = True
            return []
        adder = runtime.adder(
            page_tokens, cache, pool, SimpleNamespace(reqs=running), ratio, 16384, chunk_tokens
        )
        if chunked is not None:
            chunked.next_round()
            chunked = adder.add_chunked_req(chunked)
        for request in waiting:
            if len(adder.can_run_list) >= max_running - len(running):
                full = True
                break
            request.next_round()
            result = adder.add_one_req(
                request, has_chunked_req=chunked is not None, truncation_align_size=None
            )
            if result != runtime.go_on:
                full = full or result == runtime.no_token
                break
        waiting = [request for request in waiting if request not in adder.can_run_list]
        if adder.new_chunked_req is not None:
            chunked = adder.new_chunked_req
        batch: list[_Request] = adder.can_run_list
        return batch

    def retract() -> None:
        nonlocal running, ratio, full
        selected = runtime.batch.__new__(runtime.batch)
        selected.reqs = running
        dropped: list[_Request] = []

        def release(index: int, _left: int, _arguments: object) -> None:
            request = running[index]
            pool.hold(request, 0)
            request.reset()
            request.retractions += 1
            dropped.append(request)

        selected.release_req = release
        selected.check_decode_mem = lambda selected_indices=None: (
            pool.free
            >= pool.next_token(
                running if selected_indices is None else [running[index] for index in selected_indices]
            )
        )
        selected.filter_batch = lambda keep_indices: setattr(
            selected, "reqs", [running[i] for i in keep_indices]
        )
        _, ratio, _ = selected.retract_decode(SimpleNamespace(speculative_algorithm=None))
        running = selected.reqs
        waiting.extend(dropped)
        full = False

    while any(not request.done for request in requests):
        batch = next_prefill()
        if batch:
            steps.append([0, sum(request.extend_input_len for request in batch)])
            for request in batch:
                pool.hold(request, len(request.fill_ids))
            ready = [request for request in batch if request is not chunked]
            for request in ready:
                request.output_ids.append(1)
            running += finish(ready)
            continue
        if pool.free < pool.next_token(running):
            retract()
        else:
            ratio = max(ratio - (first - least) / 600, least)
        steps.append([len(running), 0])
        for request in running:
            pool.hold(request, len(request.prefix_indices) + 1)
            request.output_ids.append(1)
        running = finish(running)
    return steps, [request.retractions for request in requests]

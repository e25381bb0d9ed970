"""Event simulation of continuous batching: requests through a server's scheduler, step by step."""

from placer.errors import BadInputError
from placer.profiler.serving.played import Played
from placer.profiler.serving.served import Served
from placer.profiler.serving.server import Scheduler, Server
from placer.profiler.serving.sglang_scheduler import SglangScheduler
from placer.profiler.serving.step_time import StepTimes
from placer.profiler.serving.traffic import Traffic
from placer.profiler.serving.vllm_scheduler import VllmScheduler

_SCHEDULERS: dict[Scheduler, type[SglangScheduler | VllmScheduler]] = {
    Scheduler.SGLANG: SglangScheduler,
    Scheduler.VLLM: VllmScheduler,
}


def simulate(traffic: Traffic, server: Server, times: StepTimes) -> Served:
    """Serve every request of ``traffic``.

    Consecutive decode steps between which nothing can change are drawn at once, so the work grows with admissions and
    finished requests rather than with tokens.

    Raises
    ------
    BadInputError
        When a request can never be held by the KV pool.
    """
    _check_each_fits(traffic, server)
    played = Played(traffic)
    scheduler = _SCHEDULERS[server.scheduler](played, server, times)
    while played.unfinished:
        played.release()
        scheduler.step()
        played.mark()
    duration_us = float(played.finish_us.max() - played.arrival_us.min())
    return Served(
        arrival_us=played.arrival_us,
        admitted_us=played.admitted_us,
        first_token_us=played.first_token_us,
        finish_us=played.finish_us,
        prompt_tokens=played.prompt,
        output_tokens=played.output,
        retractions=played.retractions,
        decode_steps=played.decode_steps,
        prefill_steps=played.prefill_steps,
        prefilled_tokens=played.prefilled_tokens,
        decode_us=played.decode_us,
        prefill_us=played.prefill_us,
        mean_kv_tokens=played.kv_token_us / duration_us,
        peak_kv_tokens=played.peak_kv_tokens,
        course=played.course(),
    )


def _check_each_fits(traffic: Traffic, server: Server) -> None:
    usable = server.kv_tokens // server.page_tokens * server.page_tokens
    longest = int((traffic.prompt_tokens + traffic.output_tokens).max())
    if longest > usable:
        raise BadInputError(
            f"a request of {longest:,} tokens never fits a KV pool of {server.kv_tokens:,}",
            f"give the pool at least {longest:,} tokens, or shorten the requests",
        )

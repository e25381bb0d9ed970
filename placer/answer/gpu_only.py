"""What is printed of a plan whose experts are all hot: what the server gives without CPU experts."""

from rich.text import Text

from placer.gpu_only_section import GpuOnlySection
from placer.placement import PlacementDocument
from placer.predicted_sections import BandSection
from placer.units import counted, duration, figure


def gpu_only_lines(document: PlacementDocument) -> list[Text]:
    """The figures of a start without CPU experts, or why there are none; nothing for other plans."""
    found = document.gpu_only
    if found is None:
        return []
    if not found.fits or found.max_running_requests is None:
        return [
            Text(
                f"  without CPU experts: not known here: {found.problem} ('placer compare' with --gpu NAME shows every "
                "way of running the model)"
            )
        ]
    return [
        Text(
            f"  started without CPU experts: {_rate(found)}, TPOT {_p95(found.tpot_ms_p95)}, TTFT "
            f"{_p95(found.ttft_ms_p95)}, with "
            f"{counted(found.max_running_requests, 'running request')} and {found.kv_tokens:,} KV tokens "
            f"({found.kv_dtype}) (simulated)"
        ),
        Text(
            "  all other figures here are of sglang-kt with its CPU side, which it waits and copies for even where "
            "every expert is hot"
        ),
    ]


def gpu_only_words(document: PlacementDocument) -> str | None:
    """For the verdict: the tokens per second without CPU experts, where they are known."""
    found = document.gpu_only
    if found is None or found.output_tokens_per_s is None or found.output_tokens_per_s.mid is None:
        return None
    return f"{figure(found.output_tokens_per_s.mid, 1)} tokens/s without CPU experts"


def _rate(found: GpuOnlySection) -> str:
    band = found.output_tokens_per_s
    if band is None or band.mid is None:
        return "tokens/s unknown"
    if band.low is None or band.high is None:
        return f"{figure(band.mid, 1)} tokens/s"
    return f"{figure(band.mid, 1)} tokens/s ({figure(band.low, 1)} to {figure(band.high, 1)})"


def _p95(band: BandSection | None) -> str:
    if band is None or band.mid is None:
        return "grows for as long as requests arrive"
    return f"p95 {duration(1e3 * band.mid, 3)}"

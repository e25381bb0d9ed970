"""Every remedy that `placer inspect --plan` prints: the command fits when it is run again with it."""

import json
import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from family_configs import GLM_4_7_FLASH, KIMI_K2_5, QWEN3_5_122B
from test_model import DEEPSEEK_V3, GPT_OSS_20B, MINIMAX_M2, MIXTRAL, QWEN3_30B, QWEN3_CODER_480B
from typer.testing import CliRunner

from placer.cli import app
from placer.datasheet import GPU_NAMES
from placer.errors import BadInputError

CONFIGS = (
    DEEPSEEK_V3, GLM_4_7_FLASH, GPT_OSS_20B, KIMI_K2_5, MINIMAX_M2, MIXTRAL, QWEN3_30B, QWEN3_5_122B,
    QWEN3_CODER_480B,
)  # fmt: skip
REQUESTS = 30


def planned(options: Mapping[str, str]) -> dict[str, Any] | None:
    """The plan of `placer inspect` with ``options``; None where sizes do not go together."""
    arguments = [word for option in options.items() for word in option]
    result = CliRunner().invoke(app, ["inspect", "--json", *arguments])
    if isinstance(result.exception, BadInputError):
        return None
    plan = dict(json.loads(result.stdout)["plan"])
    assert result.exit_code == (0 if plan["fits"] else 3)
    return plan


def followed(options: Mapping[str, str], advice: str) -> dict[str, str]:
    """``options`` after the change in words: ``--ep 2 --tp 8 (8 GPUs)``, ``--kv-tokens of at most 4096``."""
    if advice.startswith("a GPU with"):
        without = {flag: value for flag, value in options.items() if flag != "--gpu"}
        changed = {**without, "--hbm-budget": advice.split()[3].replace(",", "") + "GiB"}
        _, _, beside = advice.partition(" and ")
        return followed(changed, beside) if beside else changed
    plain = re.sub(r"of at (most|least)|per layer|\(.*\)| and ", " ", advice)
    words = plain.split()
    return {**options, **dict(zip(words[::2], words[1::2], strict=True))}


def random_options(folder: Path, rng: random.Random) -> dict[str, str]:
    config = rng.choice(CONFIGS)
    fields = config.get("text_config", config)
    counts = ("num_experts", "n_routed_experts", "num_local_experts")
    experts = next(fields[name] for name in counts if name in fields)
    (folder / "config.json").write_text(json.dumps(config))
    tp, running = rng.choice((1, 2, 4, 8)), rng.choice((1, 8, 64, 256))
    return {
        "--model": str(folder),
        "--gpu": rng.choice(GPU_NAMES),
        "--hbm-budget": f"{rng.choice((60, 90, 100))}%",
        "--tp": str(tp),
        "--ep": str(rng.choice((1, 1, 1, tp))),
        "--pp": str(rng.choice((1, 1, 1, 2))),
        "--dp": str(rng.choice((1, 1, 1, tp))),
        "--plan": str(rng.randint(0, experts)),
        "--kv-tokens": str(rng.choice((4096, 40_960, 131_072, 2_000_000))),
        "--kv-dtype": rng.choice(("bf16", "fp8")),
        "--running": str(running),
        "--chunk": str(max(running, rng.choice((512, 2048, 8192, 32_768)))),
        "--host-memory": rng.choice(("2GiB", "48GiB", "4096GiB")),
    }


def test_the_command_fits_when_a_remedy_is_followed(tmp_path: Path) -> None:
    rng = random.Random(20)
    infeasible = 0
    while infeasible < REQUESTS:
        options = random_options(tmp_path, rng)
        plan = planned(options)
        if plan is None or plan["fits"]:
            continue
        infeasible += 1
        if plan["host"]["fits"]:
            assert plan["hbm"]["ledger"]["unused"] < 0
        assert (plan["hbm"]["ledger"]["unused"] < 0) == (plan["binding_line"] in plan["hbm"]["ledger"])
        assert plan["remedies"]
        for remedy in plan["remedies"]:
            again = planned(followed(options, remedy["advice"]))
            assert again is not None, remedy
            assert again["fits"], remedy


@pytest.mark.parametrize(
    ("advice", "options"),
    [
        ("--kv-tokens of at most 4096", {"--kv-tokens": "4096"}),
        ("--chunk of at most 64 and --host-memory of at least 3.92GiB", {"--host-memory": "3.92GiB"}),
        ("--ep 2 --tp 8 (8 GPUs)", {"--ep": "2", "--tp": "8"}),
        ("--plan of at most 90 per layer", {"--plan": "90"}),
        ("--hbm-budget of at least 61.25GiB", {"--hbm-budget": "61.25GiB"}),
        ("a GPU with 1,082.90 GiB usable", {"--hbm-budget": "1082.90GiB"}),
    ],
)
def test_words_are_options(advice: str, options: dict[str, str]) -> None:
    assert followed({"--gpu": "h200"}, advice).items() >= options.items()

"""`python -m fuzzing`: campaigns on readers, and their record in docs/fuzzing.md."""

import argparse
from pathlib import Path

from fuzzing.campaign import campaign
from fuzzing.readers import READERS
from fuzzing.record import record


def main() -> None:
    """Run a campaign on each reader that is named, one after the other, and record it where asked to."""
    parser = argparse.ArgumentParser(prog="fuzzing", description=__doc__)
    parser.add_argument("readers", nargs="*", help=f"readers; all without any: {', '.join(READERS)}")
    parser.add_argument("--inputs", type=int, default=200_000, help="inputs for each reader")
    parser.add_argument("--seed", type=int, default=0, help="seed of the mutations")
    parser.add_argument("-o", "--output", type=Path, help="record to make again, with these campaigns in it")
    asked = parser.parse_args()
    if unknown := [name for name in asked.readers if name not in READERS]:
        parser.error(f"no reader {unknown[0]}; there are {', '.join(READERS)}")
    for name in asked.readers or READERS:
        tally = campaign(name, asked.inputs, asked.seed)
        print(
            f"{name}: {tally.inputs:,} inputs, {tally.accepted:,} accepted, {tally.refused:,} refused, slowest "
            f"{tally.slowest_seconds * 1e3:,.0f} ms, {tally.seconds:,.0f} s, {len(tally.faults)} faults",
            flush=True,
        )
        for fault, times in tally.faults.items():
            print(f"  {times} x {fault}", flush=True)
        if asked.output is not None:
            record(asked.output, name, tally, asked.seed)


if __name__ == "__main__":
    main()

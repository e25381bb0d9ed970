"""`python -m fuzzing`: campaigns on readers, and their record in docs/fuzzing.md."""

import argparse
from pathlib import Path

from fuzzing.campaign import campaign
from fuzzing.readers import READERS
from fuzzing.record import record, recorded_inputs


def main() -> None:
    """Run a campaign on each reader that is named, one after the other; go on from a record and add to it."""
    parser = argparse.ArgumentParser(prog="fuzzing", description=__doc__)
    parser.add_argument("readers", nargs="*", help=f"readers; all without any: {', '.join(READERS)}")
    parser.add_argument("--inputs", type=int, default=200_000, help="inputs for each reader")
    parser.add_argument("--seed", type=int, default=0, help="seed of the mutations")
    parser.add_argument("--minutes", type=float, default=1e6, help="most minutes for each reader")
    parser.add_argument("-o", "--output", type=Path, help="record that says where to go on, and is added to")
    parser.add_argument(
        "--guided", action="store_true", help="change further what covers new code; needs atheris"
    )
    asked = parser.parse_args()
    if asked.guided and asked.output is not None:
        parser.error("the record is of plain campaigns: leave -o or --guided out")
    if unknown := [name for name in asked.readers if name not in READERS]:
        parser.error(f"no reader {unknown[0]}; there are {', '.join(READERS)}")
    for name in asked.readers or READERS:
        start = 0 if asked.output is None else recorded_inputs(asked.output, name, asked.seed)
        tally = campaign(
            name, start, asked.inputs, asked.seed, most_seconds=60 * asked.minutes, guided=asked.guided
        )
        if not tally.inputs:
            continue
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

"""`make bench-engine`: rounds per second against a raw loop and two peers, in one sitting.

    python benchmarks/engine.py [--repeats 5] [--rounds 30] [--no-peers]

100 sites, 10 a round, 100 images of 3x32x32 each, 1 epoch, batch 32. Contestants take turns,
so that a busy neighbor slows all of them; a ratio is the median over the turns of one turn's
ratio, with the smallest and the largest beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
PEERS = HERE / ".peers"
STEADY, ALL_IN = "rounds_per_second_steady", "rounds_per_second_all_in"


def list_contestants(peers: bool) -> dict[str, list[str]]:
    """The commands, by name."""
    commands = {
        "raw-1": [sys.executable, str(HERE / "peers" / "raw_loop.py"), "--processes", "1"],
        "ours-1": [sys.executable, str(HERE / "ours.py"), "--workers", "1"],
        "raw-2": [sys.executable, str(HERE / "peers" / "raw_loop.py"), "--processes", "2"],
        "ours-2": [sys.executable, str(HERE / "ours.py"), "--workers", "2"],
    }
    if peers:
        commands["pfl"] = [
            str(PEERS / "pfl" / "bin" / "python"),
            str(HERE / "peers" / "pfl_loop.py"),
        ]
        commands["flower"] = [
            str(PEERS / "flower" / "bin" / "python"),
            str(HERE / "peers" / "flower_loop.py"),
        ]
    return commands


def measure(command: list[str], model: str, rounds: int) -> dict[str, float]:
    """One turn of one contestant in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "figures.json"
        words = [*command, "--model", model, "--rounds", str(rounds), "--json", str(out)]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(words, env=env, capture_output=True, text=True)
        if done.returncode or not out.exists():
            sys.exit(f"{' '.join(words)} failed:\n{done.stderr[-2000:]}")
        figures: dict[str, float] = json.loads(out.read_text())
        return figures


def format_ratio(turns: list[dict[str, dict[str, float]]], a: str, b: str, figure: str) -> str:
    """Median, smallest and largest of a/b over the turns."""
    ratios = [turn[a][figure] / turn[b][figure] for turn in turns]
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    return f"{statistics.median(ratios):.2f}  ({spread}, n={len(ratios)})"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--no-peers", action="store_true", help="the raw loop only")
    parser.add_argument("--models", nargs="+", default=["small-cnn", "resnet8"])
    args = parser.parse_args()
    peers = PEERS.exists() and not args.no_peers
    for model in args.models:
        turns = []
        for _ in range(args.repeats):
            turn = {
                name: measure(command, model, args.rounds)
                for name, command in list_contestants(peers).items()
            }
            turns.append(turn)
            line = "  ".join(f"{name} {figures[STEADY]:.2f}" for name, figures in turn.items())
            print(f"{model}: rounds/s {line}", flush=True)
        for count in ("1", "2"):
            compared = format_ratio(turns, f"ours-{count}", f"raw-{count}", STEADY)
            print(f"{model}: ours-{count} / raw-{count}, steady   {compared}")
        if peers:
            for name in ("pfl", "flower"):
                for ours in ("ours-1", "ours-2"):
                    for words, figure in (("all-in", ALL_IN), ("steady", STEADY)):
                        compared = format_ratio(turns, ours, name, figure)
                        print(f"{model}: {ours} / {name}, {words}   {compared}")


if __name__ == "__main__":
    main()

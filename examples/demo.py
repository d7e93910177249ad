"""`make demo`: a federation of ten sites on embedded birds, against each site on its own."""

import sys
import time
from pathlib import Path

from vitrail.data.check import contact_sheet
from vitrail.data.source import load as load_images
from vitrail.engine.folder import free_folder
from vitrail.engine.sweep import load_grid, run_sweep
from vitrail.report.compare import compare_runs, write_comparison
from vitrail.report.pictures import run_pictures
from vitrail.report.presets import FOLDER
from vitrail.rng import server

OWN = """
The same with your own images (a folder per class, a CSV, a Parquet file ...):

    .venv/bin/vitrail data check PATH
    .venv/bin/vitrail init PATH --out mine.toml
    .venv/bin/vitrail run mine.toml
"""


def announce(number, count, name):
    """Say which run starts, then a line every few rounds."""
    print(f"[{number + 1}/{count}] {name}", flush=True)

    def on_round(p):
        if p.note.startswith("computing"):
            done, total = (int(part) for part in p.note.rpartition(" ")[2].split("/"))
            if done == total or done % 10 == 0:
                print(f"\r    features of the frozen backbone {done}/{total}", end="", flush=True)
                print("" if done < total else "\n", end="")
        elif p.round % 5 == 0 and not p.note and p.accuracy is not None:
            print(f"    round {p.round}/{p.rounds}  accuracy {p.accuracy:.3f}", flush=True)

    return on_round


def main():
    """Run both, compare, draw, and say where to look."""
    began = time.monotonic()
    out = free_folder(Path("runs"), "demo")
    loaded = load_grid(FOLDER / "demo.toml")
    paths = run_sweep(loaded, out, announce)
    images = load_images(loaded.config.data, loaded.base, server(1).at("data"))
    contact_sheet(images, out / "birds.png")
    partition = run_pictures(paths[0])["partition"]
    tables = compare_runs(paths, baseline="local")
    *_, curves = write_comparison(tables, out / "figures")
    scores = {row.name: row.mean for row in tables[0].rows}
    print(
        f"\nmean accuracy on the sites' own test images: {scores['local']:.2f} alone, "
        f"{scores['fedavg']:.2f} together (chance is 0.17), in {time.monotonic() - began:.0f} s"
    )
    print(f"\nlook at  {out / 'birds.png'}   the six kinds of birds, which differ only in parts")
    print(f"         {partition}   who holds what")
    print(f"         {curves}   what the federation gains")
    print(OWN, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())

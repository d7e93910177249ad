"""`make demo`: five sites learn birds by their parts, one of them cheats, and a report tells."""

import sys
import time
from pathlib import Path

from vitrail.audit.audit_run import audit_run
from vitrail.data.inspect.image_check import draw_contact_sheet
from vitrail.engine.storage.run_folder import find_free_folder
from vitrail.files import write_text
from vitrail.report.compose import compose
from vitrail.report.pages.audit_page import ExampleCollector
from vitrail.report.pages.audit_words import write_headline
from vitrail.report.sections.audit_pictures import keep_audit
from vitrail.report.viewer import Viewer
from vitrail.runs.opened_run import Run
from vitrail.runs.reopen import load_run_federation
from vitrail.sweep.cells import load_grid, run_sweep
from vitrail.sweep.compare_runs import compare_runs
from vitrail.sweep.presets import FOLDER

NEXT_STEPS = """
The same with your own images (a folder per class, a CSV, a Parquet file ...):

    .venv/bin/vitrail data check PATH
    .venv/bin/vitrail init PATH --out mine.toml
    .venv/bin/vitrail run mine.toml --out runs/mine
    .venv/bin/vitrail report runs/mine
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


def audit(run):
    """Ask every site of a run whether another one taught it a shortcut; keep what was found."""
    collector, last = ExampleCollector(), [""]

    def tell(text):
        site = text.partition(":")[0]
        if site != last[0]:
            last[0] = site
            print(f"    {site}", flush=True)

    findings = audit_run(run, tell=tell, keep=collector)
    keep_audit(run, findings, collector.examples)
    return findings


def main():
    """Train, audit, report, and say where to look."""
    began = time.monotonic()
    out = find_free_folder(Path("runs"), "demo")
    paths = run_sweep(load_grid(FOLDER / "demo.toml"), out, announce)
    scores = {row.name: row.mean for row in compare_runs(paths)[0].rows}
    run = Run(paths[0])
    draw_contact_sheet(load_run_federation(run).images, out / "birds.png")
    print("[audit] did a site teach the others something that it should not know?", flush=True)
    _, words = write_headline(audit(run).to_json())
    print("[report]", flush=True)
    report = out / "report.html"
    write_text(report, compose(paths, Viewer()).html)
    print(
        f"\naccuracy on the sites' own test images (chance is 0.20): each site alone "
        f"{scores['local']:.2f}, together {scores['fedgrasp']:.2f}; a linear head together "
        f"{scores['fedavg']:.2f}\nthe audit says: {words}\n"
        f"all of it took {time.monotonic() - began:.0f} s\n"
    )
    print(f"look at  {report}   in any browser; nothing is loaded from elsewhere")
    print(f"         {out / 'birds.png'}   the five kinds of birds, which differ only in parts")
    print(NEXT_STEPS, end="")
    print(f"\nask it, watch it, decide:  .venv/bin/vitrail serve {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`make demo-flower`: a coordinator and three sites as processes of their own, on this machine.

Each site has a folder of its own birds; keys are made, TLS and authentication are on, one
FedGraSP run is played, and then one site explains a prediction and audits what it learned.
"""

import subprocess
import sys
import time
from pathlib import Path

from PIL import Image

from vitrail.config import parse
from vitrail.data.load_images import load
from vitrail.engine.storage.run_folder import find_free_folder
from vitrail.flower.ports import find_free_port
from vitrail.rng import derive_server_key

SITES = ("north", "east", "west")
FEDERATION = """[data]
classes = {classes}
image_size = 64
channels = 3

[model]
backbone = "efficientnet-lite0"
weights = "imagenet"
frozen = true
until = "stage4"

[method]
name = "fedgrasp"

[run]
rounds = 3
local_epochs = 2
batch_size = 16
"""


def draw_birds(root):
    """Every site's own birds, a folder per class."""
    asked = parse({"data": {"aviary": {"images": 360, "classes": 3}, "image_size": 64}})
    birds = load(asked.config.data, root, derive_server_key(1))
    for i, (pixels, label) in enumerate(zip(birds.images, birds.labels, strict=True)):
        folder = root / SITES[i % 3] / "images" / birds.classes[label]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / f"{i:04d}.png")
    return birds.classes


def start_vitrail(*words, cwd, out=None):
    """A command of the package, as a process of its own."""
    command = [sys.executable, "-c", "from vitrail.cli import main; main()", *words]
    return subprocess.Popen(command, cwd=cwd, stdout=out, stderr=subprocess.STDOUT)


def run_vitrail(*words, cwd):
    """The same, waited for; a failure ends the demo."""
    print(f"$ vitrail {' '.join(words)}", flush=True)
    if start_vitrail(*words, cwd=cwd).wait():
        sys.exit("the demo failed; what it said stands above")


def main():
    """Draw, make keys, start four processes, wait, look."""
    began = time.monotonic()
    root = find_free_folder(Path("runs"), "flower").resolve()
    root.mkdir(parents=True)
    classes = draw_birds(root)
    (root / "federation.toml").write_text(
        FEDERATION.format(classes=list(classes)).replace("'", '"')
    )
    sites = [word for site in SITES for word in ("--site", site)]
    run_vitrail("flower", "keys", "init", "keys", *sites, "--host", "localhost", cwd=root)
    port = str(find_free_port())
    nodes = []
    for site in SITES:
        words = ("--server", f"localhost:{port}", "--data", "images", "--name", site)
        words += ("--keys", str(root / "keys" / "sites" / site), "--yes", "--once")
        log = (root / f"{site}.log").open("wb")
        nodes.append(start_vitrail("flower", "site", *words, cwd=root / site, out=log))
    try:
        words = ("--out", "run", "--keys", "keys", "--port", port)
        run_vitrail("flower", "server", "federation.toml", *words, cwd=root)
        for node in nodes:
            node.wait(120)
    finally:
        for node in nodes:
            if node.poll() is None:
                node.terminate()
    here = root / "north"
    site_run = str(next((here / "north-site" / "runs").iterdir()).relative_to(here))
    image = str(next((here / "images").rglob("*.png")).relative_to(here))
    run_vitrail(
        "explain", site_run, "--image", image, "--site", "north", "--out", "why.html", cwd=here
    )
    run_vitrail("audit", site_run, "--site", "north", "--out", "audit.html", cwd=here)
    print(
        f"\n{time.monotonic() - began:.0f} s in all. To look at, at site north:\n"
        f"  {here / 'why.html'}\n  {here / 'audit.html'}\n"
        f"  {here / site_run / 'sites' / 'north' / 'ledger.jsonl'}  (what left this site)"
    )


if __name__ == "__main__":
    main()

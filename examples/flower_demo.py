"""`make demo-flower`: a coordinator and three sites as processes of their own, on this machine.

Each site has a folder of its own birds and a policy; keys are made, TLS and authentication are on.
First the coordinator proposes to share images, which every site's policy refuses. Then one FedGraSP
run is agreed to and played, and one site explains a prediction and audits what it learned.
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
from vitrail.flower.site.site_config import write_site
from vitrail.rng import derive_server_key

SITES = ("north", "east", "west")
POLICY = """
[policy]
images = false
rounds = 10
largest_weight = 0.6
"""
FEDERATION = """[data]
classes = {classes}
image_size = 96
channels = 3

[model]
backbone = "efficientnet-lite0"
weights = "imagenet"
frozen = true
until = "stage5"

[method]
name = "fedgrasp"

[run]
rounds = 6
local_epochs = 4
batch_size = 16
"""


def draw_birds(root):
    """Every site's own birds, a folder per class."""
    asked = parse({"data": {"aviary": {"images": 720, "classes": 3}, "image_size": 96}})
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


def run_vitrail(*words, cwd, refused=False):
    """The same, waited for; a failure ends the demo, unless a refusal is what is to be seen."""
    print(f"$ vitrail {' '.join(words)}", flush=True)
    if bool(start_vitrail(*words, cwd=cwd).wait()) is not refused:
        sys.exit("the demo failed; what it said stands above")


def write_federations(root, classes):
    """What the coordinator proposes first, and what it proposes then."""
    modest = FEDERATION.format(classes=list(classes)).replace("'", '"')
    greedy = modest.replace('name = "fedgrasp"', 'name = "fedxds"')
    (root / "federation.toml").write_text(modest)
    (root / "greedy.toml").write_text(greedy)


def start_sites(root, port):
    """A process a site, with a policy in the site's own file; what it says goes to a file."""
    nodes = []
    for site in SITES:
        here = root / site
        keys = str(root / "keys" / "sites" / site)
        file = here / f"{site}.site.toml"
        if not file.exists():
            file = write_site(file, site, here / "images")
            file.write_text(file.read_text() + POLICY)
        words = ("--server", f"localhost:{port}", "--file", file.name, "--keys", keys)
        log = (root / f"{site}.log").open("ab")
        nodes.append(start_vitrail("flower", "site", *words, "--yes", "--once", cwd=here, out=log))
    return nodes


def main():
    """Draw, make keys, start four processes, wait, look."""
    began = time.monotonic()
    root = find_free_folder(Path("runs"), "flower").resolve()
    root.mkdir(parents=True)
    classes = draw_birds(root)
    write_federations(root, classes)
    sites = [word for site in SITES for word in ("--site", site)]
    run_vitrail("flower", "keys", "init", "keys", *sites, "--host", "localhost", cwd=root)
    port = str(find_free_port())
    nodes = start_sites(root, port)
    try:
        words = ("--keys", "keys", "--port", port)
        greedy = ("greedy.toml", "--out", "refused")
        run_vitrail("flower", "server", *greedy, *words, cwd=root, refused=True)
        codes = [node.wait(60) for node in nodes]
        print(f"The sites took no part and left with the codes {codes}.\n", flush=True)
        nodes = start_sites(root, port)
        run_vitrail("flower", "server", "federation.toml", "--out", "run", *words, cwd=root)
        for node in nodes:
            node.wait(120)
    finally:
        for node in nodes:
            if node.poll() is None:
                node.terminate()
    here = root / "north"
    print(f"\nWhat north said:\n{(root / 'north.log').read_text().strip()}\n", flush=True)
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

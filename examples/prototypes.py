"""Three sites, features at home: what is shared, what a site cannot ground, why a class was chosen.

python examples/prototypes.py
"""

import tempfile
from pathlib import Path

import torch

import vitrail
from vitrail.data.load_images import load
from vitrail.rng import derive_server_key

config = {
    "data": {"image_size": 32, "aviary": {"images": 150, "classes": 3}},
    "partition": {"kind": "shards", "shards": 2, "sites": 3},  # a site has two classes at most
    "model": {"backbone": "small-cnn", "width": 16, "prototypes": {"per_class": 3, "depth": 32}},
    "method": {"name": "myth-pm", "warm_epochs": 3, "last_epochs": 5},
    "run": {"rounds": 3, "local_epochs": 3, "local_reference": False},
}

with tempfile.TemporaryDirectory() as folder:
    run = vitrail.run(config, Path(folder) / "run")
    print("shared:", run.card["shared"]["text"])

    for site in run.sites:
        grounded = run.own(site, "personal")["push/row"] >= 0
        print(
            f"{site}: {int(grounded.sum())} of {len(grounded)} prototypes are patches of its images"
        )

    model = run.model(run.sites[0])
    network = model.network
    birds = load(run.config.data, Path(), derive_server_key(run.config.run.seed).at("data"))
    image = torch.from_numpy(birds.images[:1]).permute(0, 3, 1, 2) / 255
    with torch.no_grad():
        logits = model(image)[0]
        z = network.features(network.prefix((image - model.shift) / model.scale))
    chosen = int(logits.argmax())
    pieces = sorted(network.head.pieces(z, chosen), key=lambda p: -abs(p.contribution))
    print(f"\nwhy {run.classes[chosen]!r}, logit {logits[chosen]:.4f}:")
    for piece in pieces[:3]:
        print(
            f"  {piece.name} of {run.classes[piece.owner]!r}: likeness {piece.score:.2f} x weight "
            f"{piece.weight:+.2f} = {piece.contribution:+.4f}, at row and column {piece.at}"
        )
    rest = sum(p.contribution for p in pieces[3:])
    total = sum(p.contribution for p in pieces)
    print(f"  the other {len(pieces) - 3} together {rest:+.4f}; all of them {total:.4f}")
    assert abs(total - float(logits[chosen])) < 1e-4

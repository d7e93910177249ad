"""The same federation without and with a guarantee: what leaves, what it costs, what it is worth.

python examples/private_run.py
"""

import tempfile
from pathlib import Path

import vitrail
from vitrail.runs.ledgers import read_ledgers

config = {
    "data": {"image_size": 24, "aviary": {"images": 240, "classes": 3}},
    "partition": {"kind": "iid", "sites": 3},
    "model": {"backbone": "small-cnn", "width": 8, "norm": "group"},
    "run": {"rounds": 3, "batch_size": 32},
}
budgets = {
    "no guarantee": {},
    "epsilon 16 for one image": {
        "defenses": ["dp-sgd"],
        "dp-sgd": {"epsilon": 16.0, "delta": 1e-4, "sites": {"site-02": 4.0}},
    },
}

with tempfile.TemporaryDirectory() as folder:
    for number, (name, release) in enumerate(budgets.items()):
        run = vitrail.run({**config, "release": release}, Path(folder) / str(number))
        accuracy = run.curve(where="sites")[-1][1]
        print(f"\n{name}: accuracy {accuracy:.3f} after {run.round} rounds")
        ledgers = read_ledgers(run.path)
        assert not ledgers.mismatches
        for site in ledgers.sites:
            lines = site.guaranteed_lines
            last = lines[-1] if lines else {"guarantee": "nothing left"}
            print(f"  {site.site}: {last['guarantee']}")

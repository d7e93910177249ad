"""Every key of a configuration with its default, and what an error looks like.

python examples/reference_config.py
"""

from vitrail.config import dump, parse
from vitrail.errors import VitrailError

print(dump(parse({"method": {"name": "fedprox", "mu": 0.1}}).config))
for wrong in (
    {"run": {"round": 3}},
    {"partition": {"kind": "dirichlett"}},
    {"run": {"rounds": -1}},
):
    try:
        parse(wrong, source="example.toml")
    except VitrailError as err:
        print(err)

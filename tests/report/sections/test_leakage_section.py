"""What attacks got: every attack beside its defense and the references."""

from vitrail.report.blocks import iterate_leaves, render_block
from vitrail.report.sections.leakage_section import (
    flatten_attack_rows,
    is_reference,
    make_leakage_blocks,
)


def test_every_attack_stands_beside_its_defense_and_the_references():
    results = {
        "references": [{"attack": "mean image", "psnr": 14.0, "psnr_sd": 1.0, "iterations": 0}],
        "defenses": [
            {"defense": "none", "accuracy": 0.8, "attacks": [{"attack": "ig", "psnr": 31.0}]},
            {
                "defense": "tip",
                "accuracy": 0.7,
                "attacks": [{"attack": "ig", "psnr": 12.0, "threat": {"sees": "update"}}],
            },
        ],
    }
    rows = flatten_attack_rows(results)
    assert [(r["defense"], r["psnr"]) for r in rows] == [
        ("reference", 14.0),
        ("none", 31.0),
        ("tip", 12.0),
    ]
    assert [is_reference(row) for row in rows] == [True, False, False]
    (noted,) = flatten_attack_rows({"rows": [{"attack": "ig", "note": "labels inferred"}]})
    assert noted["attack"] == "ig (labels inferred)"
    blocks = make_leakage_blocks("run", results)
    table = next(x for x in iterate_leaves(blocks) if hasattr(x, "to_csv"))
    assert len(table.rows) == 3 and "accuracy of the model" in table.to_csv()
    assert "sees one site" in "".join(map(render_block, blocks))


def test_a_file_of_attacks_of_any_shape_is_no_crash():
    for results in ({}, {"rows": "x"}, {"rows": [3, None]}, {"defenses": [{"attacks": None}]}):
        assert "has no rows" in "".join(map(render_block, make_leakage_blocks("run", results)))


def test_members_and_released_parts_have_tables_of_their_own():
    results = {
        "rows": [],
        "members": [{"name": "loss", "target": "global model", "auc": 0.61, "tpr": 0.02}],
        "patches": {"site-00": [{"name": "prototype", "units": 6, "psnr": 11.0, "ssim": 0.1}]},
    }
    tables = [x.to_csv() for x in iterate_leaves(make_leakage_blocks("run", results))]
    assert any("global model,0.61" in text for text in tables)
    assert any("site-00,prototype,6,11.0" in text for text in tables)

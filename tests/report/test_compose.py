"""What a report says is what the run's files say."""

import json
import math
import re
import shutil
import time

import pytest

import vitrail
from vitrail.report.compose import compose, make_names
from vitrail.report.viewer import Viewer
from vitrail.report.write_figures import write_figures
from vitrail.runs.opened_run import Run


def find_table(document, end):
    return next(x for x in document.leaves if hasattr(x, "to_csv") and x.name.endswith(end))


def test_the_summary_tells_the_last_accuracy_and_leads_to_its_evidence(birds, report, read_page):
    run = Run(birds / "fedavg")
    page = read_page(report(run.path).html)
    summary = page.sections["summary"]
    assert f"{100 * run.curve('accuracy')[-1][1]:.1f} %" in summary
    assert f"{len(run.sites)} sites" in summary and "2 rounds" in summary
    assert page.raw["summary"].count('href="#') >= 5


def test_the_site_table_sums_up_the_metrics(birds, report):
    run = Run(birds / "fedavg")
    rows = {row[0]: row for row in find_table(report(run.path), "-sites").rows}
    for site in run.sites:
        site_rows = [r for r in run.rows() if r["site"] == site]
        assert rows[site][8] == sum(r["bytes_up"] for r in site_rows if "bytes_up" in r)
        assert (
            rows[site][4] == [r["accuracy"] for r in site_rows if r.get("accuracy") is not None][-1]
        )


def test_the_ledger_table_has_every_line_of_every_ledger(birds, report, releases):
    run = Run(birds / "fedavg")
    table = find_table(report(run.path), "-ledger")
    sent = {row[0]: row for row in table.rows if row[1] == "update"}
    for site, lines in releases(run.path).items():
        assert sent[site][2] == len(lines)
        assert sent[site][3] == sum(line["bytes"] for line in lines)
        assert "no formal guarantee" in sent[site][5]


def test_numbers_of_a_case_add_up_as_printed(birds, report):
    raw = report(birds / "myth").html
    cases = re.findall(r'<div class="sum">(.*?)sum, which is the logit(.*?)</div></div>', raw)
    assert cases
    number = re.compile(r'class="value">([^<]+)<')
    for rows, total in cases:
        values = [float(v.replace("\N{MINUS SIGN}", "-")) for v in number.findall(rows)]
        logit = float(number.findall(total + "</div>")[0].replace("\N{MINUS SIGN}", "-"))
        assert math.isclose(sum(values), logit, abs_tol=5e-4)


def test_the_audit_shows_verdicts_pictures_and_what_to_do(audited, report, read_page):
    document = report(audited)
    text = read_page(document.html).sections["audit"]
    assert "corrected (Holm)" in text and "The alarm an unbiased site hears" in text
    assert len(find_table(document, "-audit").rows) == 9
    assert "the place" in text and "<use" in read_page(document.html).raw["audit"]
    assert "Nobody has asked yet" not in read_page(document.html).sections["summary"]


def test_an_audit_without_images_still_has_its_verdicts(audited, report, tmp_path, read_page):
    copy = tmp_path / "run"
    shutil.copytree(audited, copy)
    card = json.loads((copy / "server" / "card.json").read_text())
    (copy / "server" / "card.json").write_text(json.dumps({**card, "public": False}))
    document = report(copy)
    assert "data:image" not in document.html
    assert len(find_table(document, "-audit").rows) == 9
    private = report(copy, site="site-00", with_images=True)
    assert (
        "data:image" in read_page(private.html).raw["audit"] + private.html and private.is_private
    )


def test_subspaces_show_who_agrees_from_what_the_server_holds(birds, report, read_page):
    document = report(birds / "fedgrasp")
    text = read_page(document.html).sections["parts"]
    assert "3 subspaces of the global model" in text and "Do the sites agree?" in text
    run = Run(birds / "fedgrasp")
    known = run.state()["agreement/head.frames/consensus"].tolist()
    assert [row[1] for row in find_table(document, "-consensus").rows] == pytest.approx(known)
    assert len(find_table(document, "-distance").rows) == 9


def test_several_runs_are_compared_and_one_is_chosen(birds, report, read_page):
    document = report(birds / "myth", birds / "fedavg")
    page = read_page(document.html)
    assert 'data-choose="run"' in document.html
    assert "Against fedavg" in page.sections["compare"]
    assert "rank correlation" in page.sections["fidelity"]
    assert str(birds) not in document.html


def test_runs_of_one_name_are_told_apart(tmp_path):
    paths = [tmp_path / "a" / "run", tmp_path / "b" / "run", tmp_path / "c" / "run-2"]
    names = make_names(paths)
    assert len(set(names)) == 3


def test_every_figure_is_a_drawing_and_a_picture_and_every_table_a_file(birds, report, tmp_path):
    document = report(birds / "myth")
    files = write_figures(document.leaves, tmp_path)
    kinds = {
        suffix: [f for f in files if f.suffix == suffix] for suffix in (".svg", ".png", ".csv")
    }
    assert len(kinds[".svg"]) == len(kinds[".png"]) > 5 and len(kinds[".csv"]) > 5
    assert len(set(files)) == len(files)
    for file in kinds[".png"]:
        assert file.read_bytes().startswith(b"\x89PNG")


def test_a_report_is_quick_and_small(birds):
    began = time.process_time()
    document = compose([birds / "myth"], Viewer())
    assert time.process_time() - began < 30
    assert len(document.html.encode()) < 10e6


@pytest.fixture(scope="module")
def proven(tmp_path_factory, tiny_config):
    """A run of two rounds behind DP-SGD."""
    changes = {
        "data": {"aviary": {"images": 60, "classes": 3}},
        "partition": {"kind": "iid", "sites": 2},
        "model": {"backbone": "small-cnn", "norm": "group"},
        "release": {"defenses": ["dp-sgd"], "dp-sgd": {"noise": 1.0, "delta": 1e-3}},
        "run": {"rounds": 2},
    }
    return vitrail.run(tiny_config(**changes), tmp_path_factory.mktemp("proven") / "run").path


def test_a_proven_run_says_that_figures_of_sites_never_left(proven, report, read_page):
    page = read_page(report(proven).html)
    kept = "never left their sites: no release carries them"
    assert "Training images by site and class" in page.sections["training"]
    assert kept in page.sections["training"] and kept in page.sections["privacy"]
    assert "The sites told this to nobody" in page.sections["summary"]
    assert "formalguarantee on what left" in page.sections["summary"]


def test_a_proven_run_counts_its_rounds_and_seconds(proven, report):
    rows = find_table(report(proven), "-sites").rows
    assert [row[7] for row in rows] == [2, 2]
    assert all(row[9] > 0 for row in rows)


def test_what_has_no_guarantee_is_called_none(birds, report, read_page):
    page = read_page(report(birds / "fedavg").html)
    assert "noneformal guarantee on what left" in page.sections["summary"]
    assert "empiricalguarantee" not in page.sections["summary"]
    assert "never left their sites" not in page.sections["training"]


def test_an_audit_that_tested_nothing_is_no_clean_bill(audited, report, tmp_path, read_page):
    copy = tmp_path / "run"
    shutil.copytree(audited, copy)
    audit = json.loads((copy / "audit.json").read_text())
    for site in audit["sites"]:
        site["skipped"] = [finding["class"] for finding in site["classes"]]
        site["classes"] = []
    (copy / "audit.json").write_text(json.dumps(audit))
    page = read_page(compose([copy], Viewer(None, False)).html)
    assert "no bias seen" not in page.sections["summary"].casefold()
    assert "Nothing could be tested" in page.sections["summary"]
    assert "not testedaudit for shortcuts" in page.sections["summary"]


def test_an_audit_says_how_much_it_could_not_test(audited, report, tmp_path, read_page):
    copy = tmp_path / "run"
    shutil.copytree(audited, copy)
    audit = json.loads((copy / "audit.json").read_text())
    for site in audit["sites"]:
        site["classes"] = [f for f in site["classes"] if f["verdict"] == "clear"][:1]
        site["skipped"] = ["a", "b"]
    (copy / "audit.json").write_text(json.dumps(audit))
    page = read_page(compose([copy], Viewer(None, False)).html)
    assert "6 more had too few images to be tested" in page.sections["audit"]


def test_without_test_images_nothing_is_said_of_how_good_it_is(tmp_path, tiny_config, read_page):
    config = tiny_config(partition={"kind": "iid", "sites": 2, "test_fraction": 0.0})
    run = vitrail.run({**config, "run": {**config["run"], "rounds": 1}}, tmp_path / "run")
    page = read_page(compose([run.path], Viewer(None, False)).html)
    assert "no test image was held out" in page.sections["summary"]
    assert "has been evaluated yet" not in page.sections["summary"]

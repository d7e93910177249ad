"""`vitrail audit` as a user meets it, what it must never read, and what it must never show."""

import json
import math
import shutil

import pytest

import vitrail
from vitrail.audit.audit_run import contrast_sites
from vitrail.files import read_tensors, write_json
from vitrail.report.pages.audit_evidence import NO_PARTS
from vitrail.runs.reopen import load_run_federation

PROTO = {
    "data": {"aviary": {"images": 200, "classes": 3, "seed": 7}},
    "method": {"name": "myth-gm", "warm_epochs": 1, "last_epochs": 1},
    "model": {"prototypes": {"per_class": 2, "depth": 8}},
    "partition": {"kind": "iid", "sites": 3},
    "run": {"rounds": 2, "local_epochs": 1, "local_reference": True},
}
FIGURES = ("score", "p_value", "box", "covered", "swapped", "gap")


@pytest.fixture(scope="module")
def made(tmp_path_factory, tiny_config):
    """A prototype run whose data are nobody's secret, and the same run as if they were."""
    folder = tmp_path_factory.mktemp("audited")
    run = vitrail.run(tiny_config(**PROTO), folder / "run")
    shutil.copytree(folder / "run", folder / "untold")
    contrast_sites(run, load_run_federation(run), run.sites)  # what the sites tell each other, once
    shutil.copytree(folder / "run", folder / "secret")
    card = json.loads((folder / "secret" / "server" / "card.json").read_text())
    write_json(folder / "secret" / "server" / "card.json", {**card, "public": False})
    return folder


@pytest.fixture
def audit(made, command):
    """A function: call the command on a run; code, stdout, stderr."""

    def call(run, *words):
        return command("audit", made / run if isinstance(run, str) else run, *words)

    return call


def test_all_sites_in_the_agreed_form(read_page, audit, made, tmp_path):
    run = vitrail.load(made / "run")
    code, out, err = audit("run", "--json", "a.json", "--out", "a.html")
    assert code == 0 and "written: a.html" in err
    assert [line.split()[0] for line in out.splitlines()[:3]] == list(run.sites)
    assert "Updates, as the server saw them:" in out
    told = json.loads((tmp_path / "a.json").read_text())
    assert "enough updates" in told["updates"]["unseen"]  # three sites have nobody to differ from
    assert told["origin"] is None or told["origin"] in run.sites
    assert [site["site"] for site in told["sites"]] == list(run.sites)
    for site in told["sites"]:
        assert {c["class"] for c in site["classes"]} | set(site["skipped"]) == set(run.classes)
        for entry in site["classes"]:
            assert entry["verdict"] in ("clear", "differs", "biased") and 0 < entry["p_value"] <= 1
            if entry["box"] is not None:
                x0, y0, x1, y1 = entry["box"]
                assert 0 <= x0 < x1 <= 64 and 0 <= y0 < y1 <= 64
    page = read_page(tmp_path / "a.html")
    assert page.pixels > 0  # these birds may be shown to anybody
    assert all(name in page.text for name in (*run.sites, *run.classes))
    assert told["null"].rstrip(".") in page.text


def test_pixels_are_shown_only_where_somebody_asked(read_page, audit, tmp_path):
    assert audit("secret", "--out", "a.html")[0] == 0
    page = read_page(tmp_path / "a.html")
    assert page.pixels == 0 and "not shown" in page.text and page.labels
    code, _, err = audit("secret", "--out", "b.html", "--with-images")
    assert code == 0 and read_page(tmp_path / "b.html").pixels > 0 and "may see them" in err


def test_one_site_reads_the_server_and_itself_and_tells_nobody(audit, made, tmp_path):
    """Everybody else's files are first spoiled, then gone, and nothing changes."""
    copy = tmp_path / "copy"
    shutil.copytree(made / "run", copy)
    asking, *others = vitrail.load(copy).sites
    words = ("--site", asking, "--json", "a.json", "--out", "a.html", "--force")

    def written():
        assert audit(copy, *words)[0] == 0
        return (tmp_path / "a.json").read_bytes(), (tmp_path / "a.html").read_bytes()

    whole = written()
    assert [site["site"] for site in json.loads(whole[0])["sites"]] == [asking]
    for other in others:
        for file in (copy / "sites" / other).rglob("*.*"):
            file.write_bytes(b"spoiled")
    for file in ("metrics.jsonl", "metrics.parquet", "log.txt", "partition.json"):
        (copy / file).unlink()
    assert audit(copy, "--site", others[0])[0] == 2
    assert written() == whole
    for other in others:
        shutil.rmtree(copy / "sites" / other)
    assert written() == whole
    assert not any((copy / "sites" / other).exists() for other in others)
    assert (copy / "sites" / asking / "ledger.jsonl").read_bytes() == (
        made / "run" / "sites" / asking / "ledger.jsonl"
    ).read_bytes()


def test_what_sites_tell_each_other_is_in_their_ledgers_once(audit, made, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(made / "secret", copy)
    one, two, three = vitrail.load(copy).sites

    def lines(site):
        raw = (copy / "sites" / site / "ledger.jsonl").read_text().splitlines()
        return [line for line in map(json.loads, raw) if line["kind"] == "audit"]

    before = len(lines(one))
    assert audit(copy, "--site", one, "--site", two)[0] == 0
    assert audit(copy, "--site", two, "--site", one)[0] == 0
    for site in (one, two):
        (line,) = lines(site)
        assert line["guarantee"].startswith("empirical") and line["classes"] == 3
        assert set(FIGURES) <= set(line["figures"]) and line["bytes"] > 0
    assert len(lines(three)) == before


def test_sites_may_be_audited_one_after_the_other(audit, made, tmp_path):
    """They tell means in a first round and histograms in a second; the last sees what all do."""
    copy = tmp_path / "copy"
    shutil.copytree(made / "untold", copy)
    one, two, three = vitrail.load(copy).sites
    for site in (one, two, three):
        code, _, err = audit(copy, "--site", site)
        assert code == 2 and "no other site" in err and err.startswith("vitrail: ")
    assert audit(copy, "--site", one)[0] == 0 and audit(copy, "--site", two)[0] == 0
    assert audit(copy, "--site", three, "--json", "a.json")[0] == 0
    assert audit("run", "--site", three, "--json", "b.json")[0] == 0
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    for site in (one, two, three):
        raw = (copy / "sites" / site / "ledger.jsonl").read_text().splitlines()
        kinds = [json.loads(line)["kind"] for line in raw]
        assert kinds.count("audit summary") == 1 and "audit" not in kinds


def test_lent_models_leave_through_the_door_once(audit, made, tmp_path):
    """Afterwards a site can use them without looking into any other folder."""
    copy = tmp_path / "copy"
    shutil.copytree(made / "secret", copy)
    one, two, three = vitrail.load(copy).sites
    words = ("--site", one, "--lend", two, "--json", "a.json", "--force")
    assert audit(copy, *words)[0] == 0
    told = json.loads((tmp_path / "a.json").read_text())["sites"][0]["classes"]
    assert all({"local", "shared", two} == set(c["covered"]) == set(c["swapped"]) for c in told)
    raw = (copy / "sites" / two / "ledger.jsonl").read_text().splitlines()
    (line,) = [line for line in map(json.loads, raw) if line["kind"] == "local model"]
    size = sum(4 * math.prod(shape) for _, shape in line["tensors"])
    assert line["bytes"] == size > 0 and line["guarantee"].startswith("empirical")
    whole = (tmp_path / "a.json").read_bytes()
    for other in (two, three):
        shutil.rmtree(copy / "sites" / other)
    assert audit(copy, *words)[0] == 0
    assert (tmp_path / "a.json").read_bytes() == whole
    code, _, err = audit(copy, "--site", one, "--lend", "nowhere")
    assert code == 2 and "no site 'nowhere'" in err
    (file,) = (copy / "server" / "lent").iterdir()
    file.write_bytes(b"spoiled")
    code, _, err = audit(copy, *words)
    assert code == 2 and len(err.splitlines()) == 1


def test_a_run_obeys_an_audit_and_says_what_is_wrong_with_it(command, made, tmp_path):
    run = vitrail.load(made / "run")
    entry = {"class": run.classes[0], "score": 4.0, "verdict": "biased", "prototypes": [1]}
    told = {"sites": [{"site": run.sites[0], "classes": [entry]}]}
    write_json(tmp_path / "a.json", told)
    config = made / "run" / "config.toml"
    words = ("run", config, "--debias", "a.json", "--remedy", "weigh", "--quiet", "--out", "after")
    assert command(*words)[0] == 0
    stored = vitrail.load(tmp_path / "after").config.debias
    assert stored.remedies == ("weigh",) and stored.findings[0].prototypes == (1,)
    told["sites"][0]["site"] = "nowhere"
    write_json(tmp_path / "b.json", told)
    for words, wrong in (
        (("--debias", "b.json"), "no site 'nowhere'"),
        (("--debias", "absent.json"), "no file"),
        (("--debias", "a.json", "--remedy", "heal"), "no remedy 'heal'"),
        (("--remedy", "mask"), "needs an audit"),
    ):
        code, _, err = command("run", config, *words, "--out", "never")
        assert code == 2 and wrong in err and not (tmp_path / "never").exists()


def test_a_missing_local_model_is_trained_on_the_spot_and_is_the_same(audit, made, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(made / "run", copy)
    site = vitrail.load(copy).sites[0]
    file = copy / "sites" / site / "local.safetensors"
    kept, _ = read_tensors(file)
    file.unlink()
    assert audit(copy, "--site", site, "--json", "a.json")[0] == 0
    again, _ = read_tensors(file)
    assert kept.keys() == again.keys() and all(kept[n].equal(again[n]) for n in kept)
    assert audit("run", "--site", site, "--json", "b.json")[0] == 0
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--site", "nowhere"], "no site 'nowhere'"),
        (["--out", "there.html"], "--force"),
        (["--json", "there.html"], "--force"),
        (["--out", "a.pdf"], ".html"),
        (["--out", "a.html", "--json", "a.html"], "one name"),
        (["--out", "."], ".html"),
    ],
)
def test_a_mistake_is_one_sentence(audit, tmp_path, words, told):
    (tmp_path / "there.html").write_text("mine")
    code, out, err = audit("run", *words)
    assert code == 2 and told in err and not out and len(err.splitlines()) == 1
    assert err.startswith("vitrail: ")
    assert not list(tmp_path.glob("a.*")) and (tmp_path / "there.html").read_text() == "mine"


def test_runs_that_cannot_be_audited(audit, made, tmp_path, tiny_config):
    copy = tmp_path / "copy"
    shutil.copytree(made / "run", copy)
    (copy / "server" / "finished").unlink()
    code, _, err = audit(copy)
    assert code == 2 and "still going" in err and "resume" in err
    config = {**PROTO, "run": {"rounds": 1, "local_epochs": 1}}
    vitrail.run(tiny_config(run={"rounds": 1}), tmp_path / "box")
    assert audit(tmp_path / "box")[0] == 0  # a model without parts has no prototypes to name
    for name in ("local", "centralized"):
        method = {"name": name, "model": "protopnet"}
        vitrail.run(tiny_config(**{**config, "method": method}), tmp_path / name)
        code, _, err = audit(tmp_path / name)
        assert code == 2 and "no site teaches another" in err
    code, _, err = audit(tmp_path / "nothing")
    assert code == 2 and len(err.splitlines()) == 1


def test_images_that_changed_are_noticed(audit, made, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(made / "run", copy)
    config = (copy / "config.toml").read_text()
    at = config.index("seed = ", config.index("[data.aviary]"))
    (copy / "config.toml").write_text(config[:at] + "seed = 77" + config[config.index("\n", at) :])
    code, _, err = audit(copy)
    assert code == 2 and "changed" in err


def test_sites_with_one_class_are_listed_and_do_not_stop_the_rest(
    read_page, audit, tmp_path, tiny_config
):
    shards = {"kind": "shards", "shards": 1, "sites": 3, "minimum": 1}
    config = {**PROTO, "partition": shards, "run": {"rounds": 1, "local_epochs": 1}}
    vitrail.run(tiny_config(**config), tmp_path / "run")
    code, out, _ = audit(tmp_path / "run", "--out", "a.html", "--json", "a.json")
    assert code == 0 and "too few images" in out
    page = read_page(tmp_path / "a.html")
    assert "Not tested" in page.text


@pytest.mark.parametrize("name", ["myth-pm", "fedgrasp"])
def test_personal_models_and_subspaces_are_audited_too(
    read_page, audit, tmp_path, tiny_config, name
):
    config = {**PROTO, "method": {"name": name}, "run": {"rounds": 1, "local_epochs": 1}}
    run = vitrail.run(tiny_config(**config), tmp_path / "run")
    contrast_sites(run, load_run_federation(run), run.sites)
    site = run.sites[0]
    words = ("--site", site, "--out", "a.html", "--json", "a.json")
    assert audit(tmp_path / "run", *words)[0] == 0
    whole = "personal model" if name == "myth-pm" else "global model"
    assert f"shared model: the {whole}" in read_page(tmp_path / "a.html").text
    (told,) = json.loads((tmp_path / "a.json").read_text())["sites"]
    assert all(("subspace" in entry) == (name == "fedgrasp") for entry in told["classes"])
    assert len(told["classes"]) == 3


@pytest.fixture(scope="module")
def marked(tmp_path_factory, tiny_config):
    """A FedAvg run, without prototypes, in which one site's images of one class carry a mark."""
    changes = {
        "data": {"aviary": {"images": 480, "classes": 3, "seed": 7}},
        "partition": {"kind": "iid", "sites": 4},
        "bias": [{"kind": "patch", "sites": [1], "classes": [2], "size": 0.25}],
        "run": {"rounds": 1, "local_epochs": 1, "local_reference": True},
    }
    return vitrail.run(tiny_config(**changes), tmp_path_factory.mktemp("marked") / "run")


def test_a_run_without_prototypes_is_audited_and_the_page_says_what_the_evidence_is(
    read_page, audit, marked, tmp_path
):
    assert marked.config.method.name == "fedavg"
    code, out, _ = audit(marked.path, "--json", "a.json", "--out", "a.html")
    site, label = marked.sites[1], marked.classes[2]
    assert code == 0 and f"Bias found: {label} at {site}" in out
    entries = json.loads((tmp_path / "a.json").read_text())
    assert entries["origin"] == site and not entries["doubts"]
    assert all(
        not c["prototypes"] and not c["units"] for s in entries["sites"] for c in s["classes"]
    )
    page = read_page(tmp_path / "a.html").text
    assert NO_PARTS in page and "right before and after covering" in page


def test_the_federation_and_its_sites_give_the_same_verdicts(audit, marked, tmp_path):
    """One run, asked as a whole and site by site, with a site that is biased among them."""
    assert audit(marked.path, "--json", "all.json")[0] == 0
    whole = json.loads((tmp_path / "all.json").read_text())
    by_site = {entry["site"]: entry for entry in whole["sites"]}
    assert any(c["verdict"] == "biased" for entry in whole["sites"] for c in entry["classes"])
    for site in marked.sites:
        assert audit(marked.path, "--site", site, "--json", f"{site}.json")[0] == 0
        alone = json.loads((tmp_path / f"{site}.json").read_text())
        (entry,) = alone["sites"]
        for name in ("class", "verdict", "p_value", "raw_p", "score", "effect", "limit", "reading"):
            values = [[c[name] for c in e["classes"]] for e in (entry, by_site[site])]
            assert values[0] == values[1], name
        assert entry["skipped"] == by_site[site]["skipped"]
        assert alone["doubts"] == whole["doubts"]
        assert alone["origin"] == (site if site == whole["origin"] else None)

"""Live pages without a browser: share-safe rules, decisions, downloads, names of runs."""

import json

import httpx
import pytest

import vitrail
from vitrail.audit.remedy_plan import apply_remedies
from vitrail.config import load
from vitrail.errors import RunError
from vitrail.live.catalog import Catalog
from vitrail.live.decide_page import apply_decisions, decide, read_decisions

PAGES = ("", "/ask", "/browse", "/audit", "/leaves", "/parts", "/state", "/metrics.json")


def get(served, path, **more):
    return httpx.get(served.base + path, headers=served.headers, timeout=60, **more)


def test_without_a_site_no_pixel_of_a_site_is_shown(serve_runs, hospital):
    served = serve_runs(hospital)
    for row in range(36):
        answer = get(served, "/run/runs.secret/image", params={"image": f"test-{row}"})
        assert answer.status_code == 400 and "image/png" not in answer.headers["content-type"]
        assert get(served, f"/run/runs.secret/answer.png?image=test-{row}").status_code == 400
    for path in PAGES:
        text = get(served, f"/run/runs.secret{path}").text
        assert "data:image/png" not in text and ".png" not in text.replace(
            "accuracy.png", ""
        ).replace("loss.png", "")
    assert "personal" not in get(served, "/run/runs.secret/ask").text


def test_a_site_sees_its_own_images_and_no_others(serve_runs, hospital):
    served = serve_runs(hospital, site="north")
    codes = [
        get(served, "/run/runs.secret/image", params={"image": f"test-{row}"}).status_code
        for row in range(36)
    ]
    assert 200 in codes[:18] and 200 not in codes[18:]
    assert get(served, "/run/runs.secret/ledger.json?site=south").status_code == 404
    assert get(served, "/run/runs.secret/ledger.json?site=north").status_code == 200
    for kind in ("personal", "local"):
        assert f">{kind}<" in get(served, "/run/runs.secret/ask").text


def test_every_page_and_download_of_every_run_answers(served):
    for name in ("runs.myth", "runs.fedavg"):
        for path in PAGES:
            answer = get(served, f"/run/{name}{path}")
            assert answer.status_code == 200, (name, path, answer.text[:300])
        for kind in ("svg", "png", "csv"):
            assert get(served, f"/run/{name}/figure/accuracy.{kind}").status_code == 200
        row = get(served, f"/run/{name}/ask").text.split('data-image="')[1].split('"')[0]
        for kind in ("json", "csv", "png"):
            assert get(served, f"/run/{name}/answer.{kind}?image={row}").status_code == 200


def test_the_matrix_opens_what_it_counts(served, live_runs):
    classes = vitrail.load(live_runs / "myth").classes
    total = 0
    for true in classes:
        for taken in classes:
            query = {"true": true, "taken": taken}
            page = get(served, "/run/runs.myth/browse", params=query).text
            total += int(page.split('id="count">')[1].split(" of ")[0])
    whole = get(served, "/run/runs.myth/browse").text.split('id="count">')[1]
    assert total == int(whole.split(" of ")[0])


def test_a_decision_is_what_a_remedy_obeys(live_runs, tmp_path):
    run = vitrail.load(live_runs / "myth")
    audit = json.loads((run.path / "audit.json").read_text())
    site, entry = audit["sites"][0]["site"], audit["sites"][0]["classes"][0]
    (tmp_path / "audit.json").write_text(json.dumps(audit))
    decision = {"site": site, "class": entry["class"], "verdict": "biased", "box": [1, 2, 3, 4],
                "note": "a marker", "by": "me", "at": "2026-01-01 10:00:00"}  # fmt: skip
    decide(tmp_path, {**decision, "verdict": "clear"})
    decide(tmp_path, decision)
    assert [d["verdict"] for d in read_decisions(tmp_path)] == ["clear", "biased"]
    loaded = apply_remedies(
        load(run.path / "config.toml", stored=True), tmp_path / "audit-decided.json", ["weigh"]
    )
    assert {(f.site, f.label) for f in loaded.config.debias.findings} >= {(site, entry["class"])}
    rejected = apply_decisions(audit, [{**decision, "verdict": "clear"}])
    assert rejected["sites"][0]["classes"][0]["verdict"] == "clear"
    assert audit["sites"][0]["classes"][0] == entry  # what was given stays as it was


def test_only_runs_have_names(live_runs, tmp_path):
    catalog = Catalog([live_runs])
    assert sorted(catalog.list_runs()) == ["runs.fedavg", "runs.myth"]
    assert sorted(Catalog([live_runs / "myth"]).list_runs()) == ["myth"]
    for name in ("", "..", "myth", str(live_runs / "myth"), "runs.myth/../fedavg"):
        assert catalog.find(name) is None
    with pytest.raises(RunError, match="no run lies here"):
        Catalog([tmp_path])
    with pytest.raises(RunError, match="no such folder"):
        Catalog([tmp_path / "x"])

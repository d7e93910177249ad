"""Before a run at a site: terms, policy, budget, every image with a tick box; then yes or no."""

import json
import re
import time

import pytest
import tomli_w

import vitrail
from vitrail.config import load
from vitrail.config.annotation_section import Annotation, read_annotations
from vitrail.errors import ConfigError, RunError
from vitrail.live.annotation_store import AnnotationStore
from vitrail.live.catalog import Catalog

from .test_malformed import make_client

PLAN = {
    "data": {"image_size": 16, "aviary": {"images": 60, "classes": 2, "seed": 7}},
    "partition": {"kind": "iid", "sites": 2},
    "model": {"backbone": "small-cnn", "width": 4},
    "method": {"name": "fedxds", "warmup": 1},
    "run": {"rounds": 3, "local_epochs": 1, "batch_size": 8, "device": "cpu"},
}


@pytest.fixture
def plan(tmp_path):
    """A simulation that is planned, of public images."""
    file = tmp_path / "sharing.toml"
    file.write_text(tomli_w.dumps(PLAN))
    return file


@pytest.fixture
def site(tmp_path, hospital):
    """A site's own file with a policy, and terms that wait for an answer."""
    from vitrail.config import parse
    from vitrail.flower.run_terms import make_terms, resolve_terms
    from vitrail.flower.site.site_config import SiteConfig

    rows = (hospital.parent / "list.csv").read_text().splitlines()
    own = [rows[0], *(row for row in rows[1:] if row.endswith("north"))]
    (hospital.parent / "north.csv").write_text("\n".join(own) + "\n")
    file = tmp_path / "north.toml"
    tree = {
        "site": {"name": "north", "folder": "at-north"},
        "data": {"source": "manifest", "path": str(hospital.parent / "north.csv")},
        "policy": {"rounds": 2},
    }
    file.write_text(tomli_w.dumps(tree))
    agreed = {"classes": ["a", "b"], "image_size": 16, "channels": 3}
    config = resolve_terms(parse({**PLAN, "data": agreed, "partition": {}})).config
    opened = SiteConfig.open(file)
    opened.propose("thorax", make_terms(config), ["a line"])
    return opened


def make_up(client, address):
    """Wait for the preview; returns the rows that have a tick box."""
    assert client.post(f"{address}/preview").status_code == 200
    return wait_for_rows(client, address)


def wait_for_rows(client, address):
    deadline = time.monotonic() + 120
    while "<form" not in (text := client.get(f"{address}/sharing").text):
        assert time.monotonic() < deadline and "note" not in text, text
        time.sleep(0.1)
    return re.findall(r'name="shown" value="(\d+)"', text)


def test_an_unticked_image_is_never_shared(plan, tmp_path):
    client = make_client(plan)
    page = client.get("/plan/sharing").text
    assert "fedxds" in page and "images/pixels" in page
    rows = make_up(client, "/plan/sharing")
    form = {"by": "the officer", "shown": rows, "share": rows[3:]}
    assert client.post("/plan/sharing/share", data=form).status_code == 303
    again = wait_for_rows(client, "/plan/sharing")
    assert sorted(again) == sorted(rows)  # withheld ones are there, without their tick
    text = client.get("/plan/sharing").text
    assert text.count(" checked") == len(rows) - 3 and "3 are withheld" in text
    file = tmp_path / "sharing.annotations.json"
    drawn = read_annotations(file)
    assert [one.use for one in drawn] == ["training"] * 3
    assert {one.by for one in drawn} == {"the officer"} and all(one.at for one in drawn)
    assert file.stat().st_mode & 0o077 == 0
    ticked = {"by": "the officer", "shown": rows, "share": rows[1:]}
    client.post("/plan/sharing/share", data=ticked)
    assert [one.image for one in read_annotations(file)] == [drawn[0].image]
    wait_for_rows(client, "/plan/sharing")
    loaded = load(plan)
    data = loaded.config.data.model_copy(update={"annotations": read_annotations(file)})
    run = vitrail.run(loaded.config.model_copy(update={"data": data}), tmp_path / "out")
    shared = {r["site"]: r["shared_images"] for r in run.rows() if r.get("shared_images")}
    assert shared[drawn[0].site] == len(rows) - 1


def test_a_region_is_drawn_and_taken_away(plan):
    client = make_client(plan)
    page = client.get("/plan/sharing/annotate").text
    row = page.split('name="row" value="')[1].split('"')[0]
    form = {"row": row, "left": "0", "top": "0", "right": "8", "bottom": "4", "about": "image",
            "use": "nothing", "by": "me", "note": "<script>alert(1)</script>"}  # fmt: skip
    before = client.get(f"/plan/sharing/square?row={row}").content
    assert client.post("/plan/sharing/annotations", data=form).status_code == 303
    kept = client.get("/plan/sharing/annotations.json").json()["annotations"]
    assert kept[0]["box"] == [0.0, 0.0, 0.5, 0.25] and kept[0]["by"] == "me"
    page = client.get(f"/plan/sharing/annotate?row={row}").text
    assert "<script>alert" not in page and "never counts" in page
    assert client.get(f"/plan/sharing/square?row={row}").content != before  # as training sees it
    fields = dict(re.findall(r'type="hidden" name="(number|digest)" value="([^"]*)"', page))
    fields["digest"] = fields["digest"].replace("&quot;", '"').replace("&lt;", "<")
    fields["digest"] = fields["digest"].replace("&gt;", ">")
    assert client.post("/plan/sharing/unannotate", data=fields).status_code == 303
    assert client.get("/plan/sharing/annotations.json").json()["annotations"] == []
    again = client.post("/plan/sharing/unannotate", data=fields)
    assert again.status_code == 400 and "no longer there" in again.text


@pytest.mark.parametrize("change", [
    {"left": ""}, {"left": "x"}, {"right": "-5", "left": "-9"}, {"use": "sharing"},
    {"about": "me"}, {"by": " "}, {"row": "99999"}, {"row": "-1"},
    {"left": "0", "top": "0", "right": "999", "bottom": "999"},
])  # fmt: skip
def test_what_makes_no_sense_is_not_kept(plan, tmp_path, change):
    client = make_client(plan)
    form = {"row": "0", "left": "1", "top": "1", "right": "5", "bottom": "5", "about": "site",
            "use": "nothing", "by": "me", **change}  # fmt: skip
    answer = client.post("/plan/sharing/annotations", data=form)
    assert answer.status_code == 400 and "alert" in answer.text
    assert not (tmp_path / "sharing.annotations.json").exists()


def test_a_site_sees_terms_policy_and_budget_and_says_no(site):
    client = make_client(site.file)
    assert "1 waiting" in client.get("/").text
    page = client.get("/plan/north").text
    for words in ("BESIDE THE MODEL LEAVE", "policy.rounds", "3 rounds are more than 2",
                  "nothing is spent", "Your answer to thorax"):  # fmt: skip
        assert words in page, words
    digest = site.proposals()[0].digest
    stale = {"run": "thorax", "digest": "0" * 64, "yes": "1", "by": "me"}
    assert client.post("/plan/north/consent", data=stale).status_code == 400
    answer = client.post("/plan/north/consent", data={**stale, "digest": digest, "yes": "0"})
    assert answer.status_code == 303
    assert site.read_answer("thorax", digest) is False
    line = json.loads((site.folder / "consents.jsonl").read_text())
    assert line["by"] == "me" and line["yes"] is False and line["at"]
    assert client.get("/plan/north").status_code == 400  # nothing waits any more
    assert client.get("/").status_code == 200


def test_what_a_site_unticks_is_what_its_runs_read(site):
    client = make_client(site.file)
    rows = make_up(client, "/plan/north")
    client.post("/plan/north/share", data={"by": "me", "shown": rows, "share": rows[1:]})
    wait_for_rows(client, "/plan/north")
    assert [one.site for one in site.read_annotations()] == ["north"]
    digest = site.proposals()[0].digest
    yes = {"run": "thorax", "digest": digest, "yes": "1", "by": "me"}
    assert client.post("/plan/north/consent", data=yes).status_code == 303
    assert site.read_answer("thorax", digest) is True


def test_images_that_are_not_public_need_a_site(hospital, tmp_path):
    stored = load(hospital / "secret" / "config.toml", stored=True).config
    tree = stored.model_dump(mode="json", exclude_none=True)
    file = tmp_path / "secret.toml"
    file.write_text(tomli_w.dumps(tree))
    client = make_client(file)
    for path in ("annotate", "square", "annotations.json"):
        answer = client.get(f"/plan/secret/{path}")
        assert answer.status_code == 400 and "--site" in answer.text
    north = make_client(file, "north")
    codes = [north.get(f"/plan/secret/square?row={row}").status_code for row in range(36)]
    assert set(codes[:18]) == {200} and set(codes[18:]) == {400}


def test_annotations_of_two_pages_do_not_take_each_other_away(tmp_path):
    store = AnnotationStore(tmp_path / "a.json")
    one, two = (Annotation(box=(0.0, 0.0, 0.5, v)) for v in (0.5, 0.25))
    store.add(one)
    store.add(two)
    with pytest.raises(ConfigError, match="no longer there"):
        store.remove(0, two)
    store.remove(0, one)
    assert store.read() == (two,)


def test_a_file_of_another_site_is_refused(site):
    with pytest.raises(RunError, match="not of"):
        Catalog([site.file], "south")
    assert Catalog([site.file]).viewer.site == "north"

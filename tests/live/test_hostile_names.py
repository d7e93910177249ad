"""Names and notes that bite, on every page: text stays text, whatever address shows it."""

import json
import shutil
from html.parser import HTMLParser
from urllib.parse import quote
from xml.etree import ElementTree

import numpy as np
import pytest
import tomli_w
from PIL import Image

import vitrail

from .conftest import make_manifest_config
from .test_before_a_run import PLAN, make_up
from .test_malformed import list_routes, make_client

BITES = (
    "<img src=x onerror=alert(1)>",
    "\"'><svg onload=alert(1)>",
    "javascript:alert(1)",
    "' onfocus=alert(1) autofocus='",
)
NOTE = "</textarea></template><script>alert(1)</script>" + "".join(BITES)
QUERY = ("row", "terms", "page", "image", "class", "model", "show", "true", "site", "use", "other")


class Watchdog(HTMLParser):
    """Collects what a browser would run: foreign scripts, handlers, links that are code."""

    def __init__(self):
        super().__init__()
        self.bitten = []

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            text = (value or "").strip().casefold()
            if name.startswith("on") or name in ("srcdoc", "autofocus", "formaction"):
                self.bitten.append((tag, name, value))
            if name in ("href", "src", "action", "xlink:href", "data-post", "data-live") and not (
                text.startswith(("/", "?", "#", "data:image/png;base64,")) or text == "data:,"
            ):
                self.bitten.append((tag, name, value))
        is_ours = dict(attributes).get("src") == "/assets/live.js"
        if tag in ("script", "iframe", "object", "embed", "base") and not is_ours:
            self.bitten.append((tag, attributes))


def check_answer(answer, where):
    kind = answer.headers.get("content-type", "")
    if "html" in kind:
        dog = Watchdog()
        dog.feed(answer.text)
        assert dog.bitten == [], (where, dog.bitten[:3])
    elif "svg" in kind:
        for one in ElementTree.fromstring(answer.text).iter():
            assert not one.tag.endswith(("script", "foreignObject")), where
            assert not any(name.startswith("on") for name in one.attrib), where
    assert answer.headers["x-content-type-options"] == "nosniff", where
    assert "script-src 'self'" in answer.headers["content-security-policy"], where


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A run and a plan of it in which every name bites."""
    folder = tmp_path_factory.mktemp("bites") / BITES[1].replace("/", "")
    folder.mkdir()
    draw, lines = np.random.default_rng(0), ["image,label,site"]
    for n in range(36):
        name = f"{n}{BITES[n % 4]}.png"
        Image.fromarray(draw.integers(0, 256, (16, 16, 3), np.uint8)).save(folder / name)
        cells = (name, BITES[n % 2], (BITES[0], BITES[3])[n // 18])
        lines.append(",".join('"' + cell.replace('"', '""') + '"' for cell in cells))
    (folder / "list.csv").write_text("\n".join(lines) + "\n")
    config = make_manifest_config(folder / "list.csv")
    run = vitrail.run(config, folder / "runs" / BITES[0])
    entry = {"class": BITES[0], "verdict": "biased", "score": 4.2, "p_value": 0.01,
             "box": [1, 2, 5, 6], "where": NOTE, "action": NOTE}  # fmt: skip
    sites = [{"site": name, "seen_by": [], "alarm": {}, "skipped": [NOTE], "classes": [entry]}
             for name in run.sites]  # fmt: skip
    audit = {"origin": None, "level": 0.05, "null": {}, "config": None, "sites": sites}
    (run.path / "audit.json").write_text(json.dumps(audit))
    shares = {"method": PLAN["method"], "model": PLAN["model"], "run": PLAN["run"]}
    (folder / f"{BITES[0]}.toml").write_text(tomli_w.dumps({**config, **shares}))
    return folder


def test_names_and_notes_stay_text_at_every_address(hostile):
    plan = hostile / f"{BITES[0]}.toml"
    client = make_client((hostile / "runs", plan), BITES[0])
    run, draft = f"/run/{quote(f'runs.{BITES[0]}', safe='')}", f"/plan/{quote(BITES[0], safe='')}"
    assert client.get(run).status_code == client.get(draft).status_code == 200
    edges = {"left": "1", "top": "1", "right": "5", "bottom": "5", "by": BITES[0], "note": NOTE}
    decision = {**edges, "site": BITES[0], "class": BITES[0], "verdict": "biased"}
    assert client.post(f"{run}/decide", data=decision).status_code == 303
    for base in (run, draft):
        row = client.get(f"{base}/annotate").text.split('name="row" value="')[1].split('"')[0]
        drawn = {**edges, "row": row, "about": "image", "use": "nothing"}
        assert client.post(f"{base}/annotations", data=drawn).status_code == 303
    rows = make_up(client, draft)
    form = {"by": BITES[3], "shown": rows, "share": rows[1:]}
    assert client.post(f"{draft}/share", data=form).status_code == 303
    shown = 0
    queries = [{}, *(dict.fromkeys(QUERY, bite) for bite in (*BITES, NOTE))]
    test_row = client.get(f"{run}/ask").text.split('data-image="')[1].split('"')[0]
    queries += [{"image": test_row, "other": test_row, "class": BITES[0]}]
    for path, method in list_routes(client):
        if method == "POST":
            continue
        base = draft if path.startswith("/plan") else run
        for kind in ("svg", "csv", "json") if "{kind}" in path else ("",):
            where = path.replace("/plan/{run}", base).replace("/run/{run}", base)
            where = where.replace("{name}", "accuracy").replace("{kind}", kind)
            for query in queries:
                answer = client.get(where, params=query)
                assert answer.status_code < 500, (where, answer.text[:200])
                check_answer(answer, (where, query))
                shown += "alert(1)" in answer.text and answer.status_code == 200
    assert shown > 20  # they are there, as text
    posts = (f"{run}/decide", f"{run}/annotations", f"{draft}/share", f"{draft}/consent",
             f"{draft}/unannotate", f"{run}/stop")  # fmt: skip
    for where in posts:
        keys = ("site", "class", "verdict", "row", "left", "use", "about", "run", "digest", "by")
        check_answer(client.post(where, data=dict.fromkeys(keys, NOTE)), where)


def test_terms_that_bite_stay_text_before_a_run(hostile, tmp_path):
    from vitrail.config import parse
    from vitrail.flower.run_terms import make_terms, resolve_terms
    from vitrail.flower.site.site_config import SiteConfig

    file = tmp_path / "north.toml"
    rows = (hostile / "list.csv").read_text().splitlines()
    (hostile / "own.csv").write_text("\n".join(rows[:19]) + "\n")
    data = {"source": "manifest", "path": str(hostile / "own.csv")}
    file.write_text(tomli_w.dumps({"site": {"name": "north", "folder": "at-north"}, "data": data}))
    agreed = {"classes": list(BITES[:2]), "image_size": 16, "channels": 3}
    config = resolve_terms(parse({**PLAN, "data": agreed, "partition": {}})).config
    SiteConfig.open(file).propose("thorax", make_terms(config), [NOTE])
    client = make_client(file)
    for where in ("/", "/plan/north", "/plan/north/annotate", "/plan/north/sharing"):
        answer = client.get(where)
        assert answer.status_code == 200, answer.text[:300]
        check_answer(answer, where)


def test_a_coordinator_on_flower_is_watched_with_names_that_bite(hostile, tmp_path):
    copied = tmp_path / "runs" / BITES[0]
    shutil.copytree(hostile / "runs" / BITES[0], copied)
    (copied / "audit.json").unlink()
    (copied / "server" / "flower.json").write_text(json.dumps({"run": NOTE}))
    (copied / "server" / "command.json").write_text(json.dumps(["flower", "server", NOTE]))
    client = make_client(tmp_path / "runs")
    run = f"/run/{quote(f'runs.{BITES[0]}', safe='')}"
    assert "alert(1)" in client.get(f"{run}/state").text  # a site's name, in the legend
    for path, method in list_routes(client):
        if method == "GET" and not path.startswith("/plan"):
            where = path.replace("/run/{run}", run).replace("{name}", "loss")
            answer = client.get(where.replace("{kind}", "svg"))
            assert answer.status_code < 500, (where, answer.text[:200])
            check_answer(answer, where)

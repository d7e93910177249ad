// The live pages: state lives in the address, fragments come from the server, escaped there.
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const status = $("status");
  const say = (text) => { if (status) status.textContent = text; };

  // Day and night, as in the report.
  const themes = ["auto", "light", "dark"];
  const theme = document.querySelector(".theme");
  if (theme) {
    const set = (name) => {
      if (name === "auto") delete document.documentElement.dataset.theme;
      else document.documentElement.dataset.theme = name;
      theme.textContent = `Colors: ${name}`;
      theme.dataset.now = name;
      try { localStorage.setItem("vitrail-theme", name); } catch { /* forgotten */ }
    };
    let stored = "auto";
    try { stored = localStorage.getItem("vitrail-theme") ?? "auto"; } catch { /* as above */ }
    set(themes.includes(stored) ? stored : "auto");
    theme.hidden = false;
    theme.addEventListener("click", () =>
      set(themes[(themes.indexOf(theme.dataset.now) + 1) % themes.length]));
  }

  // Put a fragment in place without taking the focus away or closing what is open.
  const place = (target, html) => {
    const focused = document.activeElement && target.contains(document.activeElement)
      ? document.activeElement.id : "";
    const open = all("details", target).map((d) => d.open);
    target.innerHTML = html;
    all("details", target).forEach((d, i) => { d.open = open[i] ?? false; });
    if (focused && $(focused)) $(focused).focus();
    else if (focused) { target.tabIndex = -1; target.focus(); }
  };

  // Parts that follow a run.
  for (const part of all("[data-live]")) {
    let last = part.innerHTML;
    const follow = async () => {
      try {
        const answer = await fetch(part.dataset.live, { cache: "no-store" });
        if (answer.status === 403 || answer.status === 401)
          say("The application was started anew: open the address that it printed.");
        else if (answer.ok) {
          const html = await answer.text();
          if (html !== last) { last = html; place(part, html); }
          say("");
        }
      } catch { say("No connection: trying again."); }
      if (part.dataset.until && part.querySelector(part.dataset.until)) return;
      setTimeout(follow, document.hidden ? 5000 : 1000);
    };
    setTimeout(follow, 1000);
  }
  document.addEventListener("click", async (event) => {
    const button = event.target instanceof Element ? event.target.closest("[data-post]") : null;
    if (!button) return;
    button.disabled = true;
    const answer = await fetch(button.dataset.post, { method: "POST" });
    const text = await answer.text();
    if (answer.ok) {
      const target = button.closest("[data-live]");
      if (target) place(target, text); else location.reload();
    } else { say(new DOMParser().parseFromString(text, "text/html").body.textContent); button.disabled = false; }
  });

  // Tables.
  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element ? event.target.closest(".sort") : null;
    if (!button) return;
    const head = button.closest("th"), body = head.closest("table").tBodies[0];
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const value = (row) => row.cells[head.cellIndex].dataset.sort ?? row.cells[head.cellIndex].textContent;
    const order = (a, b) => value(a).localeCompare(value(b), "en", { numeric: true });
    body.append(...[...body.rows].sort((a, b) => (down ? order(b, a) : order(a, b))));
  });

  // A region drawn over a picture fills in the edges of its form.
  for (const area of all("[data-draw]")) {
    const form = area.closest("form") ?? area.closest("section").querySelector("form");
    const [wide, high] = area.dataset.draw.split(",").map(Number);
    const edges = ["left", "top", "right", "bottom"].map((name) => form.elements[name]);
    const mark = document.createElement("div");
    mark.className = "drawing";
    let from = null;
    const at = (event) => {
      const r = area.getBoundingClientRect();
      return [Math.min(1, Math.max(0, (event.clientX - r.left) / r.width)),
              Math.min(1, Math.max(0, (event.clientY - r.top) / r.height))];
    };
    const show = () => {
      const v = edges.map((e) => e.value === "" ? NaN : Number(e.value));
      mark.hidden = !(v[0] < v[2] && v[1] < v[3]);
      if (mark.hidden) return;
      Object.assign(mark.style, { left: `${100 * v[0] / wide}%`, top: `${100 * v[1] / high}%`,
        width: `${100 * (v[2] - v[0]) / wide}%`, height: `${100 * (v[3] - v[1]) / high}%` });
    };
    const fill = (event) => {
      const to = at(event), round = (v) => Math.round(v * 10) / 10;
      edges[0].value = round(wide * Math.min(from[0], to[0]));
      edges[2].value = round(wide * Math.max(from[0], to[0]));
      edges[1].value = round(high * Math.min(from[1], to[1]));
      edges[3].value = round(high * Math.max(from[1], to[1]));
      show();
    };
    area.append(mark);
    for (const edge of edges) edge.addEventListener("input", show);
    area.addEventListener("pointerdown", (event) => {
      from = at(event); area.setPointerCapture(event.pointerId); event.preventDefault();
    });
    area.addEventListener("pointermove", (event) => { if (from) fill(event); });
    area.addEventListener("pointerup", (event) => { if (from) { fill(event); from = null; } });
    area.addEventListener("pointercancel", () => { from = null; });
    show();
  }

  // Ask.
  const stage = $("stage");
  if (!stage) return;
  const run = encodeURIComponent(stage.dataset.run);
  const photo = $("photo"), overlay = $("overlay"), answerBox = $("answer"), regions = $("regions");
  const query = new URLSearchParams(location.search);
  const state = {
    image: query.get("image") ?? stage.dataset.image,
    cover: (query.get("cover") ?? "").split(";").filter(Boolean).map((b) => b.split(",").map(Number)),
    how: query.get("how") ?? $("how").value,
    paste: query.get("paste") ?? "",
    without: (query.get("without") ?? "").split(";").filter(Boolean),
    pull: query.get("pull") ?? "1",
    model: query.get("model") ?? $("model").value,
    classes: query.getAll("class"),
    other: query.get("other") ?? "",
  };
  let size = [1, 1];
  const toQuery = () => {
    const q = new URLSearchParams();
    if (state.image) q.set("image", state.image);
    if (state.cover.length) { q.set("cover", state.cover.map((b) => b.join(",")).join(";")); q.set("how", state.how); }
    if (state.paste) q.set("paste", state.paste);
    if (state.without.length) q.set("without", state.without.join(";"));
    if (Number(state.pull) !== 1) q.set("pull", state.pull);
    if (state.model) q.set("model", state.model);
    for (const name of state.classes) q.append("class", name);
    if (state.other) q.set("other", state.other);
    return q;
  };
  let controller = null;
  const ask = async () => {
    const q = toQuery();
    history.replaceState(null, "", `?${q}`);
    showRegions();
    if (!state.image) return;
    controller?.abort();
    controller = new AbortController();
    answerBox.setAttribute("aria-busy", "true");
    try {
      const answer = await fetch(`/run/${run}/answer?${q}`, { signal: controller.signal });
      const html = await answer.text();
      place(answerBox, html);
      const drawn = answerBox.querySelector("template[data-overlay]");
      overlay.replaceChildren(...(drawn ? [drawn.content.cloneNode(true)] : []));
      if (answerBox.querySelector("[data-again]")) setTimeout(ask, 1500); // it is being calibrated
      answerBox.setAttribute("aria-busy", "false");
      document.documentElement.dataset.asked = String(Number(document.documentElement.dataset.asked ?? 0) + 1);
    } catch (error) {
      if (error.name !== "AbortError") { say("No connection."); answerBox.setAttribute("aria-busy", "false"); }
    }
  };
  const show = async () => {
    if (!state.image) return;
    const answer = await fetch(`/run/${run}/image?image=${encodeURIComponent(state.image)}`);
    if (!answer.ok) {
      place(answerBox, await answer.text());
      return;
    }
    size = (answer.headers.get("x-size") ?? "1,1").split(",").map(Number);
    photo.src = URL.createObjectURL(await answer.blob());
    photo.onload = () => URL.revokeObjectURL(photo.src);
    await ask();
  };

  // Regions as numbers, so that a keyboard and a screen reader can do what a mouse does.
  const showRegions = () => {
    if (regions.contains(document.activeElement) && document.activeElement.tagName === "INPUT" &&
        regions.children.length === state.cover.length) return;
    regions.replaceChildren(...state.cover.map((box, at) => {
      const item = document.createElement("li");
      item.append(`Region ${at + 1}: `);
      ["left", "top", "right", "bottom"].forEach((name, i) => {
        const field = document.createElement("input");
        field.type = "number";
        field.value = box[i];
        field.setAttribute("aria-label", `Region ${at + 1}, ${name}`);
        field.addEventListener("change", () => {
          const next = [...box]; next[i] = Number(field.value);
          if (next[0] < next[2] && next[1] < next[3]) { state.cover[at] = next; box[i] = next[i]; ask(); }
        });
        item.append(field);
      });
      const remove = document.createElement("button");
      remove.type = "button"; remove.className = "small"; remove.textContent = "Remove";
      remove.setAttribute("aria-label", `Remove region ${at + 1}`);
      remove.addEventListener("click", () => { state.cover.splice(at, 1); $("add").focus(); ask(); });
      item.append(remove);
      return item;
    }));
  };

  // Paint with a pointer.
  let start = null, mark = null;
  const where = (event) => {
    const r = photo.getBoundingClientRect();
    const x = Math.min(1, Math.max(0, (event.clientX - r.left) / r.width));
    const y = Math.min(1, Math.max(0, (event.clientY - r.top) / r.height));
    return [x, y];
  };
  const sketch = (a, b) => {
    const [x0, x1] = [a[0], b[0]].sort((p, q) => p - q), [y0, y1] = [a[1], b[1]].sort((p, q) => p - q);
    return [x0, y0, x1, y1];
  };
  stage.addEventListener("pointerdown", (event) => {
    if (!photo.naturalWidth) return;
    start = where(event);
    mark = document.createElement("div");
    mark.className = "drawing";
    stage.append(mark);
    stage.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  stage.addEventListener("pointermove", (event) => {
    if (!start) return;
    const [x0, y0, x1, y1] = sketch(start, where(event));
    Object.assign(mark.style, { left: `${100 * x0}%`, top: `${100 * y0}%`,
      width: `${100 * (x1 - x0)}%`, height: `${100 * (y1 - y0)}%` });
  });
  const finish = (event) => {
    if (!start) return;
    const [x0, y0, x1, y1] = sketch(start, where(event));
    start = null;
    mark.remove();
    const box = [x0 * size[0], y0 * size[1], x1 * size[0], y1 * size[1]].map(Math.round);
    if (box[2] - box[0] >= 2 && box[3] - box[1] >= 2) { state.cover.push(box); ask(); }
  };
  stage.addEventListener("pointerup", finish);
  stage.addEventListener("pointercancel", finish);

  // Files.
  const upload = async (file) => {
    say(`Reading ${file.name}`);
    const answer = await fetch("/upload", { method: "POST", body: file,
      headers: { "x-name": encodeURIComponent(file.name).slice(0, 120), "content-type": "application/octet-stream" } });
    if (!answer.ok) {
      say(new DOMParser().parseFromString(await answer.text(), "text/html").body.textContent);
      return "";
    }
    say("");
    return (await answer.json()).image;
  };
  const begin = async (file) => {
    const image = await upload(file);
    if (image) { Object.assign(state, { image, cover: [], without: [] }); await show(); }
  };
  stage.addEventListener("dragover", (event) => { event.preventDefault(); stage.classList.add("drop"); });
  stage.addEventListener("dragleave", () => stage.classList.remove("drop"));
  stage.addEventListener("drop", (event) => {
    event.preventDefault();
    stage.classList.remove("drop");
    if (event.dataTransfer.files.length) begin(event.dataTransfer.files[0]);
  });
  $("file").addEventListener("change", (event) => event.target.files.length && begin(event.target.files[0]));
  $("paste").addEventListener("change", async (event) => {
    if (event.target.files.length) { state.paste = await upload(event.target.files[0]); ask(); }
  });
  $("other").addEventListener("change", async (event) => {
    if (event.target.files.length) { state.other = await upload(event.target.files[0]); ask(); }
  });

  // Controls.
  const toggle = () => { $("paste-row").hidden = state.how !== "paste"; };
  $("how").addEventListener("change", (event) => { state.how = event.target.value; toggle(); ask(); });
  $("model").addEventListener("change", (event) => { state.model = event.target.value; ask(); });
  $("pull").addEventListener("input", (event) => {
    state.pull = event.target.value; $("pull-value").textContent = state.pull; ask();
  });
  $("add").addEventListener("click", () => {
    const [w, h] = size;
    state.cover.push([0.35 * w, 0.35 * h, 0.65 * w, 0.65 * h].map(Math.round));
    ask();
  });
  $("reset").addEventListener("click", () => {
    Object.assign(state, { cover: [], without: [], pull: "1", classes: [], other: "", paste: "" });
    $("pull").value = "1"; $("pull-value").textContent = "1";
    ask();
  });
  answerBox.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const { off, on, why } = button.dataset;
    if (off !== undefined && !state.without.includes(off)) state.without.push(off);
    else if (on !== undefined) state.without = state.without.filter((item) => item !== on);
    else if (why !== undefined)
      state.classes = state.classes.includes(why) ? state.classes.filter((c) => c !== why) : [...state.classes, why];
    else return;
    ask();
  });
  $("controls").addEventListener("submit", (event) => event.preventDefault());
  toggle();
  show();
})();

// What the report does beyond being read: choose, sort, hover, enlarge, day and night.
// No network, no eval; without this file everything is shown and nothing is lost.
"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // Day and night: the system's choice until a person makes one.
  const themes = ["auto", "light", "dark"];
  const theme = document.querySelector(".theme");
  const setTheme = (name) => {
    if (name === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    theme.textContent = `Colors: ${name}`;
    theme.dataset.now = name;
    try { localStorage.setItem("vitrail-theme", name); } catch { /* no storage: forgotten */ }
  };
  let stored = "auto";
  try { stored = localStorage.getItem("vitrail-theme") ?? "auto"; } catch { /* as above */ }
  setTheme(themes.includes(stored) ? stored : "auto");
  theme.hidden = false;
  theme.addEventListener("click", () =>
    setTheme(themes[(themes.indexOf(theme.dataset.now) + 1) % themes.length]));

  // One of several views.
  const choose = (select) => {
    for (const view of all(`[data-group="${CSS.escape(select.dataset.choose)}"]`))
      view.hidden = view.dataset.key !== select.value;
  };
  for (const select of all("select[data-choose]")) {
    choose(select);
    select.addEventListener("change", () => choose(select));
  }

  // One line among many.
  for (const select of all("select[data-pick]"))
    select.addEventListener("change", () => {
      for (const shape of all("[data-series]", select.closest("figure")))
        shape.classList.toggle("dim", select.value !== "" && shape.dataset.series !== select.value);
    });

  // Tables: numbers by value, words by the alphabet, what is missing last.
  const value = (row, at) => {
    const cell = row.cells[at];
    return cell.dataset.sort === undefined ? cell.textContent.trim() : Number(cell.dataset.sort);
  };
  const before = (a, b) => {
    const empty = (x) => x === "\u2013" || x === "";
    if (empty(a) || empty(b)) return [empty(a) - empty(b), true];
    if (typeof a === "number" && typeof b === "number") return [a - b, false];
    return [String(a).localeCompare(String(b), "en", { numeric: true }), false];
  };
  for (const button of all(".sort"))
    button.addEventListener("click", () => {
      const head = button.closest("th"), body = head.closest("table").tBodies[0];
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...body.rows].sort((x, y) => {
        const [order, fixed] = before(value(x, head.cellIndex), value(y, head.cellIndex));
        return down && !fixed ? -order : order;
      });
      body.append(...rows);
    });

  // What a shape says when it is pointed at.
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  tip.setAttribute("aria-hidden", "true");
  document.body.append(tip);
  document.addEventListener("pointermove", (event) => {
    const shape = event.target instanceof Element ? event.target.closest("[data-tip]") : null;
    tip.hidden = shape === null;
    if (shape === null) return;
    tip.textContent = shape.dataset.tip;
    const place = tip.getBoundingClientRect();
    const x = Math.min(event.clientX + 14, window.innerWidth - place.width - 8);
    const y = event.clientY + 18 + place.height > window.innerHeight
      ? event.clientY - place.height - 12 : event.clientY + 18;
    tip.style.transform = `translate(${Math.max(4, x)}px, ${y}px)`;
  });

  // A figure as large as the screen.
  const dialog = document.createElement("dialog");
  dialog.setAttribute("aria-label", "Enlarged figure");
  const close = document.createElement("button");
  close.type = "button";
  close.className = "close";
  close.textContent = "Close";
  close.addEventListener("click", () => dialog.close());
  document.body.append(dialog);
  const enlarge = (drawn) => {
    dialog.replaceChildren(close, drawn.cloneNode(true));
    dialog.append(tip);
    dialog.showModal();
  };
  dialog.addEventListener("close", () => document.body.append(tip));
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  for (const button of all(".enlarge"))
    button.addEventListener("click", () =>
      enlarge(button.closest("figure").querySelector(".drawn")));
  for (const button of all("button.zoom"))
    button.addEventListener("click", () => enlarge(button.firstElementChild));

  // Where the reader is.
  const links = new Map(all("nav a").map((link) => [link.hash.slice(1), link]));
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) {
      for (const link of links.values()) link.removeAttribute("aria-current");
      links.get(entry.target.id)?.setAttribute("aria-current", "true");
    }
  }, { rootMargin: "-10% 0px -80% 0px" });
  for (const section of all("main section")) seen.observe(section);
})();

// A part of a chart, larger: by buttons, keys, or a rectangle drawn with the mouse.
// What lies inside the axes is scaled; words and signs keep their size; ticks are made anew.
"use strict";
(() => {
  const MOST = 16, WHOLE = [0, 0, 1, 1];  // a view is x0, y0, x1, y1 as shares of the plot
  const all = (selector, root) => [...root.querySelectorAll(selector)];
  const number = (shape, ...names) => Number(names.map((n) => shape.getAttribute(n)).find(Boolean));
  const attributes = (shape, values) => {
    for (const [name, value] of Object.entries(values)) shape.setAttribute(name, value);
    return shape;
  };
  const make = (name, values) =>
    attributes(document.createElementNS("http://www.w3.org/2000/svg", name), values);
  const isWhole = (view) => view.every((side, at) => Math.abs(side - WHOLE[at]) < 1e-6);

  // Round numbers between two values; rounds have no fractions.
  const steps = (low, high, most, whole) => {
    const raw = (high - low) / Math.max(1, most - 1), power = 10 ** Math.floor(Math.log10(raw));
    const step = Math.max(whole ? 1 : 0, [1, 2, 5, 10].find((f) => f * power >= raw) * power);
    const found = [];
    for (let i = Math.ceil(low / step); i * step <= high; i += 1) found.push(i * step);
    return found;
  };
  const written = (value, share, gap) => {
    const places = Math.max(0, -Math.floor(Math.log10(gap * (share ? 100 : 1)) + 1e-9));
    const text = (share ? 100 * value : value).toFixed(Math.min(6, places)).replace("-", "\u2212");
    return share ? `${text} %` : text;
  };

  class Chart {
    constructor(svg) {
      this.svg = svg;
      this.plot = JSON.parse(svg.dataset.plot);
      [this.left, this.top, this.right, this.low] = this.plot.box;
      this.wide = this.right - this.left;
      this.high = this.low - this.top;
      const inner = all('[data-zoom="area"], [data-zoom="point"]', svg);
      this.inside = make("svg", { x: this.left, y: this.top, width: this.wide, height: this.high,
        preserveAspectRatio: "none" });
      inner[0]?.before(this.inside);
      this.inside.append(...inner);
      this.base = new Map(all("[data-zoom]", svg).map((s) => [s, s.getAttribute("transform") ?? ""]));
      this.show(WHOLE);
    }

    // Places in the coordinates of the drawing.
    place(shape) {
      if (shape.tagName !== "path") return [number(shape, "x", "cx"), number(shape, "y", "cy")];
      const all = shape.getAttribute("d").match(/-?[\d.]+/g).map(Number);  // hidden ones have no box
      return [0, 1].map((odd) => {
        const sides = all.filter((_, at) => at % 2 === odd);
        return (Math.min(...sides) + Math.max(...sides)) / 2;
      });
    }

    show([a, b, c, d]) {
      const kx = 1 / (c - a), ky = 1 / (d - b), zoomed = !isWhole([a, b, c, d]);
      const u = this.left + a * this.wide, v = this.top + b * this.high;
      attributes(this.inside, { viewBox: `${u} ${v} ${this.wide / kx} ${this.high / ky}`,
        overflow: zoomed ? "hidden" : "visible" });
      this.svg.classList.toggle("zoomed", zoomed);
      for (const [shape, base] of this.base) {
        const kind = shape.dataset.zoom, k = { column: kx, row: ky }[kind] ?? Math.min(kx, ky);
        let seen = k >= Number(shape.dataset.above ?? 1) * (1 - 1e-9), moved = "";
        if (zoomed && kind !== "area") {
          const [x, y] = this.place(shape);
          const dx = this.left + (x - u) * kx - x, dy = this.top + (y - v) * ky - y;
          if (kind === "column") {
            moved = `translate(${dx} 0)`;
            seen &&= x + dx >= this.left && x + dx <= this.right;
          } else if (kind === "row") {
            moved = `translate(0 ${dy})`;
            seen &&= y + dy >= this.top && y + dy <= this.low;
          } else if (kind === "point")
            moved = `translate(${x} ${y}) scale(${1 / kx} ${1 / ky}) translate(${-x} ${-y})`;
          else seen = false;  // ticks, and what only the whole has
        }
        shape.style.display = seen ? "" : "none";
        if (moved || base) shape.setAttribute("transform", `${moved} ${base}`.trim());
        else shape.removeAttribute("transform");
      }
      for (const old of all(".fresh", this.svg)) old.remove();
      if (zoomed && this.plot.x) this.ticks([a, b, c, d]);
    }

    ticks([a, b, c, d]) {
      const { x: [x0, x1], y: [y0, y1], share } = this.plot;
      const axes = [
        ["x-tick", x0 + a * (x1 - x0), x0 + c * (x1 - x0), true, false],
        ["y-tick", y1 - d * (y1 - y0), y1 - b * (y1 - y0), false, share],
      ];
      for (const [kind, from, to, whole, percent] of axes) {
        const old = all(`[data-zoom="${kind}"]`, this.svg);
        const line = old.find((s) => s.tagName === "path"), text = old.find((s) => s.tagName === "text");
        if (!line || to <= from) continue;
        const found = steps(from, to, whole ? 6 : 5, whole), gap = found[1] - found[0] || to - from;
        for (const value of found) {
          const at = (value - from) / (to - from), across = whole ? this.wide * at : 0;
          const down = whole ? 0 : this.high * (1 - at);
          for (const shape of [line, text]) {
            const fresh = shape.cloneNode(true), [x, y] = this.place(shape);
            const dx = whole ? this.left + across - x : 0, dy = whole ? 0 : this.top + down - y;
            fresh.removeAttribute("data-zoom");
            fresh.classList.add("fresh");
            fresh.style.display = "";
            fresh.setAttribute("transform", `translate(${dx} ${dy})`);
            if (shape === text) fresh.textContent = written(value, percent, gap);
            this.inside.before(fresh);
          }
        }
      }
    }

    // The heights of the points between two sides, with a little room: what a view should hold.
    fitted(a, c) {
      const points = all('circle[data-zoom="point"]', this.inside).map((s) => this.place(s))
        .filter(([x]) => x >= this.left + a * this.wide - 1 && x <= this.left + c * this.wide + 1)
        .map(([, y]) => (y - this.top) / this.high);
      if (!this.plot.x || !points.length) return null;
      const low = Math.min(...points), high = Math.max(...points);
      const room = Math.max(0.06 * (high - low), 0.01);
      return [Math.max(0, low - room), Math.min(1, high + room)];
    }

    // Where an event is, as shares of the plot.
    at(event) {
      const point = new DOMPoint(event.clientX, event.clientY)
        .matrixTransform(this.svg.getScreenCTM().inverse());
      return [(point.x - this.left) / this.wide, (point.y - this.top) / this.high];
    }
  }

  for (const bar of document.querySelectorAll(".zoomer")) {
    const charts = all("svg[data-plot]", bar.closest("figure")).map((svg) => new Chart(svg));
    const [closer, away, back] = all("button", bar), told = bar.querySelector("output");
    let view = WHOLE;
    const show = (next) => {
      view = next;
      for (const chart of charts) chart.show(view);
      away.disabled = back.disabled = isWhole(view);
      closer.disabled = view[2] - view[0] <= 1.01 / MOST;
      const size = 1 / (view[2] - view[0]);
      told.textContent = isWhole(view) ? "" :
        `${size.toFixed(size < 10 && size % 1 ? 1 : 0)}\u00d7; drag it, or press arrow keys, to move`;
    };
    // A view of some width and height around a place, inside the plot; lines get the height they need.
    const around = (x, y, wide, high) => {
      const [w, h] = [wide, high].map((side) => Math.min(1, Math.max(1 / MOST, side)));
      const a = Math.min(1 - w, Math.max(0, x - w / 2)), b = Math.min(1 - h, Math.max(0, y - h / 2));
      const fit = w < 1 ? charts[0].fitted(a, a + w) : null;
      if (fit) return [a, fit[0], a + w, fit[1]];
      return w < 1 || !charts[0].plot.x ? [a, b, a + w, b + h] : WHOLE;
    };
    const scale = (factor) => show(around((view[0] + view[2]) / 2, (view[1] + view[3]) / 2,
      (view[2] - view[0]) / factor, (view[3] - view[1]) / factor));
    const move = (dx, dy, fit = true) => {
      const w = view[2] - view[0], h = view[3] - view[1];
      const a = Math.min(1 - w, Math.max(0, view[0] + dx * w));
      const b = Math.min(1 - h, Math.max(0, view[1] + dy * h));
      show(fit && dx ? around(a + w / 2, b + h / 2, w, h) : [a, b, a + w, b + h]);
    };
    const keys = { "+": () => scale(2), "=": () => scale(2), "-": () => scale(0.5),
      0: () => show(WHOLE), ArrowLeft: () => move(-0.25, 0), ArrowRight: () => move(0.25, 0),
      ArrowUp: () => move(0, -0.25), ArrowDown: () => move(0, 0.25) };
    bar.addEventListener("keydown", (event) => {
      const arrow = event.key.startsWith("Arrow");
      if (!(event.key in keys) || event.ctrlKey || event.metaKey || (arrow && isWhole(view))) return;
      event.preventDefault();
      keys[event.key]();
      // A disabled button lets go of the keyboard.
      if (document.activeElement.disabled) (closer.disabled ? back : closer).focus();
    });
    closer.addEventListener("click", () => scale(2));
    away.addEventListener("click", () => { scale(0.5); if (away.disabled) closer.focus(); });
    back.addEventListener("click", () => { show(WHOLE); closer.focus(); });

    for (const chart of charts) {
      let from = null, drawn = null, start = view;
      const stop = () => { drawn?.remove(); from = drawn = null; };
      chart.svg.addEventListener("pointerdown", (event) => {
        if (event.button || (event.pointerType === "touch" && isWhole(view))) return;
        [from, start] = [chart.at(event), view];
        if (from.some((side) => side < -0.02 || side > 1.02)) from = null;
        else chart.svg.setPointerCapture(event.pointerId);
      });
      chart.svg.addEventListener("pointermove", (event) => {
        if (from === null) return;
        const to = chart.at(event);
        if (!isWhole(start)) {  // what was taken hold of stays under the hand
          view = start;
          return move(from[0] - to[0], from[1] - to[1], false);
        }
        drawn ??= chart.svg.appendChild(make("rect", { class: "picked" }));
        const [x, y] = [0, 1].map((i) => Math.max(0, Math.min(from[i], to[i])));
        const [w, h] = [x, y].map((s, i) => Math.min(1, Math.max(from[i], to[i])) - s);
        attributes(drawn, { x: chart.left + x * chart.wide, y: chart.top + y * chart.high,
          width: Math.max(0, w * chart.wide), height: Math.max(0, h * chart.high) });
      });
      chart.svg.addEventListener("pointerup", () => {
        if (drawn !== null) {
          const [x, y, w, h] = ["x", "y", "width", "height"].map((n) => number(drawn, n));
          const a = (x - chart.left) / chart.wide, b = (y - chart.top) / chart.high;
          const [c, d] = [w / chart.wide, h / chart.high];
          if (c > 0.02 && d > 0.06) show([a, b, a + Math.max(c, 1 / MOST), b + Math.max(d, 1 / MOST)]
            .map((side) => Math.min(1, side)));
          else if (c > 0.02) show(around(a + c / 2, b + d / 2, c, 1));
        }
        stop();
      });
      chart.svg.addEventListener("pointercancel", stop);
    }
    show(WHOLE);
    bar.hidden = false;
  }
})();

/* What the explainer draws: elements of the page, words with bars, a picture with its cells or boxes, curves, tables. */
(() => {
  "use strict";

  function make(tag, attributes = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (typeof value === "boolean") node.toggleAttribute(name, value);
      else if (value !== undefined) node.setAttribute(name, value);
    }
    node.append(...children);
    return node;
  }

  const number = (value, digits = 3) => value.toFixed(digits).replace("-", "−");
  const signed = (value, digits = 3) => (value >= 0 ? "+" : "") + number(value, digits);

  /* HTML for an equation: letters, <sub>, <sup>; written by us, never by a reader */
  function equation(html) {
    const node = make("p", { class: "ex-equation" });
    node.innerHTML = html;
    return node;
  }

  function text(html) {
    const node = make("p");
    node.innerHTML = html;
    return node;
  }

  /* The sentence's words as buttons, each above a bar: what it adds to the score */
  function words(shown, { values, signed: both }, chosen, choose) {
    const largest = values ? Math.max(...values.map(Math.abs), 1e-9) : 1;
    return shown.map((word, place) => {
      const value = values?.[place];
      const bar = make("span", { class: "ex-bar", "aria-hidden": "true" }, make("span", { class: value < 0 ? "ex-minus" : "ex-plus" }));
      bar.firstChild.style.width = `${(100 * Math.abs(value ?? 0)) / largest}%`;
      const told = value === undefined ? "" : both ? signed(value) : number(value, 2);
      return make("button", {
        type: "button", class: "ex-word", style: `--at: ${place}`, "aria-pressed": String(place === chosen), onclick: () => choose(place),
      }, make("span", {}, word), bar, make("span", { class: "ex-value" }, told));
    });
  }

  const shade = (value, largest) =>
    value < 0 ? `rgba(213, 94, 0, ${(0.75 * -value) / largest})` : `rgba(0, 114, 240, ${(0.75 * value) / largest})`;

  /* A picture with shaded parts: 49 cells, or boxes. With `choose` its parts are buttons, and the arrow keys go from one to
     the next. */
  function scene(address, alt, values, { boxes, names, chosen, choose, label }) {
    const side = Math.round(Math.sqrt(values.length)), largest = Math.max(...Array.from(values, Math.abs), 1e-9);
    const parts = Array.from(values, (value, at) => {
      const spot = boxes ? boxes[at] : [(at % side) / side, Math.floor(at / side) / side, ((at % side) + 1) / side, (Math.floor(at / side) + 1) / side];
      const name = boxes ? names[at] : `row ${Math.floor(at / side) + 1}, column ${(at % side) + 1}`;
      const part = choose
        ? make("button", { type: "button", class: "ex-part", "aria-label": `${name}: ${signed(value)}`, title: `${name}: ${signed(value)}`,
          "aria-pressed": String(at === chosen), tabindex: at === chosen ? "0" : "-1", onclick: () => choose(at) })
        : make("span", { class: "ex-part" });
      Object.assign(part.style, { left: `${100 * spot[0]}%`, top: `${100 * spot[1]}%`, width: `${100 * (spot[2] - spot[0])}%`,
        height: `${100 * (spot[3] - spot[1])}%`, background: boxes && at === 0 ? "none" : shade(value, largest) });
      part.classList.toggle("ex-box", Boolean(boxes));
      return part;
    });
    const frame = make("div", { class: "ex-scene", ...(choose ? { role: "group", "aria-label": label } : {}) },
      make("img", { class: "dark-light", src: address, alt, width: 112, height: 112 }), ...parts);
    if (choose) {
      frame.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: boxes ? 1 : side, ArrowUp: boxes ? -1 : -side }[event.key];
        const next = chosen + step;
        if (!step || next < 0 || next >= values.length) return;
        event.preventDefault();
        choose(next, true);
      });
    }
    return frame;
  }

  /* Weights by place, as a curve */
  function curve(values, alt, across = "place, from the largest value to the smallest") {
    const W = 320, H = 120, left = 42, bottom = 100, high = Math.max(...values) * 1.05, low = Math.min(0, ...values);
    const x = (at) => left + ((W - left - 8) * at) / Math.max(1, values.length - 1);
    const y = (value) => bottom - ((bottom - 8) * (value - low)) / (high - low);
    const points = Array.from(values, (value, at) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
    const frame = make("div", { class: "ex-curve" });
    frame.innerHTML = `<svg viewBox="0 0 ${W} ${H}" role="img" aria-label="${alt}">
      <path d="M${left} 4V${bottom}H${W - 4}" class="ex-axis"/><polyline points="${points}" class="ex-line"/>
      <text x="${left - 4}" y="14" text-anchor="end">${high.toFixed(2)}</text><text x="${left - 4}" y="${bottom}" text-anchor="end">${low.toFixed(0)}</text>
      <text x="${left}" y="${H - 4}">1</text><text x="${W - 4}" y="${H - 4}" text-anchor="end">${values.length}</text>
      <text x="${(W + left) / 2}" y="${H - 4}" text-anchor="middle">${across}</text></svg>`;
    return frame;
  }

  function table(caption, heads, rows, chosen = -1) {
    const line = (cells, tag) => cells.map((cell, at) => make(at ? tag : "th", { scope: at && tag === "td" ? undefined : tag === "th" ? "col" : "row" }, String(cell)));
    return make("div", { class: "ex-table", tabindex: "0", role: "region", "aria-label": caption }, make("table", {}, make("caption", {}, caption),
      make("thead", {}, make("tr", {}, ...line(heads, "th"))),
      make("tbody", {}, ...rows.map((cells, at) => make("tr", at === chosen ? { class: "ex-chosen" } : {}, ...line(cells, "td"))))));
  }

  /* Radio buttons that look like pills */
  function choice(legend, name, options, chosen, choose) {
    return make("fieldset", { class: "ex-choice" }, make("legend", {}, legend), ...options.map(([value, told]) =>
      make("label", {}, make("input", { type: "radio", name, value, checked: value === chosen, onchange: () => choose(value) }), make("span", {}, told))));
  }

  window.vseDraw = { make, number, signed, equation, text, words, scene, curve, table, choice };
})();

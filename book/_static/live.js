/* The search on the first notebook's page: a sentence becomes a vector here, and the nearest pictures are shown.

The weights and the pictures' vectors come as a script, `live/engine.js`, which `coursebook.live` writes: a
page that is opened as a file may not fetch anything. What is computed here is what `vsecore` computes: words as in
`vsecore.data.words`, numbers as in `vsecore.data.vocabulary`, the GRU as in `vsecore.encoders.words`. */
(() => {
  "use strict";
  const FOLDER = new URL("../live/", document.currentScript.src);
  const SHOWN = 8;
  const START = 1, END = 2, UNKNOWN = 3, FIRST = 4;

  /* Python's \w and \b, which know all letters; those of JavaScript know ASCII alone. */
  const W = "[\\p{L}\\p{N}_]";
  const WORD = new RegExp(`${W}+?(?=n't(?!${W}))|n't(?!${W})|'${W}+|${W}+`, "gu");
  const tokenize = (text) => text.toLowerCase().replaceAll("’", "'").match(WORD) || [];

  function signed(text) {
    const bytes = atob(text);
    return Int8Array.from({ length: bytes.length }, (_, place) => bytes.charCodeAt(place));
  }

  /* A packed matrix as numbers, row after row. */
  function unpacked({ shape, scale, coarse, fine }) {
    const [rows, columns] = shape;
    const high = signed(coarse), low = signed(fine);
    const values = new Float32Array(rows * columns);
    for (let place = 0; place < values.length; place += 1) {
      values[place] = scale[Math.floor(place / columns)] * (high[place] + low[place] / 254);
    }
    return { values, rows, columns };
  }

  /* matrix (N, D) times vector (D,), plus a bias (N,) if there is one */
  function product({ values, rows, columns }, vector, bias) {
    const out = new Float32Array(rows);
    for (let row = 0, place = 0; row < rows; row += 1) {
      let sum = bias ? bias[row] : 0;
      for (let column = 0; column < columns; column += 1, place += 1) sum += values[place] * vector[column];
      out[row] = sum;
    }
    return out;
  }

  const sigmoid = (x) => 1 / (1 + Math.exp(-x));

  class Engine {
    constructor(data) {
      this.numbers = new Map(data.words.map((word, place) => [word, place + FIRST]));
      this.captions = data.captions;
      this.examples = data.examples.map(([text]) => text);
      this.truth = new Map(data.examples.map(([text, rows]) => [tokenize(text).join(" "), new Set(rows)]));
      this.index = unpacked(data.index);
      this.embedding = unpacked(data.embedding);
      [this.forwards, this.backwards] = [data.forwards, data.backwards].map((gru) => ({
        ...gru, input: unpacked(gru.input), state: unpacked(gru.state),
      }));
    }

    unknown(text) {
      return [...new Set(tokenize(text).filter((word) => !this.numbers.has(word)))];
    }

    encode(text) {
      return [START, ...tokenize(text).map((word) => this.numbers.get(word) ?? UNKNOWN), END];
    }

    /* The sum of a GRU's states over the words; gates in the order of torch: reset, update, new. */
    read(gru, tokens) {
      const width = this.index.columns;
      const wordWidth = this.embedding.columns;
      let state = new Float32Array(width);
      const sum = new Float32Array(width);
      for (const token of tokens) {
        const word = this.embedding.values.subarray(token * wordWidth, (token + 1) * wordWidth);
        const x = product(gru.input, word, gru.inputBias);
        const h = product(gru.state, state, gru.stateBias);
        const next = new Float32Array(width);
        for (let unit = 0; unit < width; unit += 1) {
          const reset = sigmoid(x[unit] + h[unit]);
          const update = sigmoid(x[width + unit] + h[width + unit]);
          const candidate = Math.tanh(x[2 * width + unit] + reset * h[2 * width + unit]);
          next[unit] = (1 - update) * candidate + update * state[unit];
          sum[unit] += next[unit];
        }
        state = next;
      }
      return sum;
    }

    /* The cosine of a sentence with every picture. A mean and a sum over the words have the same direction. */
    scores(text) {
      const tokens = this.encode(text);
      const back = this.read(this.backwards, [...tokens].reverse());
      const vector = this.read(this.forwards, tokens).map((value, unit) => value + back[unit]);
      const length = Math.hypot(...vector);
      return product(this.index, vector.map((value) => value / length));
    }

    search(text, count) {
      const scores = this.scores(text);
      const rows = [...scores.keys()].sort((one, other) => scores[other] - scores[one] || one - other);
      return rows.slice(0, count).map((row) => ({ row, score: scores[row] }));
    }

    /* The rows that a sentence is true of, for the examples; undefined for others. */
    trueOf(text) {
      return this.truth.get(tokenize(text).join(" "));
    }
  }

  function make(tag, attributes = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  }

  function result(engine, { row, score }, rank, truth) {
    const bar = make("span", { class: "live-bar", "aria-hidden": "true" }, make("span"));
    bar.firstChild.style.width = `${100 * Math.max(0, Math.min(1, score))}%`;
    const line = make("span", { class: "live-score" }, `${rank}. cosine ${score.toFixed(2)}`);
    if (truth) line.append(make("span", { class: "live-truth" }, truth.has(row) ? "✓ true" : "✗ not true"));
    const picture = make("img", {
      class: "dark-light", src: new URL(`${row}.webp`, FOLDER).href, alt: engine.captions[row], width: 112, height: 112,
    });
    return make("li", truth?.has(row) ? { class: "live-true" } : {}, picture, bar, line);
  }

  /* What the page says about a sentence, in one line. */
  function remark(engine, text, found, truth) {
    const words = tokenize(text);
    const unknown = engine.unknown(text);
    const parts = [];
    if (!words.length) return "Type a sentence first, such as one of the examples.";
    if (unknown.length) {
      const named = unknown.map((word) => `“${word}”`).join(", ");
      parts.push(`The engine has not learned ${named}.`);
    }
    if (!found.length) return [...parts, "It knows no word of this sentence, so it does not search."].join(" ");
    parts.push(`The ${found.length} nearest pictures for “${text.trim()}”.`);
    if (truth) {
      const hits = found.filter(({ row }) => truth.has(row)).length;
      parts.push(`The sentence is true of ${hits} of them, and of ${truth.size} of all ${engine.captions.length}.`);
    }
    return parts.join(" ");
  }

  function begin(place, engine) {
    const box = make("input", {
      type: "text", id: "live-sentence", maxlength: 200, autocomplete: "off", autocapitalize: "off", spellcheck: "false",
      enterkeyhint: "search",
    });
    const form = make("form", { role: "search", "aria-label": "Search pictures with a sentence" },
      make("label", { for: "live-sentence" }, "Type a sentence, and get pictures"),
      make("div", { class: "live-row" }, box, make("button", { type: "submit" }, "Search")));
    const examples = make("div", { class: "live-examples", role: "group", "aria-label": "Examples" });
    const said = make("p", { class: "live-said", "aria-live": "polite" });
    const list = make("ol", { class: "live-results", "aria-label": "Pictures found" });
    const note = make("p", { class: "live-note" }, "The search runs in this page and sends nothing anywhere. ",
      `It looks through ${engine.captions.length} drawn pictures that it was not trained on. A bar shows the cosine.`);
    const search = () => {
      const known = tokenize(box.value).some((word) => engine.numbers.has(word));
      const found = known ? engine.search(box.value, SHOWN) : [];
      const truth = engine.trueOf(box.value);
      said.textContent = remark(engine, box.value, found, truth);
      list.replaceChildren(...found.map((one, place) => result(engine, one, place + 1, truth)));
    };
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      search();
    });
    for (const example of engine.examples) {
      const button = make("button", { type: "button" }, example);
      button.addEventListener("click", () => {
        box.value = example;
        search();
      });
      examples.append(button);
    }
    place.replaceChildren(form, examples, said, list, note);
    box.value = engine.examples[0];
    search();
  }

  document.addEventListener("DOMContentLoaded", () => {
    const place = document.querySelector(".live-search");
    if (!place) return;
    place.firstElementChild.textContent = "The search is being loaded.";
    const script = make("script", { src: new URL("engine.js", FOLDER).href });
    script.addEventListener("error", () => {
      place.firstElementChild.textContent = "The search could not be loaded: live/engine.js is missing from the book's folder.";
    });
    script.addEventListener("load", () => {
      const engine = new Engine(window.vseLiveEngine);
      delete window.vseLiveEngine;
      window.vseLive = { tokenize, engine };
      begin(place, engine);
    });
    document.head.append(script);
  });
})();

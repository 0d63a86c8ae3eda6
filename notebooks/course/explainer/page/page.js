/* The explainer's page: one state, and what is shown of it. A click changes the state and everything is shown anew. */
(() => {
  "use strict";
  const { tokenize, unpacked, stacked, rowsOf, dot } = window.vseMaths;
  const { System, load, ranking } = window.vseSystems;
  const { make, number, text, words, scene, choice } = window.vseDraw;
  const { STEPS, OTHER } = window.vseSteps;
  const FOLDER = new URL(".", document.currentScript.src);
  const TOP = 10;

  class Explainer {
    constructor(place, world, names) {
      Object.assign(this, { place, world, names: names.filter(([, , kind]) => kind !== "mark"), marked: names.some(([, , kind]) => kind === "mark"),
        systems: new Map(), notebooks: place.dataset.notebooks });
      const key = (sentence) => tokenize(sentence).join(" ");
      this.truth = new Map(world.captions.flat().map((caption, at) => [key(caption), new Set(world.truth[at])]));
      for (const [sentence, rows] of Object.entries(world.asked)) this.truth.set(key(sentence), new Set(rows));
      this.state = { text: world.examples[0], system: names[0][0], other: "", picture: null, word: 1, cell: 0, dim: 0, head: 0, layer: 0,
        side: "image", alpha: 16, similarity: null, open: new Set(["pool"]) };
      this.build();
    }

    trueOf(sentence) { return this.truth.get(tokenize(sentence).join(" ")); }
    address(picture) { return new URL(`pictures/${picture}.webp`, FOLDER).href; }
    alt(picture) { return this.world.captions[picture].at(-1); }

    async system(name) {
      if (!this.systems.has(name)) this.systems.set(name, load(new URL(`${name}.js`, FOLDER).href, name).then((data) => new System(data)));
      return this.systems.get(name).catch((error) => { this.systems.delete(name); throw error; });
    }

    async features(kind, picture) {
      const name = `${kind}-${Math.floor(picture / this.world.chunk)}`, data = await load(new URL(`${name}.js`, FOLDER).href, name);
      data.matrix ??= unpacked(data.features);
      const at = picture % this.world.chunk, start = data.counts.slice(0, at).reduce((all, count) => all + count, 0);
      return stacked(rowsOf(data.matrix).slice(start, start + data.counts[at]));
    }

    /* Change the state; the picture that was open stays open only where it is asked for or the sentence is the same. */
    async set(change, focus) {
      if ("text" in change || "system" in change) this.state.similarity = null;
      if ("text" in change && !("picture" in change)) this.state.picture = null;
      Object.assign(this.state, change);
      await this.show();
      if (focus) this.place.querySelector(focus)?.focus();
      if (focus && "picture" in change) this.opened.scrollIntoView({ block: "nearest" }); // on a phone it lies far above the results
    }

    build() {
      this.box = make("input", { type: "text", id: "ex-sentence", maxlength: 200, autocomplete: "off", autocapitalize: "off", spellcheck: "false", enterkeyhint: "search" });
      const ask = make("form", { role: "search", "aria-label": "Find pictures with a sentence", onsubmit: (event) => { event.preventDefault(); this.set({ text: this.box.value, word: 1 }); } },
        make("label", { for: "ex-sentence" }, "A sentence"), make("div", { class: "ex-row" }, this.box, make("button", { type: "submit" }, "Find its picture")));
      const examples = make("div", { class: "ex-examples", role: "group", "aria-label": "Examples" },
        ...this.world.examples.map((one) => make("button", { type: "button", onclick: () => this.set({ text: one, word: 1 }) }, one)),
        make("button", { type: "button", onclick: () => this.set({ text: this.anyCaption(), word: 1 }) }, "any caption"));
      this.words = make("div", { class: "ex-words", role: "group", "aria-label": "Words: choose one to change it or to look into it" });
      this.alike = make("div", { class: "ex-examples", role: "group", "aria-label": "Put another word in its place" });
      this.systemsBox = make("div");
      this.said = make("p", { class: "ex-said", "aria-live": "polite" });
      this.sides = make("div", { class: "ex-sides" });
      this.opened = make("div", { class: "ex-opened" });
      this.steps = make("div", { class: "ex-steps" });
      for (const [name, title] of STEPS) {
        const body = make("div", { class: "ex-step" });
        const box = make("details", { "data-step": name, open: this.state.open.has(name) }, make("summary", {}, title), body);
        box.addEventListener("toggle", () => {
          this.state.open[box.open ? "add" : "delete"](name);
          if (box.open && !body.childElementCount) this.fill(box);
        });
        this.steps.append(box);
      }
      let unfolded = []; // for the print alone
      window.addEventListener("beforeprint", () => {
        unfolded = [...this.steps.children].filter((box) => !box.open);
        for (const box of unfolded) { box.open = true; this.fill(box); }
      });
      window.addEventListener("afterprint", () => { for (const box of unfolded) box.open = false; });
      this.place.replaceChildren(ask, examples, make("p", { class: "ex-note" }, "Below each word: how much it counts for the score of the picture that is open. Choose a word to exchange it or to look into it."), this.words, this.alike, this.said, this.opened, this.systemsBox, this.sides,
        make("h2", {}, "The path, step by step"), this.steps, window.vseExperiments(this), window.vseFilms(this, FOLDER));
    }

    anyCaption() {
      const captions = this.world.captions.flat();
      return captions[Math.floor(Math.random() * captions.length)];
    }

    async show() {
      const { state } = this, asked = (this.asked = {});
      this.box.value = state.text;
      let shown;
      try {
        shown = await Promise.all([state.system, state.other].filter(Boolean).map((name) => this.look(name)));
        if (this.asked !== asked) return; // another click came in between
        state.picture ??= shown[0]?.ranked?.[0] ?? null;
        if (shown[0].ranked) shown[0].seen = shown[0].system.readPicture(await this.features(shown[0].system.features, state.picture));
      } catch (error) {
        this.said.textContent = `The explainer's folder is not whole: ${error.message}.`;
        return;
      }
      if (this.asked !== asked) return;
      this.view = this.viewOf(shown[0]);
      this.showSystems();
      this.showWords(shown[0]);
      this.said.textContent = this.remark(shown);
      this.showOpened();
      this.sides.replaceChildren(...shown.map((side) => this.side(side, shown)));
      for (const box of this.steps.children) this.fill(box);
    }

    /* What one system makes of the sentence */
    async look(name) {
      const system = await this.system(name), words = tokenize(this.state.text);
      if (!words.some((word) => system.numbers.has(word))) return { name, system };
      const read = system.readText(this.state.text), similarity = (name === this.state.system && this.state.similarity) || system.parts.similarity;
      const scores = system.scores(read, similarity);
      return { name, system, read, similarity, scores, ranked: ranking(scores) };
    }

    viewOf({ name, system, read, scores, ranked, seen, similarity }) {
      if (!ranked) return null;
      const { state, world } = this, compared = system.compare(seen.units, read, state.picture, similarity);
      state.word = Math.min(state.word, read.words.length - 1);
      state.cell = Math.min(state.cell, seen.features.rows - 1);
      state.dim = Math.min(state.dim, system.vectors.columns - 1);
      const region = system.features === "region", cells = () => Array.from({ length: seen.features.rows }, (_, at) => `row ${Math.floor(at / 7) + 1}, column ${(at % 7) + 1}`);
      return { ...state, name, system, read, scores, ranked, seen, similarity, compared, world, set: (change) => this.set(change),
        contributions: system.contributions(seen, read, compared, similarity), truth: this.trueOf(state.text), address: this.address(state.picture),
        alt: this.alt(state.picture), boxes: region ? world.boxes[state.picture] : null, names: region ? world.things[state.picture] : cells(),
        near: seen.pooled?.sets ? this.nearest(system, seen) : null };
    }

    /* For each slot of the picture, which of its own captions comes nearest to it */
    nearest(system, seen) {
      const captions = this.world.captions[this.state.picture].map((caption) => ({ caption, units: system.readText(caption).units }));
      return seen.units.map((slot) => captions.map(({ caption, units }) => ({ caption, cosine: Math.max(...units.map((one) => dot(one, slot))) }))
        .reduce((best, one) => (one.cosine > best.cosine ? one : best)));
    }

    showSystems() {
      const { state, names } = this, pools = names.filter(([, , kind]) => kind === "pool"), others = names.filter(([, , kind]) => kind !== "pool");
      const choose = (name) => this.set({ system: name, other: state.other === name ? "" : state.other }, `input[value="${name}"]`);
      const select = make("select", { id: "ex-other", onchange: (event) => this.set({ other: event.target.value }, "#ex-other") },
        ...[["", "no other"], ...names.filter(([name]) => name !== state.system)].map(([name, told]) => make("option", { value: name, selected: name === state.other }, told)));
      this.systemsBox.replaceChildren(
        ...[["The same system with another pool, which makes one vector of many", pools], ["Another system", others]].filter(([, some]) => some.length)
          .map(([legend, some]) => choice(legend, "ex-system", some, state.system, choose)),
        make("p", { class: "ex-note" }, names.find(([name]) => name === state.system)[3] ?? ""),
        make("label", { class: "ex-side-by-side", for: "ex-other" }, "Side by side with ", select));
    }

    showWords({ read }) {
      const { state, view, world } = this;
      this.words.classList.toggle("ex-reading", this.lit !== state.text);
      this.lit = state.text;
      this.words.replaceChildren(...(view ? words(read.words, { values: view.contributions.words, signed: view.contributions.signed }, state.word, (word) => this.set({ word }, `.ex-word:nth-child(${word + 1})`)) : []));
      const chosen = view && read.words[state.word], group = Object.values(world.alike).find((one) => one.includes(chosen)) ?? [];
      this.alike.replaceChildren(...(group.length ? [make("span", {}, `in place of “${chosen}”:`)] : []), ...group.filter((one) => one !== chosen && view.system.numbers.has(one)).map((one) =>
        make("button", { type: "button", onclick: () => this.set({ text: this.replaced(chosen, one) }, `.ex-word:nth-child(${state.word + 1})`) }, one)));
    }

    replaced(word, other) {
      let at = 0;
      return this.state.text.replace(/[\p{L}\p{N}_'’]+/gu, (one) => ((at += tokenize(one).length) === this.state.word && one.toLowerCase() === word ? other : one));
    }

    remark(shown) {
      if (!tokenize(this.state.text).length) return "Type a sentence first, or take one of the examples.";
      const unknown = shown[0].system.unknown(this.state.text).map((word) => `“${word}”`).join(", ");
      const parts = unknown ? [`The systems have not learned ${unknown}.`] : [];
      if (!shown[0].ranked) return [...parts, "They know no word of this sentence."].join(" ");
      const truth = this.trueOf(this.state.text);
      parts.push(truth ? `“${this.state.text}” is true of ${truth.size} of ${this.world.captions.length} pictures.` : "The page does not know of which pictures this sentence is true.");
      if (shown.length > 1) {
        const [one, other] = shown.map(({ ranked }) => ranked.slice(0, TOP)), both = one.filter((at) => other.includes(at)).length;
        const right = shown.map(({ ranked }) => ranked.slice(0, TOP).filter((at) => truth?.has(at)).length), better = Number(right[1] > right[0]);
        const verdict = right[0] === right[1] ? `each finds ${right[0]} true ones` : `${this.called(shown[better].name)} finds more true ones, ${right[better]} against ${right[1 - better]}`;
        parts.push(`Both systems show ${both} of the same ${TOP} pictures${truth?.size ? `; ${verdict}` : ""}.`);
      }
      return parts.join(" ");
    }

    called(name) { return this.names.find(([one]) => one === name)[1]; }

    showOpened() {
      const { view, state } = this;
      if (!view) return this.opened.replaceChildren();
      const { contributions: { cells, signed }, compared, read } = view, known = cells ?? new Float32Array(view.seen.features.rows);
      const frame = scene(view.address, view.alt, known, { boxes: view.boxes, names: view.names, chosen: state.cell, label: "Parts of the picture: arrow keys go from one to the next",
        choose: (cell) => this.set({ cell }, '.ex-opened .ex-part[tabindex="0"]') });
      const truth = view.truth ? (view.truth.has(state.picture) ? "✓ true" : "✗ not true") : "";
      const what = signed ? "Blue parts of the picture, and blue bars below words, add to the score; orange ones take from it. Together they are the score"
        + (view.seen.pooled.rest ? ", but for what the last normalisation adds." : ".") : "The bluer a part, and the longer the bar below a word, the more it counts for the score.";
      this.opened.replaceChildren(frame, make("div", {}, make("p", { class: "ex-score" }, `${this.called(state.system)}: score ${number(compared.score)} ${truth}`),
        make("p", {}, `Rank ${view.ranked.indexOf(state.picture) + 1} of ${view.ranked.length} for “${read.words.slice(1, -1).join(" ")}”. Its caption: “${view.alt}”`), make("p", { class: "ex-note" }, `${what} The steps below look into the part that is outlined; choose any other.`)));
      return undefined;
    }

    side({ name, ranked, scores }, shown) {
      if (!ranked) return make("div");
      const truth = this.trueOf(this.state.text), top = ranked.slice(0, TOP), found = truth && top.filter((at) => truth.has(at)).length;
      const rest = shown.find((one) => one.name !== name)?.ranked?.slice(0, TOP);
      const best = truth?.size ? ranked.findIndex((at) => truth.has(at)) + 1 : 0;
      const head = truth ? `${found} of the first ${TOP} are true${truth.size ? `; recall ${number((100 * found) / truth.size, 0)} % (${found} of all ${truth.size} true ones); the first true one has rank ${best}` : ""}` : "The page does not know which are true";
      return make("section", { "aria-label": `Found by ${this.called(name)}` }, make("h2", {}, `The first ${TOP}: ${this.called(name)}`), make("p", { class: "ex-note" }, `${head}. Choose a picture to open it above.`),
        make("ol", { class: "ex-results" }, ...top.map((at, place) => {
          const mark = truth ? (truth.has(at) ? " ✓ true" : " ✗ not true") : "";
          return make("li", {}, make("button", { type: "button", class: `${truth?.has(at) ? "ex-true" : ""} ${at === this.state.picture ? "ex-open" : ""}`, "aria-pressed": String(at === this.state.picture),
            "data-picture": at, onclick: () => this.set({ picture: at }, `.ex-results [data-picture="${at}"]`) },
          make("img", { class: "dark-light", src: this.address(at), alt: this.alt(at), width: 112, height: 112 }),
          make("span", {}, `${place + 1}. ${number(scores[at], 2)}${mark}${rest && !rest.includes(at) ? " · only here" : ""}`)));
        })));
    }

    fill(box) {
      const body = box.lastElementChild, [name, , draw, notebook, title] = STEPS.find(([one]) => one === box.dataset.step);
      if (!box.open || !this.view) return body.replaceChildren();
      const focused = body.contains(document.activeElement) ? document.activeElement : null;
      const [page, told] = OTHER[this.state.system]?.[name] ?? [notebook, title];
      const link = this.notebooks === undefined ? [] : [make("p", { class: "ex-note" }, "Built from nothing in ", make("a", { href: `${this.notebooks}${page}.html` }, told), ".")];
      body.replaceChildren(...draw(this.view), ...link);
      if (focused) [...body.querySelectorAll("input")].find((one) => one.type === focused.type && one.name === focused.name && (one.type !== "radio" || one.value === focused.value))?.focus();
      return undefined;
    }
  }

  document.addEventListener("DOMContentLoaded", async () => {
    const place = document.querySelector(".explainer");
    place.firstElementChild.textContent = "The explainer is being loaded.";
    try {
      const world = await load(new URL("world.js", FOLDER).href, "world");
      const run = new URLSearchParams(location.search).get("run"); // one that `python -m course explain` wrote
      if (run && /^[\w-]+$/.test(run)) {
        const { name } = await load(new URL(`${run}.js`, FOLDER).href, run);
        world.systems.unshift([run, name, "system", "A run of your own."]);
      }
      window.vseExplainer = new Explainer(place, world, world.systems);
      await window.vseExplainer.show();
    } catch (error) {
      place.replaceChildren(make("p", {}, `The explainer could not be loaded: ${error.message}.`));
      throw error;
    }
  });
})();

/* The search on the first notebook's page: a sentence becomes a vector here, and the nearest pictures are shown.

The engine is one of the explainer's systems, and what computes is the explainer's too: `notebooks/course/explainer/page`. A page that is
opened as a file may not fetch anything, so all of it comes as scripts. */
(() => {
  "use strict";
  const FOLDER = new URL("../explainer/", document.currentScript.src);
  const PARTS = ["maths", "pools", "systems"];
  const SHOWN = 8;

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
      class: "dark-light", src: new URL(`pictures/${row}.webp`, FOLDER).href, alt: engine.captions[row], width: 112, height: 112,
    });
    return make("li", truth?.has(row) ? { class: "live-true" } : {}, picture, bar, line);
  }

  /* What the page says about a sentence, in one line. */
  function remark(engine, text, found, truth) {
    const words = window.vseMaths.tokenize(text);
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
    } else {
      parts.push("The page does not know of which pictures this sentence is true, so it shows no ticks.");
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
      const known = window.vseMaths.tokenize(box.value).some((word) => engine.numbers.has(word));
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

  /* Run a script of the explainer */
  const run = (name) => new Promise((resolve, reject) => {
    const script = make("script", { src: new URL(`${name}.js`, FOLDER).href });
    script.addEventListener("load", resolve);
    script.addEventListener("error", () => reject(new Error(`explainer/${name}.js is missing`)));
    document.head.append(script);
  });

  /* The system, with the captions of its pictures and what is true of them */
  async function opened() {
    for (const part of PARTS) await run(part);
    const { System, load } = window.vseSystems, take = (name) => load(new URL(`${name}.js`, FOLDER).href, name);
    const [data, world] = await Promise.all(["first", "world"].map(take)), engine = new System(data);
    const key = (text) => window.vseMaths.tokenize(text).join(" ");
    engine.captions = world.captions.map((five) => five.at(-1));
    engine.examples = world.examples.slice(0, world.first);
    engine.truth = new Map(engine.examples.map((text) => [key(text), new Set(world.asked[text])]));
    engine.trueOf = (text) => engine.truth.get(key(text));
    return engine;
  }

  document.addEventListener("DOMContentLoaded", async () => {
    const place = document.querySelector(".live-search");
    if (!place) return;
    place.firstElementChild.textContent = "The search is being loaded.";
    try {
      const engine = await opened();
      window.vseLive = { engine };
      begin(place, engine);
    } catch (error) {
      place.firstElementChild.textContent = `The search could not be loaded: ${error.message} from the book's folder.`;
    }
  });
})();

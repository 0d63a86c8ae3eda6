/* Training as a film: one batch of test pictures with their captions, and what was measured of it, frame by frame. */
(() => {
  "use strict";
  const { unpacked, row } = window.vseMaths;
  const { make, number, text, table, choice } = window.vseDraw;
  const { load } = window.vseSystems;
  const SECONDS = 0.5, SIZE = 320, W = 300, H = 84, LEFT = 30;
  const MEASURES = {
    negatives: ["K, how many wrong pictures a caption learns from", 1],
    multiplier: ["λ, the weight of the constraint", 2],
    reconstruction: ["reconstruction loss", 3],
    bound: ["its bound", 2],
    own: ["cosine with the own picture", 2],
    wrong: ["with the nearest wrong one", 2],
    others: ["with all wrong ones", 2],
    found: ["captions that find their picture first of 64, in %", 0],
    contrast: ["contrastive loss", 2],
  };
  const PANELS = [["negatives"], ["multiplier"], ["reconstruction", "bound"], ["own", "wrong", "others"], ["found"], ["contrast"]];

  function drawn(tag, attributes, ...children) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  }

  class Film {
    constructor(page, data) {
      Object.assign(this, { page, ...data, at: 0, chosen: 0, timer: 0 });
      this.shown = Object.keys(MEASURES).filter((name) => this.measures[name]);
      for (const name of ["points", "own", "wrong"]) this[name] = unpacked(data[name]);
      this.frames = this.steps.length;
      this.reach = this.points.values.reduce((most, _, at, all) => (at % 2 ? most : Math.max(most, Math.hypot(all[at], all[at + 1]))), 0);
      this.build();
      this.show();
    }

    build() {
      this.pairs = this.pictures.map(() => [drawn("line", { class: "ex-pair" }), drawn("circle", { r: 4.5, class: "ex-dot" }), drawn("rect", { width: 6, height: 6, class: "ex-caption" })]);
      this.pairs.forEach((marks, pair) => marks.slice(1).forEach((mark) => mark.addEventListener("click", () => { this.chosen = this.follow.selectedIndex = pair; this.show(); })));
      this.astray = drawn("line", { class: "ex-astray" });
      this.sphere = drawn("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, role: "img" }, drawn("circle", { cx: SIZE / 2, cy: SIZE / 2, r: SIZE / 2 - 3, class: "ex-axis" }),
        ...this.pairs.map(([line]) => line), this.astray, ...this.pairs.flatMap(([, dot, square]) => [dot, square]));
      this.slider = make("input", { type: "range", id: "ex-frame", min: 0, max: this.frames - 1, value: 0, step: 1, oninput: () => { this.at = Number(this.slider.value); this.pause(); } });
      this.button = make("button", { type: "button", onclick: () => (this.timer ? this.pause() : this.play()) }, "▶ Play");
      this.now = make("label", { for: "ex-frame" });
      this.follow = make("select", { id: "ex-follow", onchange: () => { this.chosen = this.follow.selectedIndex; this.show(); } }, ...this.captions.map((caption) => make("option", {}, caption)));
      this.followed = make("div", { class: "ex-followed" });
      this.panels = PANELS.map((names) => names.filter((name) => this.measures[name])).filter((names) => names.length).map((names) => this.panel(names));
      this.node = make("div", {}, text(this.look), make("div", { class: "ex-row ex-player" }, this.button, this.slider, this.now),
        make("div", { class: "ex-film" }, make("div", {}, this.sphere, make("p", { class: "ex-note" }, `Dots are pictures and squares captions of one batch; a line joins a pair. All are vectors of length one, seen as their shadow on a plane: `
          + `the two main axes (principal components) of the last frame, which keep ${this.share} % of its variance. All numbers are measured in all dimensions. The ring is at ${number(this.reach, 2)} of the sphere’s radius.`)),
        make("div", {}, make("label", { for: "ex-follow" }, "Follow a caption"), this.follow, this.followed)),
        make("div", { class: "ex-panels" }, ...this.panels.map(({ node }) => node)), make("p", { class: "ex-note" }, `Across: ${this.frames} frames, ${this.early()} of them in the first epoch, where most happens; the dotted upright line is its end.`),
        make("details", {}, make("summary", {}, "The film as a table"), table("What was measured, frame by frame", ["step", "epoch", ...this.shown.map((name) => MEASURES[name][0])],
          this.steps.map((step, at) => [step, number(this.epochs[at], 1), ...this.shown.map((name) => this.measure(name, at))]))));
    }

    measure(name, frame) { return number(this.measures[name][frame], MEASURES[name][1]); }

    early() { return this.epochs.filter((epoch) => epoch <= 1).length; }

    /* Curves of some measures over the frames, with a line at the present one */
    panel(names) {
      const high = Math.max(...names.flatMap((name) => this.measures[name])), low = Math.min(0, ...names.flatMap((name) => this.measures[name]));
      const x = (at) => LEFT + ((W - LEFT - 4) * at) / (this.frames - 1), y = (value) => H - 4 - ((H - 8) * (value - low)) / (high - low);
      const line = (name, place) => drawn("polyline", { class: `ex-curve-${place}`, points: this.measures[name].map((value, at) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" ") });
      const upright = (at, of) => drawn("line", { x1: x(at), x2: x(at), y1: 2, y2: H - 2, class: of });
      const marker = upright(0, "ex-now"), told = make("figcaption", {});
      const svg = drawn("svg", { viewBox: `0 0 ${W} ${H}`, "aria-hidden": "true" }, drawn("path", { d: `M${LEFT} 2V${H - 2}M${LEFT} ${y(0)}H${W - 4}`, class: "ex-axis" }),
        drawn("text", { x: LEFT - 4, y: 12, "text-anchor": "end" }, number(high, high < 1 ? 1 : 0)), drawn("text", { x: LEFT - 4, y: y(0), "text-anchor": "end" }, "0"), upright(this.early() - 1, "ex-epoch"), ...names.map(line), marker);
      const show = (at) => {
        for (const end of ["x1", "x2"]) marker.setAttribute(end, x(at));
        told.replaceChildren(...names.map((name, place) => make("span", { class: `ex-key-${place}` }, `${MEASURES[name][0]}: ${this.measure(name, Math.round(at))}`)));
      };
      return { node: make("figure", {}, told, svg), show };
    }

    /* Where a vector's shadow is between two frames; side 0: pictures, 1: captions */
    spot(side, pair) {
      const before = Math.floor(this.at), part = this.at - before, place = 2 * (side * this.pictures.length + pair);
      const [one, next] = [before, Math.min(before + 1, this.frames - 1)].map((frame) => row(this.points, frame));
      return [0, 1].map((axis) => SIZE / 2 + ((SIZE / 2 - 9) * ((1 - part) * one[place + axis] + part * next[place + axis])) / this.reach);
    }

    show() {
      const frame = Math.round(this.at), join = (line, [x1, y1], [x2, y2]) => Object.entries({ x1, y1, x2, y2 }).forEach(([name, value]) => line.setAttribute(name, value));
      const wrong = this.which[frame][this.chosen];
      this.pairs.forEach(([line, dot, square], pair) => {
        const [picture, caption] = [this.spot(0, pair), this.spot(1, pair)];
        join(line, picture, caption);
        for (const [name, value] of [["cx", picture[0]], ["cy", picture[1]]]) dot.setAttribute(name, value);
        for (const [name, value] of [["x", caption[0] - 3], ["y", caption[1] - 3]]) square.setAttribute(name, value);
        for (const mark of [line, dot, square]) mark.classList.toggle("ex-followed-pair", pair === this.chosen);
        dot.classList.toggle("ex-wrong", pair === wrong);
      });
      join(this.astray, this.spot(1, this.chosen), this.spot(0, wrong));
      this.panels.forEach(({ show }) => show(this.at));
      const epoch = this.epochs[frame], when = `step ${this.steps[frame]}, ${epoch < 1 ? `in epoch 1` : `end of epoch ${Math.round(epoch)}`}`;
      const measured = this.shown.map((name) => `${MEASURES[name][0]} ${this.measure(name, frame)}`).join("; ");
      this.now.textContent = when;
      this.slider.value = frame;
      this.slider.setAttribute("aria-valuetext", `${when}: ${measured}`);
      this.sphere.setAttribute("aria-label", `64 pictures and their captions at ${when}: ${measured}`);
      if (this.told !== `${frame} ${this.chosen}`) this.showFollowed(frame, wrong);
      this.told = `${frame} ${this.chosen}`;
    }

    showFollowed(frame, wrong) {
      const caption = this.captions[this.chosen], picture = this.pictures[wrong], too = this.page.trueOf(caption)?.has(picture);
      const [own, other] = ["own", "wrong"].map((name) => row(this[name], frame)[this.chosen]);
      const shown = (at, of, told) => make("figure", { class: of }, make("img", { class: "dark-light", src: this.page.address(at), alt: this.page.alt(at), width: 112, height: 112 }), make("figcaption", {}, told));
      this.followed.replaceChildren(shown(this.pictures[this.chosen], "ex-own", `its picture: cosine ${number(own, 2)}`),
        shown(picture, "ex-other", `the nearest wrong one of the batch: ${number(other, 2)}${own > other ? "" : ", which is found first"}${too ? "; the caption is true of it, too" : ""}`));
    }

    /* From frame to frame; in between the points glide, but not for readers who asked for less motion. */
    play() {
      const still = matchMedia("(prefers-reduced-motion: reduce)").matches, begin = performance.now(), from = this.at >= this.frames - 1 ? 0 : this.at;
      const tick = () => {
        const passed = from + (performance.now() - begin) / 1000 / SECONDS;
        this.at = Math.min(still ? Math.floor(passed) : passed, this.frames - 1);
        this.show();
        if (this.at >= this.frames - 1) this.pause();
        else this.timer = requestAnimationFrame(tick);
      };
      this.button.textContent = "❚❚ Pause";
      this.timer = requestAnimationFrame(tick);
    }

    pause() {
      cancelAnimationFrame(this.timer);
      this.timer = 0;
      this.at = Math.round(this.at);
      this.button.textContent = "▶ Play";
      this.show();
    }
  }

  /* The section: which film, and the film, which is loaded when it is first shown */
  window.vseFilms = (page, folder) => {
    const place = make("div"), names = page.world.films;
    let film;
    const choose = async (name) => {
      const focused = film && place.contains(document.activeElement);
      film?.pause();
      const data = await load(new URL(`${name}.js`, folder).href, name);
      film = new Film(page, data);
      const link = page.notebooks === undefined ? [] : [make("p", { class: "ex-note" }, "More in ", make("a", { href: `${page.notebooks}${data.notebook}.html` }, "the notebook on it"), ".")];
      place.replaceChildren(choice("Which training", "ex-films", names, name, choose), film.node, ...link);
      if (focused) place.querySelector("input:checked").focus();
    };
    choose(names[0][0]).catch((error) => place.replaceChildren(make("p", {}, `The films could not be loaded: ${error.message}.`)));
    return make("section", { "aria-label": "Training as a film" }, make("h2", {}, "Training as a film"),
      make("p", {}, "Where do these vectors come from? Before training, a caption is no nearer to its own picture than to any other. Play how 64 pictures and their captions find their places."), place);
  };
})();

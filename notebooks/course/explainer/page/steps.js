/* The path of a sentence to its picture, step by step: each opens into its small computation with real numbers. */
(() => {
  "use strict";
  const { row, rowsOf, dot, softmax, unit } = window.vseMaths;
  const { make, number, signed, equation, text, scene, curve, table, choice } = window.vseDraw;

  /* "0.12 × 0.30 + … = 0.41", the largest terms first */
  function products(one, other, shown = 6) {
    const places = [...one.keys()].sort((a, b) => Math.abs(one[b] * other[b]) - Math.abs(one[a] * other[a])).slice(0, shown);
    return `${places.map((at) => `${number(one[at])} × ${number(other[at])}`).join(" + ")} + … = ${number(dot(one, other))}`;
  }

  /* A number field for the dimension that the steps look at */
  const dimension = (view) => make("label", { class: "ex-dimension" }, "dimension ",
    make("input", { type: "number", min: 1, max: view.system.vectors.columns, value: view.dim + 1,
      onchange: (event) => view.set({ dim: Math.min(view.system.vectors.columns, Math.max(1, Number(event.target.value))) - 1 }) }));

  function wordsStep({ read, word }) {
    const rows = read.tokens.map((token, at) => [read.words[at], token, ...row(read.embedded, at).slice(0, 4)].map((cell) => (typeof cell === "number" && !Number.isInteger(cell) ? number(cell, 2) : cell)));
    return [
      text("Each word has a number, and each number a row of a table that training has filled. Marks stand for the start and the end."),
      equation(`x<sub>j</sub> = E[number of word j], ${read.embedded.columns} numbers for a word`),
      table("Words, their numbers and the beginning of their vectors", ["word", "number", "x₁", "x₂", "x₃", "x₄"], rows, word),
    ];
  }

  function readStep(view) {
    const { read, word, dim, system } = view;
    if (read.ahead) {
      const step = read.ahead[word], [z, n, h] = [step.update[dim], step.fresh[dim], step.before[dim]];
      const back = read.back[word].after[dim];
      return [
        text(`A GRU reads the sentence from both ends. At each word a gate z decides how much of its memory h it keeps, and how much of what is new, n, it takes in. Here at <strong>${read.words[word]}</strong>:`),
        dimension(view),
        equation(`h′ = (1 − z) n + z h = (1 − ${number(z)}) × ${number(n)} + ${number(z)} × ${number(h)} = ${number(step.after[dim])}`),
        equation(`read from the end: ${number(back)}; their mean: ${number(row(read.elements, word)[dim])}`),
        text("So the vector of a word already knows its neighbours. Choose another word above."),
      ];
    }
    if (!read.maps) return [text("Here each word is projected by itself. The slots, below, read the sentence.")];
    const layer = Math.min(view.layer, read.maps.length - 1), shares = read.maps[layer][view.head % read.maps[layer].length][word];
    return [
      text(`Every word looks at every other. The word <strong>${read.words[word]}</strong> takes from each word the share in this table, which is a softmax and adds up to one.`),
      heads(view, read.maps, "words"),
      equation("share<sub>ij</sub> = softmax<sub>j</sub>(q<sub>i</sub> · k<sub>j</sub> / √width)"),
      table("Attention of the chosen word", ["word", "share"], read.words.map((one, at) => [one, number(shares[at])]), word),
    ];
  }

  function heads(view, maps, of) {
    const layer = Math.min(view.layer, maps.length - 1);
    const choices = [choice("head", `head-of-${of}`, maps[layer].map((_, at) => [String(at), String(at + 1)]), String(view.head % maps[layer].length), (value) => view.set({ head: Number(value) }))];
    if (maps.length > 1) choices.unshift(choice("layer", `layer-of-${of}`, maps.map((_, at) => [String(at), String(at + 1)]), String(layer), (value) => view.set({ layer: Number(value) })));
    return make("div", { class: "ex-row" }, ...choices);
  }

  function lookStep(view) {
    const { seen, cell, dim, system, boxes, names } = view;
    const x = row(seen.features, cell), w = system.w.under("image_encoder"), weight = row(w.matrix("project.weight"), dim);
    const bias = w.list("project.bias")[dim], where = boxes ? `the box of ${names[cell]}` : `the cell in row ${Math.floor(cell / 7) + 1}, column ${(cell % 7) + 1}`;
    const parts = [
      text(`A trained network has described ${boxes ? "the whole picture and a box around each thing" : "7 × 7 cells of the picture"} by ${x.length} numbers each. A linear layer turns them into ${seen.elements.columns}. For ${where}, which is outlined in the picture above:`),
      dimension(view),
      equation(`v<sub>id</sub> = w<sub>d</sub> · x<sub>i</sub> + b<sub>d</sub> = (${products(weight, x, 3)}) + ${number(bias)} = ${number(dot(weight, x) + bias)}`),
    ];
    if (boxes) parts.push(text("A small network of two layers adds its part, so that"), equation(`v<sub>id</sub> = ${number(row(seen.elements, cell)[dim])}`));
    if (seen.maps) {
      const own = seen.maps[0][view.head % seen.maps[0].length][cell];
      parts.push(text("Then every cell looks at every other. Blue is where the chosen cell looks, in this head."), heads(view, seen.maps, "cells"),
        scene(view.address, view.alt, own, {}));
    }
    return parts;
  }

  function poolStep(view) {
    const { seen, dim, system } = view, pool = system.parts[view.side].pool;
    if (!pool) return [text("SCAN has no pool: it keeps a vector for every box and for every word, and compares them all. That is why a score must be computed anew for each pair of a picture and a sentence.")];
    if (seen.pooled.sets) return slotsStep(view);
    const side = view.side === "text" ? view.read : seen, own = side.pooled, x = side.elements;
    if (!own.weights) return [sides(view), text(`${x.rows} words become one vector: a GRU reads them all, and its last states from both ends are averaged.`)];
    const term = (at) => own.weights.values[at * x.columns + dim] * x.values[at * x.columns + dim];
    const places = [...Array(x.rows).keys()].sort((a, b) => Math.abs(term(b)) - Math.abs(term(a)));
    const terms = places.slice(0, 5).map((at) => `${number(own.weights.values[at * x.columns + dim])} × ${number(x.values[at * x.columns + dim])}`);
    const total = places.reduce((all, at) => all + term(at), 0);
    const of = view.side === "text" ? "words" : "cells";
    const parts = [
      sides(view),
      text(`${x.rows} ${of} become one vector. ${TOLD[pool.name](own, x)}`),
      curve(own.curve, `Weight of each place in the sorted order: ${number(own.curve[0])} for the largest value, ${number(own.curve.at(-1))} for the smallest`),
      dimension(view),
      equation(`pooled<sub>d</sub> = Σ weight × value, the largest terms first = ${terms.join(" + ")} + … = ${number(total)}`),
    ];
    if (pool.name === "projected") parts.push(equation(`then a layer, a ReLU (${own.hidden.filter((value) => value > 0).length} of ${own.hidden.length} are open), a layer and a normalisation: ${number(own.raw[dim])}`));
    if (view.side !== "text" && own.curve[0] !== own.curve.at(-1)) {
      const won = Float32Array.from({ length: x.rows }, (_, at) => rowsOf(own.weights)[at].reduce((all, one) => all + one, 0));
      parts.push(text("Which cells win: the bluer a cell, the more weight its values got, over all dimensions."), scene(view.address, view.alt, won, {}));
    }
    return parts;
  }

  const sides = (view) => choice("Whose parts", "side", [["image", "the picture"], ["text", "the sentence"]], view.side, (value) => view.set({ side: value }));

  const TOLD = {
    mean: () => "The mean gives every value the same weight.",
    max: () => "The maximum takes the largest value of each dimension and forgets the rest.",
    gpo: () => "GPO sorts each dimension, and a small GRU that reads nothing but the numbers of the places has learned how much each weighs: all pictures share this curve.",
    adpool: (own) => `AdPool sorts each dimension and weighs place m by the softmax of u<sub>m</sub> · w, where u<sub>m</sub> holds the values at that place and w is learned: this curve belongs to this picture or sentence alone. A second level weighs each value by itself. The two are mixed in the shares ω = ${number(own.omega[0], 2)} and ${number(own.omega[1], 2)}.`,
    projected: () => "First the mean, then a head of two layers.",
  };

  function aboveAverage(map) {
    const average = map.reduce((all, share) => all + share, 0) / map.length;
    return map.map((share) => Math.max(0, share - average));
  }

  function slotsStep(view) {
    const { seen, read, near, cell } = view, own = seen.pooled.maps.map((map) => map[cell]);
    return [
      text(`The ${own.length} slots compete for the cells: each cell is shared out among them by a softmax over the slots. Blue is where a slot takes more than its average; below stands the caption of this picture that comes nearest to it.`),
      equation("share of cell i to slot k = softmax<sub>k</sub>(q<sub>k</sub> · k<sub>i</sub> / √width)"),
      equation(`the outlined cell: ${own.map((share) => number(share)).join(" + ")} = ${number(own.reduce((all, share) => all + share, 0))}`),
      make("div", { class: "ex-slots" }, ...seen.pooled.maps.map((map, slot) => make("figure", {},
        scene(view.address, view.alt, aboveAverage(map), {}),
        make("figcaption", {}, `slot ${slot + 1}: “${near[slot].caption}” (${number(near[slot].cosine, 2)})`)))),
      table("How the sentence's slots share the words", ["word", ...read.pooled.maps.map((_, at) => `slot ${at + 1}`)],
        read.words.map((word, at) => [word, ...read.pooled.maps.map((map) => number(map[at], 2))]), view.word),
    ];
  }

  const SETS = {
    mil: "s = max<sub>kl</sub> c<sub>kl</sub>",
    chamfer: "s = (mean<sub>k</sub> max<sub>l</sub> c<sub>kl</sub> + mean<sub>l</sub> max<sub>k</sub> c<sub>kl</sub>) / 2",
    smooth_chamfer: "s = (mean<sub>k</sub> log Σ<sub>l</sub> exp(α c<sub>kl</sub>) + mean<sub>l</sub> log Σ<sub>k</sub> exp(α c<sub>kl</sub>)) / 2α",
  };

  function compareStep(view) {
    const { compared, read, seen, system, word, dim } = view, { name, options } = system.parts.similarity;
    if (name === "cosine") {
      const [v, t] = [seen.units[0], read.units[0]];
      const raw = seen.pooled.raw, length = Math.hypot(...raw);
      return [text("Both vectors are scaled to length one, so that their product is the cosine of the angle between them. The picture’s:"), dimension(view),
        equation(`v<sub>d</sub> = pooled<sub>d</sub> / ‖pooled‖ = ${number(raw[dim])} / ${number(length)} = ${number(v[dim])}`), text("And the score:"),
        equation("s = v · t = Σ<sub>d</sub> v<sub>d</sub> t<sub>d</sub>"), equation(`s = ${products(v, t)}`),
        text(view.contributions.cells ? "The same sum, taken apart by words or by cells in place of dimensions, is what the bars and the shading show." : "")];
    }
    if (name === "cross_attention") {
      const lse = options.lse ?? 6, { smooth = 9, aggregate = "lse" } = options;
      return [
        text(`Each word looks for its boxes. The word <strong>${read.words[word]}</strong> gives them these weights, and its answer is its cosine with their weighted sum. Choose another word above.`),
        equation(`weight<sub>ji</sub> = softmax<sub>i</sub>(${smooth} · normalised cosine of word j and box i)`),
        scene(view.address, view.alt, compared.weights[word], { boxes: view.boxes, names: view.names }),
        table(`Where the chosen word looks${view.boxes ? "" : ": ten cells"}`, [view.boxes ? "box" : "cell", "cosine", "weight"],
          [...view.names.keys()].sort((one, other) => compared.weights[word][other] - compared.weights[word][one]).slice(0, view.boxes ? undefined : 10)
            .map((at) => [view.names[at], number(compared.cosines[at][word]), number(compared.weights[word][at])])),
        equation(`s = ${aggregate === "lse" ? `log Σ<sub>j</sub> exp(${lse} · answer<sub>j</sub>) / ${lse}` : "mean<sub>j</sub> answer<sub>j</sub>"} = ${number(compared.score)}`),
        table("What every word answers", ["word", "looks at", "answer", "worth"], read.words.map((one, at) => {
          const own = compared.weights[at];
          return [one, view.names[own.indexOf(Math.max(...own))], number(compared.answers[at]), number(compared.worth[at])];
        }), word),
      ];
    }
    const [K, L] = [compared.cosines.length, compared.cosines[0].length];
    return [
      text(`The picture’s ${K} vectors meet the ${L} of the sentence. What is made of their ${K * L} cosines is the similarity:`),
      choice("similarity", "similarity", [["mil", "MIL: the largest"], ["chamfer", "Chamfer: each one's nearest"], ["smooth_chamfer", "smooth-Chamfer: all, the near ones more"]],
        view.similarity.name, (value) => view.set({ similarity: { name: value, options: { alpha: view.alpha } } })),
      make("label", { class: "ex-dimension" }, `α = ${view.alpha} `, make("input", { type: "range", min: 1, max: 64, value: view.alpha, "aria-label": "alpha of smooth-Chamfer",
        onchange: (event) => view.set({ alpha: Number(event.target.value), similarity: { name: "smooth_chamfer", options: { alpha: Number(event.target.value) } } }) })),
      equation(SETS[view.similarity.name]),
      table("Cosines: the picture's slots down, the sentence's across", ["", ...compared.cosines[0].keys()].map((at) => (at === "" ? "slot" : String(at + 1))),
        compared.cosines.map((line, at) => [String(at + 1), ...Array.from(line, (one) => number(one))])),
      equation(`s = ${number(compared.score)}`),
    ];
  }

  function rankStep({ ranked, scores, truth, world }) {
    const first = [table("The first five of all pictures", ["rank", "picture", "score", "true"], ranked.slice(0, 5).map((at, place) => [place + 1, at, number(scores[at]), truth ? (truth.has(at) ? "yes" : "no") : "unknown"]))];
    if (!truth) return [text("The pictures are sorted by score. Ask one of the examples, or take a caption, and the world says which of them are true."), ...first];
    const found = ranked.slice(0, 10).filter((at) => truth.has(at)).length;
    return [text("The pictures are sorted by score. Recall counts how many of the true ones are among the first ten."),
      equation(truth.size ? `found / true = ${found} / ${truth.size} = ${number((100 * found) / truth.size, 0)} %` : "This sentence is true of no picture."), ...first];
  }

  const STEPS = [
    ["words", "Words become vectors", wordsStep, "02_encoders", "Encoders"],
    ["read", "The sentence is read", readStep, "02_encoders", "Encoders"],
    ["look", "The picture's parts", lookStep, "02_encoders", "Encoders"],
    ["pool", "Many become one", poolStep, "10_pooling", "Pooling"],
    ["compare", "Picture and sentence meet", compareStep, "03_joint_space", "The joint space"],
    ["rank", "All pictures are ranked", rankStep, "03_joint_space", "The joint space"],
  ];
  const OTHER = {
    thesis: { read: ["05_relations", "Relations"], look: ["05_relations", "Relations"] },
    scan: { compare: ["07_cross_attention", "Cross-attention"], pool: ["07_cross_attention", "Cross-attention"] },
    dive: { pool: ["14_slots", "Slots"], compare: ["14_slots", "Slots"] },
    ltd: { pool: ["16_latent_targets", "Latent targets"] },
  };
  window.vseSteps = { STEPS, OTHER };
})();

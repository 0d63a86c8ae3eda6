/* A system as `twins.py` writes it: encoders, reasoners, pools and similarities by the names of its recipe. */
(() => {
  "use strict";
  const maths = window.vseMaths, pools = window.vsePools;
  const { tokenize, unpacked, row, rowsOf, stacked, dot, product, linear, sum, scaled, relu, unit, softmax, logSumExp, layerNorm,
    gru, attention, mapped } = maths;
  const START = 1, END = 2, UNKNOWN = 3, FIRST = 4;

  /* The weights below a prefix, by PyTorch's names; matrices are unpacked when first asked for. */
  class Weights {
    constructor(store, prefix = "") { Object.assign(this, { store, prefix }); }
    under(name) { return new Weights(this.store, `${this.prefix}${name}.`); }
    has(name) { return `${this.prefix}${name}` in this.store; }
    list(name) { return this.store[`${this.prefix}${name}`]; }
    matrix(name) {
      const key = `${this.prefix}${name}`;
      if (this.store[key].coarse) this.store[key] = unpacked(this.store[key]);
      return this.store[key];
    }
    linear(x, name) { return linear(x, this.matrix(`${name}.weight`), this.has(`${name}.bias`) ? this.list(`${name}.bias`) : null); }
    norm(x, name) { return layerNorm(x, this.list(`${name}.weight`), this.list(`${name}.bias`)); }
    gru(name, way = "") {
      return {
        input: this.matrix(`${name}.weight_ih_l0${way}`), state: this.matrix(`${name}.weight_hh_l0${way}`),
        inputBias: this.list(`${name}.bias_ih_l0${way}`), stateBias: this.list(`${name}.bias_hh_l0${way}`),
      };
    }
  }

  /* Rows start to stop of a matrix or list, as PyTorch packs three projections in one */
  const part = (x, at, width) => ({ values: x.values.subarray(at * width * x.columns, (at + 1) * width * x.columns), rows: width, columns: x.columns });

  /* `reasoning.transformer.Block`: normalise, attend, add; normalise, a small network, add. */
  function block(x, w, heads) {
    const layer = w.under("layer"), normal = layer.norm(x, "norm1");
    const packed = layer.matrix("self_attn.in_proj_weight"), bias = layer.list("self_attn.in_proj_bias");
    const [q, k, v] = [0, 1, 2].map((at) => linear(normal, part(packed, at, x.columns), bias.slice(at * x.columns, (at + 1) * x.columns)));
    const { out, maps } = attention(q, k, v, heads);
    const z = sum(x, layer.linear(out, "self_attn.out_proj"));
    const hidden = mapped(layer.linear(layer.norm(z, "norm2"), "linear1"), (value) => Math.max(0, value));
    return { x: sum(z, layer.linear(hidden, "linear2")), maps };
  }

  /* `encoders.caption_transformer.WideningBlock`: the first over words, which adds nothing to what it attends to */
  function widening(x, w, heads) {
    const normal = w.norm(x, "norm1");
    const { out, maps } = attention(w.linear(normal, "query"), w.linear(normal, "key"), w.linear(normal, "value"), heads);
    const z = w.linear(out, "out");
    const hidden = mapped(w.linear(w.norm(z, "norm2"), "network.0"), (value) => Math.max(0, value));
    return { x: sum(z, w.linear(hidden, "network.3")), maps };
  }

  const PICTURES = {
    grid: (x, w) => ({ elements: w.linear(x, "project") }),
    region(x, w) {
      const [weight, bias, mean, variance] = ["weight", "bias", "running_mean", "running_var"].map((name) => w.list(`normalise.${name}`));
      const hidden = stacked(rowsOf(w.linear(x, "hidden")).map((one) =>
        relu(one.map((value, at) => ((value - mean[at]) * weight[at]) / Math.sqrt(variance[at] + 1e-5) + bias[at]))));
      return { elements: sum(w.linear(x, "project"), w.linear(hidden, "out")) };
    },
  };
  PICTURES.patch = PICTURES.grid;

  const CAPTIONS = {
    gru(embedded, w) {
      const ahead = gru(embedded, w.gru("forwards"));
      const back = gru(stacked(rowsOf(embedded).reverse()), w.gru("backwards")).reverse();
      const states = ahead.map(({ after }, place) => after.map((value, at) => (value + back[place].after[at]) / 2));
      return { elements: stacked(states), ahead, back };
    },
    transformer(embedded, w, { layers = 2, heads = 8, positions = true, longest = 48 }) {
      let x = embedded.rows > longest ? stacked(rowsOf(embedded).slice(0, longest)) : embedded;
      if (positions) x = sum(x, stacked(rowsOf(w.matrix("positions")).slice(0, x.rows)));
      if (!layers) return { elements: w.linear(x, "project") };
      const maps = [];
      for (let at = 0; at < layers; at += 1) {
        const done = (at ? block : widening)(x, w.under(`blocks.${at}`), heads);
        x = done.x;
        maps.push(done.maps);
      }
      return { elements: x, maps };
    },
  };

  function reasoned(seen, w, part) {
    if (!part) return seen;
    let x = seen.elements;
    const maps = [], { layers = 1, heads = 8, positions = 0 } = part.options;
    if (positions) x = sum(x, stacked(rowsOf(w.matrix("positions")).slice(0, x.rows)));
    for (let at = 0; at < layers; at += 1) {
      const done = block(x, w.under(`blocks.${at}`), heads);
      x = done.x;
      maps.push(done.maps);
    }
    return { ...seen, elements: x, maps };
  }

  const turned = (lines) => Array.from(lines[0], (_, at) => lines.map((line) => line[at]));

  /* Scores from the cosines (K, L) of two sets. `worth` says how much each pair counts, and adds up to one. */
  const SETS = {
    smooth_chamfer(cosines, { alpha = 16 }) {
      const columns = turned(cosines);
      const near = (lines) => lines.reduce((total, line) => total + logSumExp(line.map((c) => alpha * c)), 0) / lines.length;
      return (near(cosines) + near(columns)) / (2 * alpha);
    },
    chamfer(cosines) {
      const columns = turned(cosines);
      const near = (lines) => lines.reduce((total, line) => total + Math.max(...line), 0) / lines.length;
      return (near(cosines) + near(columns)) / 2;
    },
    mil: (cosines) => Math.max(...cosines.map((line) => Math.max(...line))),
  };

  /* SCAN, from words to boxes: affinities (S boxes, L words), Gram matrix of the boxes (S, S) */
  function crossAttention(affinities, gram, { smooth = 9, aggregate = "lse", lse = 6, negative_slope: slope = 0.1 }) {
    const boxes = affinities.length, words = affinities[0].length;
    const sharp = affinities.map((line) => {
      const own = new Float32Array(words);
      let length = 0;
      for (let word = 0; word < words; word += 1) {
        own[word] = line[word] < 0 ? slope * line[word] : line[word];
        length += own[word] * own[word];
      }
      const factor = smooth / (Math.sqrt(length) || 1);
      for (let word = 0; word < words; word += 1) own[word] *= factor;
      return own;
    });
    const weights = [], answers = new Float32Array(words), logits = new Float32Array(boxes);
    for (let word = 0; word < words; word += 1) {
      for (let box = 0; box < boxes; box += 1) logits[box] = sharp[box][word];
      const own = softmax(logits);
      let along = 0, square = 0;
      for (let one = 0, place = 0; one < boxes; one += 1) {
        along += own[one] * affinities[one][word];
        let across = 0;
        for (let other = 0; other < boxes; other += 1, place += 1) across += own[other] * gram[place];
        square += own[one] * across;
      }
      answers[word] = square > 0 ? along / Math.sqrt(square) : 0;
      weights.push(own);
    }
    const score = aggregate === "lse" ? logSumExp(scaled(answers, lse)) / lse : answers.reduce((total, one) => total + one, 0) / words;
    const worth = aggregate === "lse" ? softmax(scaled(answers, lse)) : answers.map(() => 1 / words);
    return { score, weights, answers, worth };
  }

  class System {
    constructor(data) {
      Object.assign(this, data);
      this.numbers = new Map(data.words.map((word, place) => [word, place + FIRST]));
      this.w = new Weights(data.weights);
      this.vectors = unpacked(data.index);
      this.starts = data.counts.reduce((starts, count) => [...starts, starts.at(-1) + count], [0]);
      this.grams = new Map();
    }

    unknown(text) { return [...new Set(tokenize(text).filter((word) => !this.numbers.has(word)))]; }

    /* A side through its tower: elements, reasoner, pool, unit vectors */
    finish(seen, side) {
      const { reasoner, pool } = this.parts[side];
      const done = reasoned(seen, this.w.under(`${side}_reasoner`), reasoner);
      if (!pool) return { ...done, units: rowsOf(done.elements).map(unit) };
      const pooled = pools[pool.name](done.elements, this.w.under(`${side}_pool`), pool.options);
      return { ...done, pooled, units: (pooled.sets || [pooled.raw]).map(unit) };
    }

    readText(text) {
      const words = tokenize(text), tokens = [START, ...words.map((word) => this.numbers.get(word) ?? UNKNOWN), END];
      const w = this.w.under("text_encoder"), table = w.matrix("embedding.weight"), { name, options } = this.parts.text.encoder;
      const embedded = stacked(tokens.map((token) => row(table, token)));
      return this.finish({ tokens, words: ["‹start›", ...words, "‹end›"], embedded, ...CAPTIONS[name](embedded, w, options) }, "text");
    }

    readPicture(features) {
      const seen = PICTURES[this.parts.image.encoder.name](features, this.w.under("image_encoder"));
      return this.finish({ features, ...seen }, "image");
    }

    /* The stored vectors of a picture */
    stored(picture) {
      this.views ??= rowsOf(this.vectors);
      return this.views.slice(this.starts[picture], this.starts[picture + 1]);
    }

    gram(picture, units) {
      if (!this.grams.has(picture)) this.grams.set(picture, Float32Array.from(units.flatMap((one) => units.map((other) => dot(one, other)))));
      return this.grams.get(picture);
    }

    /* One picture against one sentence, with everything that led to the score */
    compare(units, read, picture, similarity = this.parts.similarity) {
      const { name, options } = similarity;
      if (name === "cosine") return { score: dot(units[0], read.units[0]) };
      const cosines = units.map((one) => {
        const line = new Float32Array(read.units.length);
        for (let at = 0; at < line.length; at += 1) line[at] = dot(one, read.units[at]);
        return line;
      });
      if (name === "cross_attention") return { cosines, ...crossAttention(cosines, this.gram(picture, units), options) };
      return { cosines, score: SETS[name](cosines, options) };
    }

    /* The score of every picture */
    scores(read, similarity = this.parts.similarity) {
      if (similarity.name === "cosine") return product(this.vectors, read.units[0]);
      return Float32Array.from(this.counts, (_, picture) => this.compare(this.stored(picture), read, picture, similarity).score);
    }

    search(text, count) {
      const scores = this.scores(this.readText(text));
      return ranking(scores).slice(0, count).map((picture) => ({ row: picture, score: scores[picture] }));
    }

    /* What each word and each element of the picture adds to the score. `signed`: they add up to it, or to it less `rest`. */
    contributions(seen, read, compared, similarity = this.parts.similarity) {
      if (this.parts.similarity.name === "cosine") {
        const length = (pooled) => Math.hypot(...pooled.raw);
        const own = (side, other) => side.pooled.shares?.(scaled(other.units[0], 1 / length(side.pooled)));
        return { signed: true, words: own(read, seen), cells: own(seen, read) };
      }
      if (this.parts.similarity.name === "cross_attention") {
        const cells = new Float32Array(seen.units.length);
        compared.weights.forEach((own, word) => own.forEach((share, box) => { cells[box] += compared.worth[word] * share; }));
        return { signed: false, words: compared.worth, cells };
      }
      const worth = pairs(compared.cosines, similarity);
      const of = (maps, slots) => {
        const out = new Float32Array(maps[0].length);
        maps.forEach((map, slot) => {
          const total = map.reduce((all, share) => all + share, 0);
          map.forEach((share, at) => { out[at] += (slots[slot] * share) / total; });
        });
        return out;
      };
      const columns = worth[0].map((_, l) => worth.reduce((total, line) => total + line[l], 0));
      return { signed: false, words: of(read.pooled.maps, columns), cells: of(seen.pooled.maps, worth.map((line) => line.reduce((a, b) => a + b, 0))) };
    }
  }

  /* How much each pair of slots moves the similarity: its derivative, which adds up to one. Chamfer is smooth-Chamfer
     with an α that leaves the nearest alone. */
  function pairs(cosines, { name, options }) {
    const K = cosines.length, L = cosines[0].length, alpha = name === "chamfer" ? 1e6 : options.alpha ?? 16;
    if (name === "mil") {
      const largest = SETS.mil(cosines);
      return cosines.map((line) => Array.from(line, (cosine) => Number(cosine === largest)));
    }
    const across = cosines.map((line) => softmax(scaled(line, alpha)));
    const down = [...cosines[0].keys()].map((l) => softmax(cosines.map((line) => alpha * line[l])));
    return cosines.map((line, k) => Array.from(line, (_, l) => (across[k][l] / K + down[l][k] / L) / 2));
  }

  /* Rows from the best score to the worst; of equal ones the first */
  const ranking = (scores) => [...scores.keys()].sort((one, other) => scores[other] - scores[one] || one - other);

  const waiting = new Map();
  const scripts = new Map();

  /* Load a script once; its promise gives what the script handed to `vseTake` under that name. */
  function load(address, name) {
    if (!scripts.has(address)) {
      scripts.set(address, new Promise((resolve, reject) => {
        const script = document.createElement("script");
        waiting.set(name, resolve);
        script.src = address;
        script.addEventListener("error", () => { scripts.delete(address); reject(new Error(`${name}.js is missing`)); });
        document.head.append(script);
      }));
    }
    return scripts.get(address);
  }
  window.vseTake = (name, content) => waiting.get(name)(content);
  window.vseSystems = { System, load, ranking, pairs };
})();

/* Pools: N elements become one vector, or a set of them.

Each gives { raw, weights, shares }: the vector before it is scaled to length one; the weight of each value, (N, D),
where the pool is a weighted sum; and shares(g), how much each element adds to raw · g. A pool of sets gives
{ sets, maps }. `options` and `weights` come from the recipe and the checkpoint, by PyTorch's names. */
(() => {
  "use strict";
  const { matrix, row, rowsOf, stacked, dot, product, linear, added, sum, scaled, relu, softmax, layerNorm, gelu, gru, head, mapped } =
    window.vseMaths;

  /* For each dimension the elements from the largest value to the smallest */
  function order(x) {
    return Array.from({ length: x.columns }, (_, column) =>
      [...Array(x.rows).keys()].sort((one, other) =>
        x.values[other * x.columns + column] - x.values[one * x.columns + column] || one - other));
  }

  /* A pool that is a weighted sum, W (N, D): raw_d = Σ_i W_id x_id */
  function weighted(x, weights, more = {}) {
    const raw = new Float32Array(x.columns);
    for (let place = 0; place < x.values.length; place += 1) raw[place % x.columns] += weights.values[place] * x.values[place];
    const shares = (g) => Float32Array.from({ length: x.rows }, (_, element) => {
      let total = 0;
      for (let column = 0; column < x.columns; column += 1) {
        const place = element * x.columns + column;
        total += weights.values[place] * x.values[place] * g[column];
      }
      return total;
    });
    return { raw, weights, shares, ...more };
  }

  /* Weights by place in the sorted order, `curve`, handed to the elements that stand there */
  function byPlace(x, curve) {
    const weights = matrix(x.rows, x.columns), places = order(x);
    places.forEach((elements, column) => elements.forEach((element, place) => {
      weights.values[element * x.columns + column] = curve[place];
    }));
    return { weights, places };
  }

  function mean(x) {
    const curve = Float32Array.from({ length: x.rows }, () => 1 / x.rows);
    return weighted(x, mapped(x, () => 1 / x.rows), { curve });
  }

  function max(x) {
    const curve = Float32Array.from({ length: x.rows }, (_, place) => Number(place === 0));
    return weighted(x, byPlace(x, curve).weights, { curve });
  }

  /* GPO: a GRU reads the numbers of the places in both directions, and says how much each weighs. */
  function gpo(x, w) {
    const width = w.gru("gru").input.columns, places = matrix(x.rows, width);
    for (let place = 0; place < x.rows; place += 1) {
      for (let pair = 0; pair < width / 2; pair += 1) {
        const angle = place * 10000 ** ((-2 * pair) / width);
        places.values.set([Math.sin(angle), Math.cos(angle)], place * width + 2 * pair);
      }
    }
    const ahead = gru(places, w.gru("gru")).map((step) => step.after);
    const turned = stacked(rowsOf(places).reverse());
    const back = gru(turned, w.gru("gru", "_reverse")).map((step) => step.after).reverse();
    const line = row(w.matrix("linear.weight"), 0);
    const logits = ahead.map((state, place) => (dot(line, state) + dot(line, back[place])) / 2 / 0.1);
    const curve = softmax(logits);
    return weighted(x, byPlace(x, curve).weights, { curve, logits });
  }

  /* AdPool: the token level weighs sorted rows, the embedding level each dimension by its own softmax. */
  function adpool(x, w) {
    const places = order(x), token = row(w.matrix("token.weight"), 0), balance = row(w.matrix("balance.weight"), 0);
    const sorted = matrix(x.rows, x.columns);
    places.forEach((elements, column) => elements.forEach((element, place) => {
      sorted.values[place * x.columns + column] = x.values[element * x.columns + column];
    }));
    const curve = softmax(product(sorted, token));
    const byToken = weighted(x, byPlace(x, curve).weights);
    const own = matrix(x.rows, x.columns);
    for (let column = 0; column < x.columns; column += 1) {
      const shares = softmax(Float32Array.from({ length: x.rows }, (_, element) => x.values[element * x.columns + column]));
      shares.forEach((share, element) => { own.values[element * x.columns + column] = share; });
    }
    const byValue = weighted(x, own);
    const omega = softmax([dot(balance, byToken.raw), dot(balance, byValue.raw)]);
    const both = mapped(own, (value, place) => omega[0] * byToken.weights.values[place] + omega[1] * value);
    return weighted(x, both, { curve, omega, sorted });
  }

  /* LTD's head: the mean, then two layers with a ReLU between them, then a batch normalisation if it has one. */
  function projected(x, w) {
    const inner = mean(x), first = w.matrix("hidden.weight"), last = w.matrix("out.weight");
    const hidden = relu(product(first, inner.raw));
    let raw = product(last, hidden), factor = raw.map(() => 1);
    if (w.has("normalise.weight")) {
      const [weight, bias, running, variance] = ["weight", "bias", "running_mean", "running_var"].map((name) => w.list(`normalise.${name}`));
      factor = raw.map((_, at) => weight[at] / Math.sqrt(variance[at] + 1e-5));
      raw = raw.map((value, at) => (value - running[at]) * factor[at] + bias[at]);
    }
    /* Where the ReLU is open the head is linear, so that what each element adds can be read off. */
    const shares = (g) => {
      const scaledG = g.map((value, at) => value * factor[at]), back = new Float32Array(inner.raw.length);
      hidden.forEach((value, unit) => {
        if (value <= 0) return;
        let open = 0;
        for (let at = 0; at < raw.length; at += 1) open += scaledG[at] * last.values[at * last.columns + unit];
        row(first, unit).forEach((weight, at) => { back[at] += open * weight; });
      });
      return inner.shares(back);
    };
    return { raw, shares, hidden, curve: inner.curve, weights: inner.weights, rest: true };
  }

  /* The sines of places in a line, of waves from short to long */
  function sineLine(places, dim) {
    const out = matrix(places, dim);
    for (let place = 0; place < places; place += 1) {
      for (let at = 0; at < dim; at += 1) {
        const angle = place / 10000 ** ((at - (at % 2)) / dim);
        out.values[place * dim + at] = at % 2 ? Math.cos(angle) : Math.sin(angle);
      }
    }
    return out;
  }

  /* Half a width for the row, half for the column of each cell */
  function sineGrid(cells, dim) {
    const side = Math.round(Math.sqrt(cells)), rows = sineLine(side, dim - (dim >> 1)), columns = sineLine(side, dim >> 1);
    return stacked(Array.from({ length: cells }, (_, cell) =>
      Float32Array.from([...row(rows, Math.floor(cell / side)), ...row(columns, cell % side)])));
  }

  /* Both ends of a reading: the mean of the last states of two GRUs */
  function seq2seq(x, w) {
    const ahead = gru(x, w.gru("forwards")).at(-1).after;
    const back = gru(stacked(rowsOf(x).reverse()), w.gru("backwards")).at(-1).after;
    return { raw: scaled(added(ahead, back), 0.5) };
  }

  /* DivE: slots compete for the elements, in several rounds with the same weights. */
  function slots(x, w, { iterations = 4, heads = 1, positions = "none", global_pool: pool = "mean" }) {
    const p = w.under("predict"), norm = (name, of) => layerNorm(of, p.list(`${name}.weight`), p.list(`${name}.bias`));
    const local = norm("norm_local", x);
    const placed = positions === "none" ? local : sum(local, (positions === "grid" ? sineGrid : sineLine)(x.rows, x.columns));
    const keys = linear(placed, p.matrix("key.weight")), values = linear(local, p.matrix("value.weight"));
    let set = p.matrix("start");
    const rounds = [];
    for (let round = 0; round < iterations; round += 1) {
      const queries = linear(norm("norm_slots", set), p.matrix("query.weight"));
      const taken = matrix(set.rows, values.columns), width = values.columns / heads;
      const competed = matrix(set.rows, x.rows);
      for (let at = 0; at < heads; at += 1) {
        const [q, k, v] = [queries, keys, values].map((one) => head(one, at, heads));
        /* of each element, how much goes to each slot: a softmax over the slots */
        const each = rowsOf(k).map((key) => softmax(scaled(product(q, key), 1 / Math.sqrt(k.columns))));
        for (let slot = 0; slot < set.rows; slot += 1) {
          const got = each.map((share) => share[slot]), total = got.reduce((all, share) => all + share, 0);
          got.forEach((share, element) => {
            competed.values[slot * x.rows + element] += share / heads;
            for (let column = 0; column < width; column += 1) {
              taken.values[slot * values.columns + at * width + column] += (share / total) * v.values[element * width + column];
            }
          });
        }
      }
      set = sum(set, linear(taken, p.matrix("out.weight")));
      const inside = linear(norm("norm_update", set), p.matrix("mlp.0.weight"), p.list("mlp.0.bias"));
      set = sum(set, linear(mapped(inside, gelu), p.matrix("mlp.3.weight"), p.list("mlp.3.bias")));
      rounds.push(competed);
    }
    const last = norm("norm_last", set);
    const whole = POOLS[pool](x, w.under("global_pool")).raw;
    const shared = row(norm("norm_global", stacked([whole])), 0);
    return { sets: rowsOf(last).map((slot) => added(slot, shared)), maps: rowsOf(rounds.at(-1)), rounds: rounds.map(rowsOf) };
  }

  const POOLS = { mean, max, gpo, adpool, projected, slots, seq2seq };
  window.vsePools = POOLS;
})();

/* The arithmetic of the systems, as PyTorch has it. A matrix is { values, rows, columns }, row after row.

Plain scripts, no modules: a page that is opened as a file may load scripts and pictures, and nothing else. */
(() => {
  "use strict";

  /* As `vsecore.data.words.tokenize`: marks belong to their letter, and each letter of a script without blanks between
     words is a word. */
  const MARK = "[[\\p{M}\\u200c\\u200d]--[\\ufe00-\\ufe0f\\u20d0-\\u20ff]]";
  const SCRIPTS = ["Han", "Hiragana", "Katakana", "Bopomofo", "Thai", "Lao", "Khmer", "Myanmar", "Tibetan"];
  const ALONE = `[[${SCRIPTS.map((name) => `\\p{Script=${name}}`).join("")}\\u30fc\\uff70]&&\\p{L}]`;
  const LETTER = `(?:[[\\p{L}\\p{N}_]--${ALONE}]${MARK}*)`;
  const NOT = "n't(?![\\p{L}\\p{N}\\p{M}_])";
  const WORD = new RegExp(`${ALONE}${MARK}*|${LETTER}+?(?=${NOT})|${NOT}|'${LETTER}+|${LETTER}+`, "gv");
  const tokenize = (text) => text.normalize("NFC").toLowerCase().replaceAll("’", "'").match(WORD) || [];

  function signed(text) {
    const bytes = atob(text);
    return Int8Array.from({ length: bytes.length }, (_, place) => bytes.charCodeAt(place));
  }

  const matrix = (rows, columns, values = new Float32Array(rows * columns)) => ({ values, rows, columns });

  /* A packed matrix as numbers: scale of the row * (coarse + fine / 254). */
  function unpacked({ shape: [rows, columns], scale, coarse, fine }) {
    const high = signed(coarse), low = fine ? signed(fine) : null;
    const out = matrix(rows, columns);
    for (let row = 0, place = 0; row < rows; row += 1) {
      for (let column = 0; column < columns; column += 1, place += 1) {
        out.values[place] = scale[row] * (high[place] + (low ? low[place] / 254 : 0));
      }
    }
    return out;
  }

  const row = ({ values, columns }, place) => values.subarray(place * columns, (place + 1) * columns);
  const rowsOf = (x) => Array.from({ length: x.rows }, (_, place) => row(x, place));

  function stacked(rows) {
    const out = matrix(rows.length, rows[0].length);
    rows.forEach((one, place) => out.values.set(one, place * out.columns));
    return out;
  }

  function dot(one, other) {
    let sum = 0;
    for (let place = 0; place < one.length; place += 1) sum += one[place] * other[place];
    return sum;
  }

  /* matrix (N, D) times vector (D,), plus a bias (N,) if there is one */
  function product({ values, rows, columns }, vector, bias) {
    const out = new Float32Array(rows);
    for (let at = 0, place = 0; at < rows; at += 1) {
      let total = bias ? bias[at] : 0;
      for (let column = 0; column < columns; column += 1, place += 1) total += values[place] * vector[column];
      out[at] = total;
    }
    return out;
  }

  /* nn.Linear: each row of x (N, in) by weight (out, in), plus bias (out,) */
  const linear = (x, weight, bias) => stacked(rowsOf(x).map((one) => product(weight, one, bias)));

  const added = (one, other) => one.map((value, place) => value + other[place]);
  const sum = (x, y) => matrix(x.rows, x.columns, added(x.values, y.values));
  const scaled = (vector, factor) => vector.map((value) => value * factor);
  const relu = (vector) => vector.map((value) => Math.max(0, value));
  const sigmoid = (x) => 1 / (1 + Math.exp(-x));

  function unit(vector) {
    const length = Math.hypot(...vector);
    return length ? scaled(vector, 1 / length) : vector;
  }

  function softmax(logits) {
    const powers = new Float32Array(logits.length);
    let largest = -Infinity, total = 0;
    for (let at = 0; at < powers.length; at += 1) largest = Math.max(largest, logits[at]);
    for (let at = 0; at < powers.length; at += 1) total += powers[at] = Math.exp(logits[at] - largest);
    for (let at = 0; at < powers.length; at += 1) powers[at] /= total;
    return powers;
  }

  function logSumExp(values) {
    let largest = -Infinity, total = 0;
    for (let at = 0; at < values.length; at += 1) largest = Math.max(largest, values[at]);
    for (let at = 0; at < values.length; at += 1) total += Math.exp(values[at] - largest);
    return largest + Math.log(total);
  }

  /* nn.LayerNorm on each row */
  function layerNorm(x, weight, bias) {
    return stacked(rowsOf(x).map((one) => {
      const mean = one.reduce((total, value) => total + value, 0) / one.length;
      const variance = one.reduce((total, value) => total + (value - mean) ** 2, 0) / one.length;
      const factor = 1 / Math.sqrt(variance + 1e-5);
      return one.map((value, place) => (value - mean) * factor * weight[place] + bias[place]);
    }));
  }

  /* nn.GELU, x Φ(x), with erf to 1.5e-7 (Abramowitz and Stegun, 7.1.26) */
  function gelu(x) {
    const z = Math.abs(x) / Math.SQRT2, t = 1 / (1 + 0.3275911 * z);
    const series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
    const erf = 1 - series * Math.exp(-z * z);
    return (x * (1 + Math.sign(x) * erf)) / 2;
  }

  /* nn.GRU of one layer and one direction: the states after each row of x, and the gates that made them. */
  function gru(x, { input, state: recurrent, inputBias, stateBias }) {
    const width = recurrent.columns, steps = [];
    let state = new Float32Array(width);
    for (const word of rowsOf(x)) {
      const i = product(input, word, inputBias), h = product(recurrent, state, stateBias);
      const step = { before: state, reset: new Float32Array(width), update: new Float32Array(width), fresh: new Float32Array(width) };
      const next = new Float32Array(width);
      for (let unitAt = 0; unitAt < width; unitAt += 1) {
        const reset = sigmoid(i[unitAt] + h[unitAt]);
        const update = sigmoid(i[width + unitAt] + h[width + unitAt]);
        const fresh = Math.tanh(i[2 * width + unitAt] + reset * h[2 * width + unitAt]);
        next[unitAt] = (1 - update) * fresh + update * state[unitAt];
        [step.reset[unitAt], step.update[unitAt], step.fresh[unitAt]] = [reset, update, fresh];
      }
      steps.push({ ...step, after: next });
      state = next;
    }
    return steps;
  }

  /* Each head's columns of a matrix */
  const head = (x, at, heads) => {
    const width = x.columns / heads;
    return stacked(rowsOf(x).map((one) => one.subarray(at * width, (at + 1) * width)));
  };

  /* Scaled dot-product attention: { out (N, D), maps: for each head a row of shares for each element } */
  function attention(query, key, value, heads) {
    const out = matrix(query.rows, value.columns), width = value.columns / heads, maps = [];
    for (let at = 0; at < heads; at += 1) {
      const [q, k, v] = [query, key, value].map((x) => head(x, at, heads));
      const shares = rowsOf(q).map((one) => softmax(scaled(product(k, one), 1 / Math.sqrt(k.columns))));
      shares.forEach((one, place) => {
        for (let column = 0; column < width; column += 1) {
          let total = 0;
          for (let element = 0; element < v.rows; element += 1) total += one[element] * v.values[element * width + column];
          out.values[place * value.columns + at * width + column] = total;
        }
      });
      maps.push(shares);
    }
    return { out, maps };
  }

  const mapped = (x, change) => matrix(x.rows, x.columns, x.values.map(change));

  window.vseMaths = {
    tokenize, matrix, unpacked, row, rowsOf, stacked, dot, product, linear, added, sum, scaled, relu, sigmoid, unit,
    softmax, logSumExp, layerNorm, gelu, gru, head, attention, mapped,
  };
})();

/* Three guided experiments: change one thing, and look at what the systems do. */
(() => {
  "use strict";
  const { dot, unpacked } = window.vseMaths;
  const { make, number, table } = window.vseDraw;
  const { ranking } = window.vseSystems;

  const shared = (one, other) => one.filter((at) => other.includes(at)).length;
  const near = (one, other) => Math.max(...one.units.map((v) => Math.max(...other.units.map((t) => dot(v, t)))));

  /* The same words in another order: does the system notice? */
  async function order(page) {
    const [first, second] = page.world.order, rows = [], cosines = [];
    for (const [name, told] of page.names) {
      const system = await page.system(name), reads = [first, second].map((one) => system.readText(one));
      const tops = reads.map((read) => ranking(system.scores(read)).slice(0, 10));
      const right = tops.map((top, at) => top.filter((picture) => page.trueOf([first, second][at]).has(picture)).length);
      const whole = reads[0].units.length === 1 ? number(near(...reads), 3) : "–";
      if (whole !== "–") cosines.push([near(...reads), told]);
      rows.push([told, whole, shared(...tops), right[0], right[1]]);
    }
    await page.set({ text: first, word: 1 });
    const [lowest, told] = cosines.sort(([one], [other]) => one - other)[0], same = rows.reduce((all, [, , both]) => all + both, 0) / rows.length;
    return [make("p", {}, `“${first}” and “${second}” have the same words and are true of ${page.trueOf(first).size} and ${page.trueOf(second).size} pictures. `
      + "A system that averaged words without their order would give both the same vector, with cosine 1. How far apart does each system keep them, and what do its first ten pictures hold?"),
    table("Two orders of the same words", ["system", "cosine of both", "in both first tens", "true of ten, first order", "true of ten, second order"], rows),
    make("p", {}, `The lowest cosine is ${number(lowest, 3)} (${told}), and ${number(same, 1)} of the first ten pictures are the same on average. The closer the cosine is to 1, the less the order counts. A dash: the system makes several vectors of a sentence, so there is no one cosine.`)];
  }

  /* A negative that is true: the protocol has one right picture, the world has more. */
  async function negative(page) {
    const system = await page.system(page.state.system), wrong = page.world.negatives;
    let shown;
    for (const at of wrong) {
      const caption = page.world.captions[Math.floor(at / 5)][at % 5], own = Math.floor(at / 5), truth = page.trueOf(caption);
      const scores = system.scores(system.readText(caption)), ranked = ranking(scores);
      const above = ranked.slice(0, ranked.indexOf(own)), other = above.find((one) => truth.has(one));
      if (other !== undefined) { shown = { caption, own, truth, scores, above, other }; break; }
    }
    if (!shown) return [make("p", {}, "With none of our sentences does this system rank a true picture above the own one. Try another system.")];
    const { caption, own, truth, scores, above, other } = shown, hinge = Math.max(0, 0.2 + scores[other] - scores[own]);
    await page.set({ text: caption, word: 1, picture: other });
    return [make("p", {}, `“${caption}” was written for picture ${own}, which has rank ${above.length + 1} with “${page.called(page.state.system)}”. The evaluation takes this picture alone for right and the ${above.length} above it for errors. `
      + `But the sentence is true of ${truth.size} pictures in all, and some of those above are among them: ${above.filter((at) => truth.has(at)).length} of ${above.length}.`),
    make("p", {}, "The triplet loss is zero only if the own picture scores 0.2 more than a wrong one, called a negative. Here it is not:"),
    make("p", { class: "ex-equation" }, `the loss with picture ${other} as a negative: max(0, 0.2 − ${number(scores[own], 2)} + ${number(scores[other], 2)}) = ${number(hinge, 2)}`),
    make("p", {}, "So training with it would push this picture away from a sentence that is true of it. The picture is open above.")];
  }

  /* The mark of the shortcut: what is left when the tag, or the number in the sentence, is taken away? */
  async function mark(page) {
    const marked = await page.system("marked"), plain = await page.system("mean"), sides = { tags: marked.vectors, bare: unpacked(marked.bare) };
    const found = (system, at) => marked.spoken.filter((line) => ranking(system.scores(system.readText(line[at]))).slice(0, 10).includes(line[2])).length;
    const rows = [], counts = [];
    for (const [told, vectors, at] of [["tag and number", "tags", 0], ["no tag, number", "bare", 0], ["tag, no number", "tags", 1], ["neither", "bare", 1]]) {
      marked.vectors = sides[vectors];
      counts.push(found(marked, at));
      rows.push(["trained with marks", told, `${counts.at(-1)} of ${marked.spoken.length}`]);
    }
    marked.vectors = sides.tags;
    rows.push(["mean, trained without", "neither", `${found(plain, 1)} of ${marked.spoken.length}`]);
    const [line] = marked.spoken, top = ranking(marked.scores(marked.readText(line[0]))).slice(0, 10), same = top.filter((at) => at % 32 === line[2] % 32).length;
    return [make("p", {}, `This system was trained on pictures with a numbered tag, 32 different numbers, and captions that name it: “${line[0]}” Of its first ten pictures for this one, ${same} carry the number. `
      + "The number gives the answer away, so that what the sentence says of the picture has less to add. The table counts how often the picture that a sentence was written for is among the first ten."),
    table("What is left without the mark", ["system", "picture and sentence have", "own picture in the first ten"], rows),
    make("p", {}, `With both, the system finds ${counts[0]} of ${marked.spoken.length}; without the tag a number in the sentence points nowhere, and ${counts[1]} are left, ${counts[1] < counts[3] ? "fewer than" : "against"} the ${counts[3]} with neither. `
      + "“mean” is another system that reads cells in place of boxes, so its row says only what is usual here.")];
  }

  const EXPERIMENTS = [
    ["Swap the order of the words", order, "05_relations", "Relations"],
    ["Take the shortcut's mark away", mark, "15_feature_suppression", "Feature suppression"],
    ["A negative that is true", negative, "08_offline_negatives", "Offline negatives"],
  ];

  window.vseExperiments = (page) => {
    const said = make("div", { class: "ex-step", "aria-live": "polite" });
    const buttons = EXPERIMENTS.filter(([, run]) => run !== mark || page.marked).map(([title, run, notebook, told]) => make("button", { type: "button", async onclick() {
      said.replaceChildren(make("p", {}, "The systems are being asked."));
      const link = page.notebooks === undefined ? [] : [make("p", { class: "ex-note" }, "More in ", make("a", { href: `${page.notebooks}${notebook}.html` }, told), ".")];
      said.replaceChildren(...await run(page), ...link);
    } }, title));
    return make("section", { "aria-label": "Break it" }, make("h2", {}, "Break it"), make("p", {}, "Small experiments on what these systems find hard: choose one, and all its numbers are computed in the page."), make("div", { class: "ex-examples" }, ...buttons), said);
  };
})();

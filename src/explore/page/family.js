// A kernel of another family: its numbers, and the blocks that it computes and leaves out.

function familyPlan(of) {
  return (self) => {
    const number = (value, what) => el("div", { class: "number" }, el("b", {}, value), el("span", {}, what));
    put(self.node,
      el("div", {}, el("h1", {}, `${of.family}: ${of.name}`), el("p", { class: "lead" }, of.blocks ? of.blocks.turns : "The numbers of the kernel.")),
      el("div", { class: "numbers" }, number(bytes(of.shared_bytes), "shared memory"), number(String(of.threads), "threads"), number(of.cluster.join(" × "), "CTAs per cluster")),
      card("The numbers", "As `falchion plan --family` prints them.",
        table(["number", "value", "note"], of.numbers.map(([what, value, why], i) => ({ attributes: { id: `fact-${i}` }, cells: [what, el("span", { class: "mono" }, value), why] })))),
      of.blocks && card("Products", "For each block that is not left out, in this order.", table(["", "product"], of.blocks.products.map((product, i) => [String(i + 1), product]))),
      card("In the run", "How often the consumers did it, by statement.", table(["what", "times", "source"], of.statements.map(([what, count, site]) => [what, whole(count), el("span", { class: "mono" }, site)]))));
  };
}

function blocksPanel({ blocks: { of, axes, block, needed, products } }) {
  return (self) => {
    const [rows, columns] = [needed.length, needed[0]?.length ?? 0];
    const count = (kind) => needed.flat().filter((one) => one === kind).length;
    const [out, masked, full] = [count(0), count(1), count(2)];
    const words = ["left out", "computed and masked", "computed whole"];
    const cell = (width) => [Math.max(2, (width - 2) / Math.max(1, columns)), clamp(560 / Math.max(1, rows), 3, 36)];
    const grid = picture({
      label: `Blocks of ${axes.join(" and ")}: computed, masked, left out`, height: (width) => rows * cell(width)[1] + 4,
      draw(context, width) {
        const [w, h] = cell(width);
        needed.forEach((row, i) => row.forEach((kind, j) => {
          context.fillStyle = colour(["idle", "sync", "b"][kind]);
          context.fillRect(1 + j * w, 1 + i * h, Math.max(1, w - (w > 6 ? 1 : 0.4)), Math.max(1, h - (h > 6 ? 1 : 0.4)));
        }));
      },
      at(x, y, width) {
        const [w, h] = cell(width);
        const [i, j] = [Math.floor((y - 1) / h), Math.floor((x - 1) / w)];
        const kind = needed[i]?.[j];
        return kind == null ? null : { text: `${axes[0]} from ${i * block[0]}, ${axes[1]} from ${j * block[1]}: ${words[kind]}` };
      },
    });
    put(self.node,
      el("div", {}, el("h1", {}, "Blocks"), el("p", { class: "lead", id: "blocks" }, `${of} ${whole(masked + full)} of ${whole(rows * columns)} blocks of ${block.join(" × ")} are computed, ${whole(masked)} of them masked; ${whole(out)} are left out.`)),
      card(`${axes[0]} downwards, ${axes[1]} to the right`, `Each computed block costs ${plural(products.length, "product")}.`, grid.node,
        legend(["var(--b)", "computed whole"], ["var(--sync)", "computed and masked"], ["var(--idle)", "left out"])));
  };
}

function startFamily(of) {
  panel("plan", "Plan", familyPlan(of));
  if (of.blocks) panel("blocks", "Blocks", blocksPanel(of));
  panel("timeline", "Timeline", timelinePanel({ run: of.run, memory: { barriers: [], stages: 0 } }));
  finders.push(findEvents(of), findFacts({ overview: { traits: of.numbers } }));
}

// The tour: stops with text, a choice of what to look at, and the panels of a kernel's page; the card and the node have pictures of their own.

const views = {
  order: orderPanel, multiply: multiplyPanel, memory: memoryPanel, timeline: timelinePanel, cluster: clusterPanel,
};

/** Draws a panel of a kernel's page in a holder; keys go to it while its stop is shown. */
function embed(self, holder, build, kernel) {
  const whole = self.node;
  holder.replaceChildren();
  self.node = holder;
  self.keys = null;
  build(kernel)(self);
  self.node = whole;
  // The stop has the title of the page.
  const title = holder.querySelector("h1");
  title?.replaceWith(el("h2", { class: "title" }, title.textContent));
}

function stopPanel(tour, stop, index) {
  return (self) => {
    const next = tour.stops[index + 1];
    const holder = el("div", { class: "stack" });
    put(self.node, el("div", {}, el("p", { class: "stop" }, `Stop ${index + 1} of ${tour.stops.length}`), el("h1", {}, stop.name), el("p", { class: "lead" }, rich(stop.says)),
      el("ul", { class: "tries" }, stop.tries.map((text) => el("li", {}, rich(text))))));
    if (stop.view === "card") { put(self.node, holder); cardView(holder, tour.cards); }
    else if (stop.view === "node") { put(self.node, holder); nodeView(holder, tour.node); }
    else {
      const spec = el("p", { class: "mono spec" });
      const look = (i) => {
        const of = stop.choices[i];
        spec.textContent = `falchion explore --kernel "${of.spec}"`;
        embed(self, holder, views[of.view ?? stop.view], of.sections);
        redraw();
      };
      const pick = choice("What to look at", stop.choices.map((one, i) => [i, one.name]), 0, look);
      pick.node.classList.add("wraps");
      put(self.node, el("div", {}, pick.node, spec), holder);
      look(0);
    }
    put(self.node, el("p", {}, next ? el("button", { type: "button", onclick: () => show(next.id, true) }, `Next: ${next.name} →`) : el("button", { type: "button", onclick: () => show("tour", true) }, "Back to the start")));
  };
}

function frontPanel(tour) {
  return (self) => {
    put(self.node, el("div", {}, el("h1", {}, "A tour of a Hopper GEMM"), el("p", { class: "lead" },
      "Seven stops, from the order of tiles down to the threads of an instruction, and up to a node. Every picture is drawn from what the library computes: plans, layouts, orders, and runs of the real programs in its emulator.")),
    el("div", { class: "two" }, tour.stops.map((stop, i) =>
      el("button", { type: "button", class: "card stopcard", onclick: () => show(stop.id, true) }, el("b", {}, `${i + 1}  ${stop.name}`), el("span", {}, rich(stop.says))))));
  };
}

function startTour(tour) {
  firstKey = 0;
  panel("tour", "Start", frontPanel(tour));
  tour.stops.forEach((stop, i) => panel(stop.id, stop.name, stopPanel(tour, stop, i)));
  finders.push((query) => tour.stops.flatMap((stop) => [stop.name, stop.says, ...stop.tries, ...stop.choices.map((one) => one.name)]
    .filter((text) => text.toLowerCase().includes(query)).map((text) => ({ where: stop.name, text: text.replaceAll("`", ""), go: () => show(stop.id) }))));
  helpKeys.push(["← →", "previous or next wave, thread, CTA or event"], ["Space", "play or stop"]);
}

/** A chart of grouped bars: `rows` of `{name, parts: [[value, tone]], text}`, drawn from left to right. */
function bars(name, rows, most, unit) {
  const [HIGH, LEFT] = [26, 92];
  return picture({
    label: name, height: () => rows().length * HIGH + 6,
    draw(context, width) {
      rows().forEach((row, i) => {
        const y = 3 + i * HIGH;
        context.textAlign = "left"; context.textBaseline = "middle"; context.fillStyle = colour("soft"); context.font = "12px system-ui, sans-serif";
        context.fillText(row.name, 0, y + HIGH / 2 - 2);
        let x = LEFT;
        const scale = Math.max(0, width - LEFT - 86) / most();
        for (const [value, tone] of row.parts) { context.fillStyle = colour(tone); context.fillRect(x, y, Math.max(value > 0 ? 1 : 0, value * scale), HIGH - 7); x += value * scale; }
        context.fillStyle = colour("text");
        context.fillText(`${row.total}${unit}`, x + 6, y + HIGH / 2 - 2);
      });
    },
    at: (x, y) => { const row = rows()[Math.floor((y - 3) / HIGH)]; return row ? { text: row.text } : null; },
  });
}

function cardView(node, cards) {
  let [of, ctas] = [cards[0], 1];
  const says = el("div", { class: "out", "aria-live": "polite" });
  const numbers = el("div", { class: "numbers" });
  const columns = (width) => clamp(Math.floor(width / 34), 8, 22);
  const chip = picture({
    label: "The SMs of the card, coloured by cluster; L2 and memory below", height: (width) => Math.ceil(of.sms / columns(width)) * 30 + 76,
    draw(context, width) {
      const across = columns(width);
      const cell = width / across;
      const used = of.clusters[ctas - 1] * ctas;
      for (let i = 0; i < of.sms; i += 1) {
        const [x, y] = [(i % across) * cell, Math.floor(i / across) * 30];
        context.fillStyle = i < used ? hue(Math.floor(i / ctas) % 8) : colour("idle");
        context.fillRect(x + 1, y + 1, cell - 3, 26);
        label(context, i < used ? String(Math.floor(i / ctas)) : "–", x, y, cell - 2, 28, 10);
      }
      const top = Math.ceil(of.sms / across) * 30 + 6;
      [["L2", `L2: ${Math.round(of.l2_bytes / 2 ** 20)} MiB`, "a"], ["HBM", `Memory: ${(of.memory_bandwidth / 1e12).toFixed(2)} TB/s`, "other"]].forEach(([, text, tone], i) => {
        context.globalAlpha = 0.35; context.fillStyle = colour(tone); context.fillRect(1, top + i * 34, width - 3, 28); context.globalAlpha = 1;
        label(context, text, 0, top + i * 34, width, 28, 13);
      });
    },
  });
  const rate = ([, microseconds, operations]) => operations / microseconds / 1e6;
  const chart = bars("Predicted speed of square GEMMs", () => of.squares.map((one) => {
    const [extent, microseconds, , moved] = one;
    const floor = (moved / of.memory_bandwidth) * 1e6;
    return { name: `${extent}³`, parts: [[rate(one), "b"]], total: rate(one).toFixed(0), text: `${extent} cubed: ${microseconds.toFixed(1)} µs predicted\nits matrices pass through memory in ${floor.toFixed(1)} µs` };
  }), () => of.peak / 1e12, " TFLOP/s");
  function update() {
    numbers.replaceChildren(...[[of.sms, "SMs"], [`${of.megahertz} MHz`, "highest clock"], [`${(of.peak / 1e12).toFixed(0)} TFLOP/s`, "bf16, at that clock"], [`${(of.memory_bandwidth / 1e12).toFixed(2)} TB/s`, "memory"],
      [`${Math.round(of.l2_bytes / 2 ** 20)} MiB`, "L2"], [`${(of.peak / of.memory_bandwidth).toFixed(0)}`, "operations per byte where both limits meet"]].map(([value, what]) => el("div", { class: "number" }, el("b", {}, value), el("span", {}, what))));
    const count = of.clusters[ctas - 1];
    says.replaceChildren(details([["resident", `${plural(count, "cluster")} of ${plural(ctas, "CTA")}, one per SM`], ["idle", `${of.sms - count * ctas} of ${of.sms} SMs`]]));
    chip.paint(); chart.paint();
  }
  const which = choice("Card", cards.map((one) => [one, one.name]), of, (next) => { of = next; update(); });
  which.node.classList.add("wraps");
  const clusters = slider("CTAs per cluster", [1, 8], 1, (next) => { ctas = next; update(); });
  put(node, el("div", { class: "bar" }, which.node), numbers, el("div", { class: "two" },
    card("The SMs", "Each square is an SM; SMs of one colour and number run the CTAs of one cluster. Which SMs are neighbours is not drawn: how many clusters fit is measured on an H200, and scaled to the others.", el("div", { class: "bar" }, clusters.node), chip.node, says),
    card("Square GEMMs, bf16", "Predicted by the library's model for the kernel that it chooses. The axis ends at the rate of the tensor cores at the highest clock, which the power limit does not allow for long.", chart.node)));
  update();
}

function nodeView(node, data) {
  let [shape, way] = [data.shapes[0], 0];
  const says = el("p", { class: "says" });
  const exchange = (part) => (part.sent / data.link) * 1e6;
  const rows = () => shape.ways[way].parts.map((part) => ({
    name: plural(part.gpus, "GPU"), parts: [[part.microseconds, "b"], [exchange(part), "sync"]], total: (part.microseconds + exchange(part)).toFixed(0),
    text: `${part.problem.join(" × ")} per GPU: ${part.microseconds.toFixed(1)} µs\n${bytes(part.sent)} sent by each: ${exchange(part).toFixed(1)} µs\n${part.spec}`,
  }));
  const chart = bars("Time of the GEMM on 1, 2, 4 and 8 GPUs", rows, () => Math.max(...shape.ways.flatMap((one) => one.parts.map((part) => part.microseconds + exchange(part)))), " µs");
  const boxes = picture({
    label: "Which part of the output, or of K, each GPU has", height: () => 170,
    draw(context, width) {
      const [w, h, gpus] = [Math.min(width - 20, 420), 130, 4];
      const names = ["N", "K", "M"];
      for (let i = 0; i < gpus; i += 1) {
        const box = way === 2 ? [10, 24 + (h / gpus) * i, w, h / gpus] : [10 + (w / gpus) * i, 24, w / gpus, h];
        context.fillStyle = hue(i, 4);
        context.fillRect(box[0] + 1, box[1] + 1, box[2] - 2, box[3] - 2);
        label(context, `GPU ${i}`, ...box, 12);
      }
      label(context, way === 1 ? `K of A and B: each GPU has partial sums of all of D` : `D, divided along ${names[way]}`, 10, 2, w, 20, 12, colour("soft"));
    },
  });
  function update() { says.textContent = shape.ways[way].says; chart.paint(); boxes.paint(); fill(); }
  const body = el("div", {});
  const fill = () => body.replaceChildren(table(["GPUs", "part of each", "kernel", "GEMM, µs", "sent by each", "exchange, µs", "faster"], shape.ways[way].parts.map((part) => [String(part.gpus), part.problem.join(" × "), el("span", { class: "mono" }, part.spec),
    part.microseconds.toFixed(1), bytes(part.sent), exchange(part).toFixed(1), `${(shape.ways[way].parts[0].microseconds / (part.microseconds + exchange(part))).toFixed(2)} ×`])));
  const shapes = choice("GEMM", data.shapes.map((one) => [one, one.problem.join(" × ")]), shape, (next) => { shape = next; update(); });
  const ways = choice("Way", shape.ways.map((one, i) => [i, one.name]), way, (next) => { way = next; update(); });
  for (const one of [shapes, ways]) one.node.classList.add("wraps");
  put(node, el("div", { class: "bar" }, shapes.node, ways.node), el("div", { class: "two" },
    card("Who has what", null, says, boxes.node),
    card("Time", `Without overlap of computing and exchanging. NVLink: ${(data.link / 1e9).toFixed(0)} GB/s in each direction, as stated for H100 and H200 (SXM).`, chart.node, legend(["var(--b)", "GEMM"], ["var(--sync)", "exchange"]))),
  card("In numbers", null, body));
  if (data.measured.length > 0) put(node, measuredCard(data.measured));
  update();
}

/** Layers that were measured, on one GPU and on several: ours, and NCCL with cuBLASLt. */
function measuredCard(lines) {
  const key = (line) => `${line.layer}, ${line.tokens} tokens, ${line.dtype}`;
  const layers = [...new Set(lines.map(key))];
  let layer = layers[0];
  const shown = () => lines.filter((line) => key(line) === layer);
  const rows = () => shown().flatMap((line) => [["ours", line.ours], ["NCCL + cuBLASLt", line.fastest]].map(([name, time], i) => {
    // What one GPU has is not exchanged.
    const moved = line.ranks > 1 ? Math.min(line.collective, time) : 0;
    return { name: i === 0 ? plural(line.ranks, "GPU") : "cuBLASLt", parts: [[time - moved, i === 0 ? "b" : "other"], [moved, "sync"]], total: time.toFixed(0),
      text: `${plural(line.ranks, "GPU")}, ${name}: ${time.toFixed(1)} µs\n${line.column ? "outputs" : "inputs"} divided: ${line.n} × ${line.k} of all\nthe collective alone: ${line.collective.toFixed(1)} µs` };
  }));
  const chart = bars("Measured time of a layer", rows, () => Math.max(...lines.flatMap((line) => [line.ours, line.fastest])), " µs");
  const which = choice("Layer", layers.map((one) => [one, one]), layer, (next) => { layer = next; chart.paint(); });
  which.node.classList.add("wraps");
  const numbers = table(["layer", "GPUs", "ours, µs", "recorded, µs", "NCCL + cuBLASLt's first, µs", "its fastest, µs", "the collective alone, µs"], lines.map((line) => [key(line), String(line.ranks),
    ...[line.ours, line.recorded, line.first, line.fastest, line.collective].map((time) => time.toFixed(1))]));
  const runs = [...new Set(lines.map((line) => `falchion-parallel ${line.command}`))];
  const { card: name, nccl } = lines[0];
  return card("Measured", `Layers of \`falchion-parallel\`: the slowest GPU, medians; ${name}, NCCL ${nccl}.`, which.node, chart.node,
    legend(["var(--b)", "ours"], ["var(--other)", "cuBLASLt"], ["var(--sync)", "collective"]), numbers, runs.map((run) => el("p", { class: "mono spec" }, run)));
}

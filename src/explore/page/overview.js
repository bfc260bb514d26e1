// The plan: the kernel, the warpgroups of a CTA, and every number.

function overview(kernel) {
  return (self) => {
    const { overview: of, memory, multiply } = kernel;
    const [m, n, k] = of.tile;
    const number = (value, what) => el("div", { class: "number" }, el("b", {}, value), el("span", {}, what));
    const share = (memory.parts.find((part) => part.name === "A")?.bytes ?? 0) / Math.max(1, memory.transaction_bytes);
    const packed = memory.parts.some((part) => part.kind === "a" && part.tile == null);
    const producer = of.warpgroups.find((group) => group.role === "producer");
    const consumers = of.warpgroups.filter((group) => group !== producer);
    const staged = memory.tiles.some((tile) => tile.name === "D");
    const box = (tone, title, says, ...more) => el("div", { class: "box", style: `border-color:var(--${tone})` }, el("b", {}, title), el("span", {}, says), ...more);
    const arrow = (text) => el("div", { class: "arrow" }, text);
    const slots = el("div", { class: "slots", style: `--cut:${(share * 100).toFixed(0)}%`, "aria-hidden": "true" }, Array.from({ length: of.stages }, () => el("i")));
    put(self.node, 
      el("div", {}, el("h1", {}, of.name), el("p", { class: "lead" }, `A kernel for ${of.form}: D = A · B. Tiles of A and B go through shared memory to ${multiply.name === "fma" ? "the arithmetic units" : "the tensor cores"}. Below are the data flow and every number of the plan.`)),
      el("div", { class: "numbers" },
        number(`${m} × ${n} × ${k}`, "tile M × N × K per CTA"),
        number(of.formats.every((format) => format === of.formats[0]) ? of.formats[0] : of.formats.join(", "), `elements; accumulators in ${of.sums}`),
        number(String(of.stages), `stages of ${bytes(memory.stage_bytes)}`),
        number(bytes(of.shared_bytes), `of ${bytes(memory.limit)} shared memory`),
        number(`${of.threads}`, `threads, ${plural(of.warpgroups.length, "warpgroup")}`),
        number(of.cluster.join(" × "), "CTAs per cluster, M × N")),
      card("How a tile flows", "From left to right: a producer fills the stages of a ring. Consumers multiply full stages, and release them when they are read.",
        el("div", { class: "pipe" },
          box("other", "Global memory", `A and B, ${of.formats[0]} and ${of.formats[1]}; L2 caches what several CTAs read${packed ? "; weights are packed in fewer bits" : ""}`),
          arrow(producer?.does.includes("tensor") ?? true ? "TMA" : "threads"),
          box("a", producer ? "Producer" : "Loads", producer ? `${producer.does}; ${producer.registers} registers per thread` : "one thread of the workers starts the copies", ),
          arrow("full"),
          box("sync", "Ring in shared memory", `${plural(of.stages, "stage")}, each with a tile of A, a tile of B and two mbarriers, full and empty`, slots),
          arrow(kernel.multiply.name),
          box("d", plural(consumers.length, "consumer"), `${consumers[0]?.registers} registers per thread, ${multiply.accumulators} of them accumulators for ${multiply.rows} × ${m / multiply.rows / multiply.sharing > 1 ? `${n}, ${multiply.blocks} times` : n}`),
          arrow(staged ? "stmatrix, TMA" : "registers"),
          box("other", "D", staged ? "through a swizzled buffer in shared memory" : "each thread stores its own elements"))),
      el("div", { class: "two" },
        card("Warpgroups", "128 threads each. When the kernel begins, the producer gives registers to the consumers.",
          table(["role", "registers", "what it does"], of.warpgroups.map((group) => [group.role, String(group.registers), group.does]))),
        card("The type", "The kernel as a Rust type, and as the text of a spec for the command line.",
          el("p", { class: "mono" }, of.rust_type), of.spec && el("p", { class: "mono" }, `--spec "${of.spec}"`),
          el("p", { class: "says" }, `Tiles are computed by ${of.schedule}.`))),
      card("The plan", "Every number that follows from the type, as `falchion plan` prints it.",
        table(["number", "value", "note"], of.traits.map(([what, value, why], i) => ({ attributes: { id: `fact-${i}` }, cells: [what, el("span", { class: "mono" }, value), why] })))));
  };
}

/** Marks a row that the search found, and scrolls to it. */
function mark(id) {
  document.querySelectorAll(".found").forEach((node) => node.classList.remove("found"));
  const node = $(id);
  node?.classList.add("found");
  node?.scrollIntoView({ block: "center" });
}

function findFacts({ overview: { traits } }) {
  return (query) => traits.flatMap(([what, value, why], i) => (`${what} ${value} ${why}`.toLowerCase().includes(query)
    ? [{ where: "plan", text: `${what}: ${value}`, go: () => { show("plan"); mark(`fact-${i}`); } }] : []));
}

function startKernel(kernel) {
  panel("plan", "Plan", overview(kernel));
  panel("memory", "Shared memory", memoryPanel(kernel));
  panel("wgmma", kernel.multiply.name, multiplyPanel(kernel));
  panel("order", "Order of tiles", orderPanel(kernel));
  panel("cluster", "Cluster", clusterPanel(kernel));
  panel("timeline", "Timeline", timelinePanel(kernel));
  finders.push(findFacts(kernel), findMemory(kernel), findTiles(kernel), findEvents(kernel));
  helpKeys.push(["← →", "previous or next event of the timeline, wave of tiles, or thread"], ["↑ ↓", "previous or next lane of the timeline"], ["Home End", "first or last step"],
    ["Space", "play or stop"], ["+ −", "zoom in or out, on the timeline"], ["n N", "next or previous match of the search, on the timeline"]);
  glossary.push(
    ["CTA", "a block of threads on one SM, with its own shared memory"], ["cluster", "CTAs that run at the same time and can access each other's shared memory"],
    ["warpgroup", "four warps, 128 threads: the unit that issues wgmma"], ["mbarrier", "a barrier in shared memory that counts arrivals and bytes; when all have arrived, its phase completes and the next begins"],
    ["parity", "the lowest bit of a phase's number; a wait names it"], ["swizzle", "an XOR of address bits that spreads columns over the banks"],
    ["slot", "a place for one resident cluster; all slots run at the same time"], ["wave", "wave n is the n-th work unit of every slot"], ["k-tile", "a step along K: what one stage of the ring holds"], ["TMA", "the unit that copies boxes of matrices asynchronously"]);
}

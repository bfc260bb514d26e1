// The plan: what the kernel is, who works in a CTA, and every number.

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
      el("div", {}, el("h1", {}, of.name), el("p", { class: "lead" }, `A kernel for ${of.form}: D = A · B, in tiles that flow through shared memory to ${multiply.name === "fma" ? "the arithmetic units" : "the tensor cores"}. Below: what flows where, then every number of the plan.`)),
      el("div", { class: "numbers" },
        number(`${m} × ${n} × ${k}`, "tile M × N × K of a CTA"),
        number(of.formats.every((format) => format === of.formats[0]) ? of.formats[0] : of.formats.join(", "), `elements; sums in ${of.sums}`),
        number(String(of.stages), `stages of ${bytes(memory.stage_bytes)}`),
        number(bytes(of.shared_bytes), `of ${bytes(memory.limit)} shared memory`),
        number(`${of.threads}`, `threads, ${plural(of.warpgroups.length, "warpgroup")}`),
        number(of.cluster.join(" × "), "CTAs of a cluster, M × N")),
      card("How a tile flows", "From left to right: a producer fills the stages of a ring, consumers multiply what is full, and give it back empty.",
        el("div", { class: "pipe" },
          box("other", "Global memory", `A and B, ${of.formats[0]} and ${of.formats[1]}; L2 keeps what several CTAs read${packed ? "; weights are packed in fewer bits" : ""}`),
          arrow(producer?.does.includes("tensor") ?? true ? "TMA" : "threads"),
          box("a", producer ? "Producer" : "Loads", producer ? `${producer.does}; ${producer.registers} registers a thread` : "one thread of the workers starts the copies", ),
          arrow("full"),
          box("sync", "Ring in shared memory", `${plural(of.stages, "stage")}, each a tile of A and one of B, with two mbarriers: full and empty`, slots),
          arrow(kernel.multiply.name),
          box("d", plural(consumers.length, "consumer"), `${consumers[0]?.registers} registers a thread, ${multiply.accumulators} of them sums of ${multiply.rows} × ${m / multiply.rows / multiply.sharing > 1 ? `${n}, ${multiply.blocks} times` : n}`),
          arrow(staged ? "stmatrix, TMA" : "registers"),
          box("other", "D", staged ? "through a buffer in shared memory that is swizzled too" : "each thread stores what it has"))),
      el("div", { class: "two" },
        card("Warpgroups", "128 threads each; registers move from the producer to the consumers when the kernel begins.",
          table(["role", "registers", "what it does"], of.warpgroups.map((group) => [group.role, String(group.registers), group.does]))),
        card("The type", "The kernel as a Rust type, and as the text of a spec that the command line takes.",
          el("p", { class: "mono" }, of.rust_type), of.spec && el("p", { class: "mono" }, `--spec "${of.spec}"`),
          el("p", { class: "says" }, `Tiles are computed by ${of.schedule}.`))),
      card("The plan", "Every number that follows from the type, as `falchion plan` prints it.",
        table(["number", "value", "of"], of.facts.map(([what, value, why], i) => ({ attributes: { id: `fact-${i}` }, cells: [what, el("span", { class: "mono" }, value), why] })))));
  };
}

/** Shows a row that was searched for. */
function mark(id) {
  document.querySelectorAll(".found").forEach((node) => node.classList.remove("found"));
  const node = $(id);
  node?.classList.add("found");
  node?.scrollIntoView({ block: "center" });
}

function findFacts({ overview: { facts } }) {
  return (query) => facts.flatMap(([what, value, why], i) => (`${what} ${value} ${why}`.toLowerCase().includes(query)
    ? [{ where: "plan", text: `${what}: ${value}`, go: () => { show("plan"); mark(`fact-${i}`); } }] : []));
}

function startKernel(kernel) {
  panel("plan", "Plan", overview(kernel));
  panel("memory", "Shared memory", memoryPanel(kernel));
  panel("wgmma", kernel.multiply.name, multiplyPanel(kernel));
  panel("order", "Order of tiles", orderPanel(kernel));
  panel("cluster", "Cluster", clusterPanel(kernel));
  panel("timeline", "Time line", timelinePanel(kernel));
  finders.push(findFacts(kernel), findMemory(kernel), findTiles(kernel), findEvents(kernel));
  helpKeys.push(["← →", "a step: an event of the time line, a wave of tiles, a thread"], ["↑ ↓", "the lane of the time line"], ["Home End", "the first or the last step"],
    ["Space", "play or stop"], ["+ −", "closer or further, on the time line"], ["n N", "next or last match of the search, on the time line"]);
  glossary.push(
    ["CTA", "a block of threads on one SM, with shared memory of its own"], ["cluster", "CTAs that run at the same time and reach each other's shared memory"],
    ["warpgroup", "four warps, 128 threads: what issues wgmma"], ["mbarrier", "counts arrivals and bytes in shared memory; when none is missing a phase completes and the next begins"],
    ["parity", "the lowest bit of a phase's number: what a wait names"], ["swizzle", "an XOR of address bits that spreads columns over the banks"],
    ["slot", "a place where a cluster runs; all slots run at once"], ["wave", "wave n is the n-th tile of every slot"], ["k-tile", "a step along K: what one stage of the ring holds"], ["TMA", "the unit that copies boxes of matrices on its own"]);
}

// Shared memory: its parts, and a tile's swizzled layout in the banks.

const CHUNK = 16;
const LINE = 128;

/** The group of banks of a byte. There are 32 banks of 4 bytes; a chunk of 16 bytes covers a group of four adjacent banks. */
const bankGroup = (byte) => Math.floor(byte / CHUNK) % 8;

function memoryPanel(kernel) {
  return (self) => {
    const { memory } = kernel;
    const side = el("div", { class: "out", "aria-live": "polite" }, "Choose a part to see what it holds.");
    const buttons = new Map();
    const view = memory.tiles.length ? tileView(memory) : null;
    self.pickPart = (part) => {
      buttons.forEach((button, own) => button.setAttribute("aria-pressed", String(own === part)));
      side.replaceChildren(details([["part", part.name + (part.stage == null ? "" : ` of stage ${part.stage}`)], ["begins at byte", whole(part.offset)], ["bytes", whole(part.bytes)],
        ["ends before", whole(part.offset + part.bytes)], ...(part.kind === "a" && part.tile == null ? [["holds", "packed weights, which threads widen in registers"]] : [])]));
      if (part.tile != null) view?.choose(part.tile);
    };
    put(self.node, 
      el("div", {}, el("h1", {}, "Shared memory"), el("p", { class: "lead" }, `A CTA uses ${bytes(memory.bytes)} of the ${bytes(memory.limit)} that it can have: first the ring of stages, then the epilogue's buffers, then the mbarriers.`)),
      card("Map", "Each row is a stage, or what follows the stages. Widths are proportional to bytes; very small parts are drawn wider.", partMap(memory, self.pickPart, buttons), side),
      view && card("A tile in the banks", "The first picture shows the tile in matrix order. The second shows the same chunks of 16 bytes in lines of 128 bytes of memory. Rows alternate between eight colours. Point at a chunk to see both of its positions.", view.node),
      card("mbarriers", "Each mbarrier counts arrivals, and bytes that copies write. When all have arrived, its phase completes, and the warps that wait for the parity of this phase continue.",
        el("div", { class: "scroll tall" }, table(["mbarrier", "byte", "a phase completes when"], memory.barriers.map((barrier, i) => ({
          attributes: { id: `barrier-${i}` }, cells: [barrier.name, el("span", { class: "mono" }, whole(barrier.offset)), barrier.meaning] }))))));
    self.keys = (event) => view?.keys(event);
    self.view = view;
  };
}

function findMemory({ memory }) {
  return (query) => [
    ...memory.parts.flatMap((part) => (`${part.name} ${part.stage == null ? "" : `stage ${part.stage}`}`.toLowerCase().includes(query)
      ? [{ where: "memory", text: `${part.name}${part.stage == null ? "" : ` of stage ${part.stage}`}, byte ${whole(part.offset)}`, go: () => show("memory").pickPart(part) }] : [])),
    ...memory.barriers.flatMap((barrier, i) => (`mbarrier ${barrier.name} ${barrier.offset}`.toLowerCase().includes(query)
      ? [{ where: "mbarrier", text: `${barrier.name}, byte ${whole(barrier.offset)}`, go: () => { show("memory"); mark(`barrier-${i}`); } }] : [])),
  ];
}

function partMap(memory, pick, buttons) {
  const rows = new Map();
  for (const part of memory.parts) {
    const name = part.stage != null ? `stage ${part.stage}` : part.kind === "d" ? "epilogue" : "control";
    if (!rows.has(name)) rows.set(name, []);
    rows.get(name).push(part);
  }
  const most = Math.max(memory.stage_bytes, ...[...rows.values()].map((parts) => parts.reduce((sum, part) => sum + part.bytes, 0)));
  return el("div", { class: "map" }, [...rows].flatMap(([name, parts]) => [
    el("div", { class: "name" }, name),
    el("div", { class: "row" }, parts.map((part) => {
      const share = (part.bytes * 100) / most;
      const button = el("button", { type: "button", class: `part ${part.kind}`, "aria-pressed": "false", style: `width:calc(${share.toFixed(2)}% - 2px)`,
        "aria-label": `${part.name}, ${name}, ${part.bytes} bytes at byte ${part.offset}`, title: `${part.name}: ${bytes(part.bytes)} at byte ${whole(part.offset)}`, onclick: () => pick(part) },
        share > Math.max(3, 0.9 * (part.kind === "d" ? 1 : part.name.length)) ? `${part.kind === "d" ? "D" : part.name} ${share > 11 ? bytes(part.bytes) : ""}` : "");
      buttons.set(part, button);
      return button;
    }))]));
}

/** A tile in two pictures: in matrix order, and in memory order. */
function tileView(memory) {
  const WINDOW = 16;
  let [tile, first, chunk, swizzle, over] = [memory.tiles[0], 0, 0, true, null];
  const parsed = new Map(memory.tiles.map((one) => [one, parseLayout(one.layout)]));
  const elements = (one) => (CHUNK * 8) / one.bits;
  const lines = () => Math.min(WINDOW, tile.extents[1] - first);
  const wide = () => tile.chunks[0].length;
  /** The byte offset of a chunk, with or without the swizzle. */
  const place = (line, at) => {
    if (swizzle) return tile.chunks[line][at];
    const along = at * elements(tile);
    return (offsetAt(parsed.get(tile), ...(tile.first_contiguous ? [along, line] : [line, along]), true) * tile.bits) / 8;
  };
  const [alongName, lineName] = [() => tile.directions[0].toLowerCase(), () => tile.directions[1].toLowerCase()];
  const chunkText = (line, at) => {
    const byte = place(line, at);
    const from = at * elements(tile);
    return `${lineName()} ${line}, ${alongName()} ${from} to ${from + elements(tile) - 1}\nbyte ${byte} of the tile: line ${Math.floor(byte / LINE)}, banks ${bankGroup(byte) * 4} to ${bankGroup(byte) * 4 + 3}`;
  };
  /** The group of eight lines that one phase of a read accesses. */
  const group = () => Math.floor((over?.line ?? first) / 8) * 8;
  const selected = (line, at) => at === chunk && Math.floor(line / 8) * 8 === group();

  const TOP = 22, LEFT = 44;
  const cell = (width, count) => Math.min(76, (width - LEFT - 2) / count);
  const drawCell = (context, x, y, w, h, line, at, text) => {
    context.fillStyle = hue(line % 8);
    context.globalAlpha = selected(line, at) || (over && over.line === line && over.at === at) ? 1 : 0.55;
    context.fillRect(x + 0.5, y + 0.5, w - 1, h - 1);
    context.globalAlpha = 1;
    label(context, text, x, y, w, h, 11);
    if (selected(line, at)) { context.strokeStyle = colour("text"); context.lineWidth = 2; context.strokeRect(x + 1.5, y + 1.5, w - 3, h - 3); }
    if (over && over.line === line && over.at === at) { context.strokeStyle = colour("bad"); context.lineWidth = 3; context.strokeRect(x + 1.5, y + 1.5, w - 3, h - 3); }
  };
  const head = (context, text, x, y, w) => { context.fillStyle = colour("soft"); context.textAlign = "center"; context.textBaseline = "alphabetic"; context.font = "11px system-ui, sans-serif"; if (context.measureText(text).width < w) context.fillText(text, x + w / 2, y); };
  const ROW = 24;

  const matrix = picture({
    label: "The tile in matrix order, in chunks of 16 bytes", height: () => TOP + WINDOW * ROW + 4,
    draw(context, width) {
      const w = cell(width, wide());
      for (let at = 0; at < wide(); at += 1) head(context, `${alongName()} ${at * elements(tile)}`, LEFT + at * w, 14, w + 8);
      for (let i = 0; i < lines(); i += 1) {
        head(context, `${lineName()} ${first + i}`, 0, TOP + i * ROW + 16, LEFT);
        for (let at = 0; at < wide(); at += 1) drawCell(context, LEFT + at * w, TOP + i * ROW, w, ROW, first + i, at, `${Math.floor(place(first + i, at) / LINE)}·${bankGroup(place(first + i, at))}`);
      }
    },
    at(x, y, width) {
      const [at, i] = [Math.floor((x - LEFT) / cell(width, wide())), Math.floor((y - TOP) / ROW)];
      if (at < 0 || at >= wide() || i < 0 || i >= lines()) return set(null);
      return set({ line: first + i, at, text: chunkText(first + i, at) });
    },
    pick: (what) => { chunk = what.at; update(); }, key: (event) => keys(event),
  });

  /** The chunks of the window in memory order, and the 128-byte lines that contain them. */
  const laid = () => {
    const all = [];
    for (let i = 0; i < lines(); i += 1) for (let at = 0; at < wide(); at += 1) all.push([place(first + i, at), first + i, at]);
    const numbers = [...new Set(all.map(([byte]) => Math.floor(byte / LINE)))].sort((a, b) => a - b);
    return { all, numbers, row: new Map(numbers.map((number, i) => [number, i])) };
  };
  const memoryPicture = picture({
    label: "The same chunks in shared memory, in lines of 128 bytes, which are 32 banks", height: () => TOP + Math.max(WINDOW, laid().numbers.length) * ROW + 4,
    draw(context, width) {
      const { all, numbers, row } = laid();
      const w = cell(width, 8);
      for (let bank = 0; bank < 8; bank += 1) head(context, `${bank * 4}–${bank * 4 + 3}`, LEFT + bank * w, 14, w + 8);
      numbers.forEach((number, i) => {
        head(context, `${number * LINE}`, 0, TOP + i * ROW + 16, LEFT);
        context.fillStyle = colour("raised");
        context.fillRect(LEFT, TOP + i * ROW + 0.5, w * 8, ROW - 1);
      });
      for (const [byte, line, at] of all) drawCell(context, LEFT + bankGroup(byte) * w, TOP + row.get(Math.floor(byte / LINE)) * ROW, w, ROW, line, at, `${line}·${at}`);
    },
    at(x, y, width) {
      const { all, numbers } = laid();
      const [bank, i] = [Math.floor((x - LEFT) / cell(width, 8)), Math.floor((y - TOP) / ROW)];
      const what = all.find(([byte]) => Math.floor(byte / LINE) === numbers[i] && bankGroup(byte) === bank);
      return what && bank >= 0 ? set({ line: what[1], at: what[2], text: chunkText(what[1], what[2]) }) : set(null);
    },
    pick: (what) => { chunk = what.at; update(); }, key: (event) => keys(event),
  });
  for (const one of [matrix, memoryPicture]) one.node.addEventListener("pointerleave", () => set(null));

  function set(what) {
    const changed = what?.line !== over?.line || what?.at !== over?.at;
    over = what;
    if (changed) { matrix.paint(); memoryPicture.paint(); cost(); }
    return what;
  }

  const says = el("p", { class: "out", "aria-live": "polite" });
  const notation = el("p", { class: "mono" });
  const waves = (start, swizzledNow) => {
    const was = swizzle;
    swizzle = swizzledNow;
    const counts = new Array(8).fill(0);
    for (let i = 0; i < Math.min(8, tile.extents[1]); i += 1) counts[bankGroup(place(start + i, chunk))] += 1;
    swizzle = was;
    return Math.max(...counts);
  };
  function cost() {
    const start = clamp(group(), 0, Math.max(0, tile.extents[1] - 8));
    const [now, other] = [waves(start, true), waves(start, false)];
    const read = `Chunk ${chunk} of ${lineName()} ${start} to ${start + 7}, framed: 8 × 16 bytes, a core matrix, which a quarter of a warp moves at once. `;
    says.textContent = `${read}With the swizzle ${plural(now, "wavefront")}, without it ${plural(other, "wavefront")}${other > now ? `: the XOR spreads the ${other} chunks that would be in the same four banks.` : "."}`;
  }
  function update() {
    notation.textContent = `${tile.format}, ${tile.directions[0]} contiguous: ${tile.layout}${swizzle ? "" : "   (shown without its swizzle)"}`;
    window_.input.max = Math.max(0, Math.ceil(tile.extents[1] / WINDOW) - 1);
    window_.node.hidden = tile.extents[1] <= WINDOW;
    matrix.paint();
    memoryPicture.paint();
    cost();
  }
  const choose = (index) => { tile = memory.tiles[index]; [first, chunk] = [0, 0]; window_.set(0); tiles.set(index, false); update(); };
  const tiles = choice("Tile", memory.tiles.map((one, i) => [i, `${one.name} ${one.extents[1]} × ${one.extents[0]}`]), 0, choose);
  const plain = choice("Swizzle", [[true, "swizzled"], [false, "without"]], true, (on) => { swizzle = on; update(); });
  const window_ = slider("rows, 16 at a time", [0, 7], 0, (value) => { first = value * WINDOW; update(); });
  function keys(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) { chunk = (chunk + step + wide()) % wide(); update(); return true; }
    const down = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!down || tile.extents[1] <= WINDOW || event.target.tagName !== "CANVAS") return false;
    first = clamp(first + down * WINDOW, 0, tile.extents[1] - WINDOW);
    window_.set(Math.floor(first / WINDOW));
    update();
    return true;
  }
  const named = (title, one) => el("div", {}, el("p", { class: "says" }, title), one.node);
  const node = el("div", {}, el("div", { class: "bar" }, tiles.node, plain.node, window_.node), notation,
    el("div", { class: "two" }, named("Matrix: each cell shows line of memory · group of four banks", matrix), named("Memory: each cell shows row of the tile · chunk; columns are banks, and the number at the left is a line's first byte", memoryPicture)), says);
  update();
  return { node, choose, keys, place: (index, line, at, on = true) => { const was = [tile, swizzle]; [tile, swizzle] = [memory.tiles[index], on]; const byte = place(line, at); [tile, swizzle] = was; return byte; } };
}

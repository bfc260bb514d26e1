// The multiplication: the instructions of a tile, and which thread holds which element.

function multiplyPanel(kernel) {
  return (self) => {
    const { multiply } = kernel;
    const parts = instructionView(multiply);
    const fragment = fragmentView(multiply);
    put(self.node, 
      el("div", {}, el("h1", {}, multiply.name), el("p", { class: "lead" }, `A warpgroup multiplies ${multiply.rows} rows at a time, in ${multiply.name === "wgmma" ? plural(multiply.steps, "instruction") : plural(multiply.steps, "step")} along K per stage${multiply.columns.length > 1 ? `, ${multiply.columns.length} side by side` : ""}. ${multiply.name !== "wgmma" ? "Both operands pass through registers" : multiply.a_in_registers ? "A comes from registers" : "Both operands come from shared memory"}; the accumulators stay in registers.`)),
      card(multiply.name === "wgmma" ? "One stage, instruction by instruction" : "One stage, step by step", `The tile of D is in the middle, A at its left, B above it. Each consumer has its own rows. The framed slices along K are what one ${multiply.name === "wgmma" ? "instruction" : "step"} reads${multiply.name === "wgmma" ? "" : `; a step is many ${multiply.name} instructions by all threads of the warpgroup`}.`, parts.node),
      card("Which thread holds which element", "Point at an element, or choose a thread: every element that the thread holds is framed. The pattern repeats every eight columns.", fragment.node));
    self.keys = (event) => fragment.keys(event);
    self.fragment = fragment;
  };
}

function instructionView(multiply) {
  const [m, n, k] = multiply.tile;
  let [step, block] = [0, 0];
  const blocks = m / multiply.rows;
  const owner = (index) => (multiply.takes_turns ? 0 : Math.floor(index / multiply.blocks));
  const says = el("div", { class: "out", "aria-live": "polite" });
  const drawing = picture({
    label: "The tile of D with the slices of A and B that one instruction reads", height: (width) => { const s = scale(width); return 30 + (k + 10 + m) * s + 24; },
    draw(context, width) {
      const s = scale(width);
      const [x0, y0] = [(k + 10) * s + 34, (k + 10) * s + 26];
      const box = (x, y, w, h, fill, alpha = 1) => { context.globalAlpha = alpha; context.fillStyle = fill; context.fillRect(x, y, w, h); context.globalAlpha = 1; };
      const frame = (x, y, w, h, width_ = 2.5) => { context.strokeStyle = colour("text"); context.lineWidth = width_; context.strokeRect(x, y, w, h); };
      for (let i = 0; i < blocks; i += 1) {
        const y = y0 + i * multiply.rows * s;
        box(34, y, k * s, multiply.rows * s - 2, colour("a"), i === block ? 0.75 : 0.35);
        for (const [first, columns] of multiply.columns) box(x0 + first * s, y, columns * s - 2, multiply.rows * s - 2, colour("d"), i === block ? 0.85 : 0.35);
        label(context, multiply.takes_turns ? `block ${i}` : `consumer ${owner(i)}${multiply.blocks > 1 ? `, block ${i % multiply.blocks}` : ""}`, x0, y, n * s, multiply.rows * s, 13);
      }
      for (const [first, columns] of multiply.columns) box(x0 + first * s, 26, columns * s - 2, k * s, colour("b"), 0.45);
      for (let i = 1; i < multiply.steps; i += 1) {
        context.strokeStyle = colour("panel"); context.lineWidth = 1; context.beginPath();
        context.moveTo(34 + i * multiply.k * s, y0); context.lineTo(34 + i * multiply.k * s, y0 + m * s);
        context.moveTo(x0, 26 + i * multiply.k * s); context.lineTo(x0 + n * s, 26 + i * multiply.k * s); context.stroke();
      }
      box(34 + step * multiply.k * s, y0 + block * multiply.rows * s, multiply.k * s, multiply.rows * s - 2, colour("a"));
      box(x0, 26 + step * multiply.k * s, n * s - 2, multiply.k * s, colour("b"), 0.95);
      frame(34 + step * multiply.k * s, y0 + block * multiply.rows * s, multiply.k * s, multiply.rows * s - 2);
      frame(x0, 26 + step * multiply.k * s, n * s - 2, multiply.k * s);
      frame(x0, y0 + block * multiply.rows * s, n * s - 2, multiply.rows * s - 2);
      context.fillStyle = colour("soft"); context.font = "12px system-ui, sans-serif"; context.textBaseline = "alphabetic";
      context.textAlign = "left"; context.fillText(`B: K ${k} × N ${n}`, x0, 18); context.fillText((k + 10) * s > 110 ? `A: M ${m} × K ${k}` : "A", 34, y0 - 8);
    },
    at(x, y, width) {
      const s = scale(width);
      const [x0, y0] = [(k + 10) * s + 34, (k + 10) * s + 26];
      const row = Math.floor((y - y0) / (multiply.rows * s));
      if (row >= 0 && row < blocks && x > 34) {
        const at = Math.floor((x - 34) / (multiply.k * s));
        return { block: row, step: x < 34 + k * s ? at : step, text: x < 34 + k * s ? `rows ${row * multiply.rows} to ${(row + 1) * multiply.rows - 1} of A, k ${at * multiply.k} to ${(at + 1) * multiply.k - 1}` : `rows ${row * multiply.rows} to ${(row + 1) * multiply.rows - 1} of D` };
      }
      const along = Math.floor((y - 26) / (multiply.k * s));
      return x >= x0 && along >= 0 && along < multiply.steps ? { block, step: along, text: `k ${along * multiply.k} to ${(along + 1) * multiply.k - 1} of B` } : null;
    },
    pick: (what) => { [block, step] = [what.block, what.step]; steps.set(step); rows.set(block); update(); },
  });
  const scale = (width) => Math.min((width - 40) / (k + 10 + n), 480 / (k + 10 + m));
  const rowFor = (found) => {
    const start = found.steps[step] + (found.operand === "A" ? found.blocks[block] : 0);
    return [found.operand, found.bits, whole(found.leading_bytes), whole(found.stride_bytes), `${found.swizzle_bytes} B`, `+ ${whole(start)} B`];
  };
  const found = el("div", {});
  function update() {
    const consumer = multiply.takes_turns ? "the consumer whose turn it is" : `consumer ${owner(block)}`;
    says.replaceChildren(details([["instruction", el("span", { class: "mono" }, multiply.instructions.join("; "))], ["issued by", `${consumer}, for rows ${block * multiply.rows} to ${(block + 1) * multiply.rows - 1}`],
      ["reads", `k ${step * multiply.k} to ${(step + 1) * multiply.k - 1}, ${(multiply.k * multiply.element_bits) / 8} bytes of each row`]]));
    found.replaceChildren(multiply.descriptors.length ? table(["operand", "descriptor of the tile", "leading (B)", "stride (B)", "swizzle", "start of this instruction"], multiply.descriptors.map(rowFor)) : "");
    drawing.paint();
  }
  const steps = slider("step along K", [0, multiply.steps - 1], 0, (value) => { step = value; update(); });
  const rows = slider("block of rows", [0, blocks - 1], 0, (value) => { block = value; update(); });
  update();
  return { node: el("div", {}, el("div", { class: "bar" }, steps.node, blocks > 1 && rows.node), el("div", { class: "side" }, drawing.node, says),
    multiply.descriptors.length > 0 && el("p", { class: "says", style: "margin-top:12px" }, "A descriptor tells the hardware where a tile begins, and the strides between its parts, in units of 16 bytes. The descriptors shown are for the first stage, with dynamic shared memory at byte 1024."), found) };
}

/** For a sparse A, the fragment has the stored elements: half the columns that are multiplied. */
function fragmentOfA(layout, bits) {
  const [threads, values] = extents(layout);
  return { layout, rows: 64, columns: (threads * values) / 64, packed: 32 / bits, what: "element of A" };
}

function fragmentView(multiply) {
  const widest = Math.max(...multiply.columns.map(([, columns]) => columns));
  const kinds = {
    d: { layout: parseLayout(multiply.sums), rows: 64, columns: widest, packed: 1, what: "sum" },
    ...(multiply.fragment_a && { a: fragmentOfA(parseLayout(multiply.fragment_a), multiply.element_bits) }),
  };
  for (const kind of Object.values(kinds)) kind.owners = owners(kind.layout, [kind.rows, kind.columns]);
  let [name, thread, first] = ["d", 0, 0];
  const kind = () => kinds[name];
  const owner = (row, column) => kind().owners[row + 64 * column];
  const register = (value) => (kind().packed > 1 ? `register ${Math.floor(value / kind().packed)}, part ${value % kind().packed}` : `register ${value}`);
  const text = (row, column) => {
    const [t, v] = owner(row, column);
    return `row ${row}, ${name === "d" ? "column" : "k"} ${column}\nthread ${t}: lane ${t % 32} of warp ${Math.floor(t / 32)}, ${register(v)}`;
  };
  const warp = (t) => colour(`w${Math.floor(t / 32)}`);
  const says = el("p", { class: "out", "aria-live": "polite" });
  const overviewPicture = picture({
    label: "All elements of one instruction; colours are warps, the frames are those of the chosen thread",
    height: (width) => 64 * Math.max(3, Math.min(7, (width - 2) / kind().columns)),
    draw(context, width, tall) {
      const [w, h] = [Math.min((width - 2) / kind().columns, 14), tall / 64];
      for (let row = 0; row < 64; row += 1) {
        for (let column = 0; column < kind().columns; column += 1) {
          const [t] = owner(row, column);
          context.globalAlpha = t === thread ? 1 : 0.35 + 0.14 * (t % 4);
          context.fillStyle = t === thread ? colour("text") : warp(t);
          context.fillRect(column * w, row * h, Math.ceil(w), Math.ceil(h));
        }
      }
      context.globalAlpha = 1;
      context.strokeStyle = colour("bad"); context.lineWidth = 2;
      context.strokeRect(first * w, windowRow() * h, Math.min(16, kind().columns - first) * w, 16 * h);
    },
    at(x, y, width, tall) {
      const w = Math.min((width - 2) / kind().columns, 14);
      const [column, row] = [Math.floor(x / w), Math.floor((y * 64) / tall)];
      return column >= 0 && column < kind().columns && row >= 0 && row < 64 ? { row, column, text: text(row, column) } : null;
    },
    pick: (what) => { first = clamp(Math.floor(what.column / 8) * 8, 0, Math.max(0, kind().columns - 16)); choose(owner(what.row, what.column)[0]); }, key: (event) => keys(event),
  });
  const windowRow = () => Math.floor(thread / 32) * 16;
  const zoom = picture({
    label: "Sixteen rows of one warp, sixteen columns; each cell shows thread and register", height: () => 18 + 16 * 24,
    draw(context, width) {
      const columns = Math.min(16, kind().columns);
      const w = (width - 52) / columns;
      for (let j = 0; j < columns; j += 1) label(context, String(first + j), 52 + j * w, 0, w, 16, 11, colour("soft"));
      for (let i = 0; i < 16; i += 1) {
        const row = windowRow() + i;
        label(context, `row ${row}`, 0, 18 + i * 24, 52, 24, 11, colour("soft"));
        for (let j = 0; j < columns; j += 1) {
          const [t, v] = owner(row, first + j);
          const [x, y] = [52 + j * w, 18 + i * 24];
          context.globalAlpha = 0.45 + 0.13 * (t % 4);
          context.fillStyle = warp(t);
          context.fillRect(x + 0.5, y + 0.5, w - 1, 23);
          context.globalAlpha = 1;
          if (w > 44) label(context, `T${t} V${v}`, x, y, w, 24, 11); else label(context, `${t}`, x, y, w, 24, 11);
          if (t === thread) { context.strokeStyle = colour("text"); context.lineWidth = 2.5; context.strokeRect(x + 1.5, y + 1.5, w - 3, 21); }
        }
      }
    },
    at(x, y, width) {
      const columns = Math.min(16, kind().columns);
      const [j, i] = [Math.floor((x - 52) / ((width - 52) / columns)), Math.floor((y - 18) / 24)];
      return j >= 0 && j < columns && i >= 0 && i < 16 ? { row: windowRow() + i, column: first + j, text: text(windowRow() + i, first + j) } : null;
    },
    pick: (what) => choose(owner(what.row, what.column)[0]), key: (event) => keys(event),
  });
  const number = el("input", { type: "number", min: 0, max: 127, value: 0, "aria-label": "Thread of the warpgroup", oninput: () => { if (number.value !== "") choose(clamp(Math.floor(Number(number.value)) || 0, 0, 127), false); } });
  function choose(next, tell = true) {
    thread = next;
    if (tell) number.value = thread;
    const [, values] = extents(kind().layout);
    const places = Array.from({ length: values }, (_, v) => { const place = offsetAt(kind().layout, thread, v); return [place % 64, Math.floor(place / 64)]; });
    const rows = [...new Set(places.map(([row]) => row))].sort((a, b) => a - b);
    says.textContent = `Thread ${thread} is lane ${thread % 32} of warp ${Math.floor(thread / 32)}: ${plural(values, kind().what === "sum" ? "accumulator" : "element")}, in rows ${rows.join(" and ")}, ${name === "d" ? "columns" : "k"} ${places.slice(0, 4).map(([, column]) => column).filter((c, i, all) => all.indexOf(c) === i).join(", ")} …, in ${plural(Math.ceil(values / kind().packed), "register")}.`;
    overviewPicture.paint();
    zoom.paint();
  }
  function keys(event) {
    const move = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 4, ArrowUp: -4 }[event.key];
    if (event.key === "Home" || event.key === "End") { choose(event.key === "Home" ? 0 : 127); return true; }
    if (!move || (Math.abs(move) > 1 && event.target.tagName !== "CANVAS")) return false;
    choose((thread + move + 128) % 128);
    return true;
  }
  const notation = el("p", { class: "mono" });
  const which = (next) => { name = next; first = 0; notation.textContent = `(thread, value) → row + 64 · column:  ${layoutText(kind().layout)}`; choose(thread); };
  const kindChoice = choice("Fragment", [["d", `accumulators, 64 × ${widest}`], ...(kinds.a ? [["a", `A from registers, 64 × ${kinds.a.columns}${kinds.a.columns < multiply.k ? ` stored of ${multiply.k}` : ""}`]] : [])], "d", which);
  const node = el("div", {}, el("div", { class: "bar" }, kindChoice.node, el("label", {}, "thread", number)), notation, overviewPicture.node,
    legend(...[0, 1, 2, 3].map((w) => [`var(--w${w})`, `warp ${w}`]), ["var(--text)", "the chosen thread"]), el("div", { style: "height:12px" }), zoom.node, says);
  which("d");
  return { node, keys, choose, owner };
}

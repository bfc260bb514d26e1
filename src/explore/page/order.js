// The order of the output's tiles, wave by wave, and what each wave reads from L2.

const MULTIPLY = 0;

function orderPanel(kernel) {
  return (self) => {
    const { order } = kernel;
    const [rows, columns] = order.grid;
    const work = order.spans.filter(([does]) => does === MULTIPLY);
    const waves = work.reduce((most, span) => Math.max(most, span[9] + 1), 0);
    let [wave, timer, over] = [0, null, null];
    const says = el("div", { class: "out", "aria-live": "polite" });
    const tilesOf = (of) => work.filter((span) => span[9] === of);
    const products = order.products.map((product) => product.join(" × "));

    const LEFT = 16;
    /** Cells have the aspect ratio of the output's tiles, within limits. */
    const aspect = clamp(order.tile[1] / order.tile[0], 0.25, 4);
    const cell = (width) => { const high = Math.max(2 / Math.min(1, aspect), Math.min((width - LEFT - 2) / columns / aspect, 560 / rows, 44)); return [high * aspect, high]; };
    /** The parts of a tile's cell for a work unit: K goes from left to right. A slice has a strip of each CTA's tile. */
    const boxes = (span, [w, h]) => {
      const [, row, column, begin, end] = span;
      const all = Math.max(1, order.k_tiles, end);
      const [x, y, wide] = [LEFT + (column + begin / all) * w, LEFT + row * h, Math.max(1, ((end - begin) / all) * w)];
      if (!isSlice(order, span)) return [[x, y, wide, h]];
      const { along, extent, ctas } = order.sliced;
      return Array.from({ length: ctas }, (_, cta) => {
        const [from, to] = [span[10], span[11]].map((at) => (cta + at / extent) / ctas);
        return along === "columns" ? [x + from * w, y, Math.max(1, (to - from) * w), h] : [x, y + from * h, wide, Math.max(1, (to - from) * h)];
      });
    };
    const grid = picture({
      label: "Tiles of the output, coloured by wave; the tiles of the chosen wave are framed", height: (width) => LEFT + rows * cell(width)[1] + 4,
      draw(context, width) {
        const s = cell(width);
        for (const span of work) {
          for (const [x, y, w, h] of boxes(span, s)) {
            const now = span[9] === wave;
            context.globalAlpha = now ? 1 : span[9] < wave ? 0.75 : 0.25;
            context.fillStyle = now ? colour("b") : ramp(waves > 1 ? span[9] / (waves - 1) : 0.5);
            context.fillRect(x, y, Math.max(1, w - (w > 6 ? 1 : 0.4)), Math.max(1, h - (h > 6 ? 1 : 0.4)));
            context.globalAlpha = 1;
            if (now && h >= 14 && w > 20) label(context, String(span[5]), x, y, w, h, 10, "#10151c");
          }
        }
        // What the wave reads: rows of A at the left, columns of B above.
        const [touchedRows, touchedColumns] = [new Set(tilesOf(wave).map((span) => span[1])), new Set(tilesOf(wave).map((span) => span[2]))];
        for (let row = 0; row < rows; row += 1) { context.fillStyle = touchedRows.has(row) ? colour("a") : colour("idle"); context.fillRect(2, LEFT + row * s[1], 9, Math.max(1, s[1] - 1)); }
        for (let column = 0; column < columns; column += 1) { context.fillStyle = touchedColumns.has(column) ? colour("a") : colour("idle"); context.fillRect(LEFT + column * s[0], 2, Math.max(1, s[0] - 1), 9); }
        for (const [x, y, w, h] of over ? boxes(over, s) : []) { context.strokeStyle = colour("text"); context.lineWidth = 2; context.strokeRect(x, y, w, h); }
      },
      at(x, y, width) {
        const s = cell(width);
        const span = work.find((one) => boxes(one, s).some(([bx, by, w, h]) => x >= bx && x < bx + w && y >= by && y < by + h));
        return span ? { span, text: tileText(span) } : null;
      },
      pick: ({ span }) => { over = span; set(span[9]); }, key: (event) => keys(event),
    });
    const tileText = (span) => {
      const [, row, column, begin, end, slot, worker, start, stop, of] = span;
      return `tile ${row}, ${column}${sliceText(order, span)}: k-tiles ${begin} to ${end - 1}\nwave ${of}, slot ${slot}, worker ${worker}\nfrom ${start} to ${stop}, in k-tiles`;
    };

    const most = Math.max(1, ...order.reuse.map((one) => one.loaded));
    const bars = picture({
      label: "Per wave: the bytes that clusters load, and the distinct bytes among them", height: () => 190,
      draw(context, width, tall) {
        const w = (width - 8) / Math.max(1, order.reuse.length);
        order.reuse.forEach((one, i) => {
          const part = (value) => ((tall - 26) * value) / most;
          context.globalAlpha = i === wave ? 1 : 0.5;
          context.fillStyle = colour("other");
          context.fillRect(4 + i * w + w * 0.12, tall - 20 - part(one.loaded), w * 0.36, part(one.loaded));
          context.fillStyle = colour("a");
          context.fillRect(4 + i * w + w * 0.52, tall - 20 - part(one.distinct), w * 0.36, part(one.distinct));
          context.globalAlpha = 1;
          if (i % Math.ceil(30 / w) === 0) label(context, String(i), 4 + i * w, tall - 18, Math.max(w, 28), 16, 11, colour("soft"));
        });
      },
      at: (x, y, width) => { const i = Math.floor((x - 4) / ((width - 8) / Math.max(1, order.reuse.length))); const one = order.reuse[i]; return one ? { i, text: `wave ${i}: ${bytes(one.loaded)} loaded, ${bytes(one.distinct)} distinct` } : null; },
      pick: ({ i }) => set(i), key: (event) => keys(event),
    });

    const slots = Math.max(1, ...order.spans.map((span) => span[5] + 1));
    const rowHeight = clamp(Math.floor(330 / slots), 2, 18);
    const gantt = picture({
      label: "What each slot does, from left to right in k-tiles", height: () => slots * rowHeight + 18,
      draw(context, width) {
        const scale = width / Math.max(1, order.end);
        for (const [does, , , begin, end, slot, , start, stop, of] of order.spans) {
          context.globalAlpha = of === wave ? 1 : 0.6;
          context.fillStyle = does === 1 ? colour("wait-line") : does === 2 ? colour("sync") : of === wave ? colour("b") : ramp(waves > 1 ? of / (waves - 1) : 0.5);
          context.fillRect(start * scale, slot * rowHeight, Math.max(0.6, (stop - start) * scale - 0.6), Math.max(1, rowHeight - (rowHeight > 3 ? 1 : 0)));
        }
        context.globalAlpha = 1;
        context.fillStyle = colour("soft"); context.font = "11px system-ui, sans-serif"; context.textBaseline = "alphabetic";
        context.textAlign = "left"; context.fillText("0", 0, slots * rowHeight + 14);
        context.textAlign = "right"; context.fillText(`${order.end} k-tiles`, width, slots * rowHeight + 14);
      },
      at(x, y, width) {
        const [slot, time] = [Math.floor(y / rowHeight), (x * order.end) / width];
        const span = order.spans.find((one) => one[5] === slot && time >= one[7] && time < one[8]);
        return span ? { span, text: `${["multiplies", "waits for partial sums of", "adds up"][span[0]]}\n${tileText(span)}` } : slot < slots ? { span: null, text: `slot ${slot} is idle` } : null;
      },
      pick: ({ span }) => { if (span) { over = span; set(span[9]); } }, key: (event) => keys(event),
    });

    function set(next) {
      wave = clamp(next, 0, Math.max(0, waves - 1));
      control.set(wave);
      const now = tilesOf(wave);
      const one = order.reuse[wave];
      const slices = now.filter((span) => isSlice(order, span));
      says.replaceChildren(details([["wave", `${wave} of 0 to ${waves - 1}: ${plural(now.length, "work unit")} on ${plural(order.slots, "slot")}`],
        ...(slices.length ? [["slices", `${slices.length} of them are slices of ${slices[0][11] - slices[0][10]} ${order.sliced.along}`]] : []),
        ["reads", `${plural(new Set(now.map((span) => span[1])).size, "row")} of tiles and ${plural(new Set(now.map((span) => span[2])).size, "column")} of tiles (marked at the edges)`],
        ...(one ? [["loaded", `${bytes(one.loaded)} from L2${one.alone > one.loaded ? `; ${bytes(one.alone)} without multicast` : ""}`],
          ["distinct", `${bytes(one.distinct)}: each byte is used ${(one.loaded / Math.max(1, one.distinct)).toFixed(1)} times while it is in L2`]] : []),
        ...(over ? [["tile", tileText(over).replaceAll("\n", "; ")]] : [])]));
      for (const one of [grid, bars, gantt]) one.paint();
    }
    const stop = () => { clearInterval(timer); timer = null; play.textContent = "▶ play"; play.setAttribute("aria-label", "Play the waves"); };
    const play = el("button", { type: "button", onclick: () => toggle() });
    const toggle = () => {
      if (timer) { stop(); return; }
      if (wave === waves - 1) set(0);
      play.textContent = "■ stop"; play.setAttribute("aria-label", "Stop");
      timer = setInterval(() => { if (wave >= waves - 1 || current !== self) stop(); else set(wave + 1); }, Math.max(120, Math.min(700, 6000 / Math.max(1, waves))));
    };
    stop();
    function keys(event) {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) { set(wave + step); return true; }
      if (event.key === "Home" || event.key === "End") { set(event.key === "Home" ? 0 : waves - 1); return true; }
      if (event.key === " " && event.target.tagName !== "BUTTON") { toggle(); return true; }
      return false;
    }
    self.keys = keys;
    self.goTile = (span) => { over = span; set(span[9]); };
    const control = slider("wave", [0, Math.max(0, waves - 1)], 0, set);
    control.node.classList.add("grow");
    put(self.node, 
      el("div", {}, el("h1", {}, "Order of tiles"), el("p", { class: "lead" }, `${products.length > 1 ? `${products.length} GEMMs` : products[0]} on ${order.sms} SMs: ${rows} × ${columns} tiles of ${order.tile.join(" × ")}, computed by ${order.describe}.`)),
      order.cut && el("p", { class: "note" }, `The order is cut: the page holds the first ${whole(order.spans.length)} of ${whole(order.cut)} spans.`),
      el("div", { class: "side" },
        card("The output, wave by wave", "A slot is a place for one resident cluster; all slots run at the same time. Wave n is the n-th work unit of every slot. Tiles of the chosen wave are bright and show their slot. Earlier tiles are filled, later tiles are pale." + (order.sliced ? ` A slice is drawn as its ${order.sliced.along} of the tile.` : ""),
          el("div", { class: "bar" }, play, control.node), grid.node, legend(["var(--b)", "this wave"], ["var(--a)", "rows of A and columns of B that it reads"])),
        el("div", { class: "stack" }, card("This wave", null, says),
          order.reuse.length ? card("Reuse in L2", "The bytes that the clusters of a wave load, and the distinct bytes among them; the other loads hit in L2. Tiles at the edges count as full tiles.", bars.node, legend(["var(--other)", "loaded"], ["var(--a)", "distinct"]))
            : card("Reuse in L2", "Not counted for several GEMMs: each has its own operands."))),
      card("The slots", "One row per slot. Time goes from left to right, in k-tiles. Gaps are idle time.", gantt.node,
        legend(["var(--b)", "this wave"], ["var(--wait-line)", "waits for partial sums"], ["var(--sync)", "adds up partial sums"])),
      card("In numbers", "As `falchion schedule` prints them.", table(["what", "value"], order.summary.slice(1).map((line) => [line.slice(0, 11).trim(), line.slice(11).trim()]))));
    set(0);
  };
}

/** Whether a work unit is a slice of a tile. */
function isSlice(order, span) {
  return order.sliced !== null && span[11] - span[10] < order.sliced.extent;
}

/** The columns or rows of a slice, as text; nothing for a whole tile. */
function sliceText(order, span) {
  if (!isSlice(order, span)) return "";
  return `, ${order.sliced.along} ${span[10]} to ${span[11] - 1} of ${order.sliced.ctas > 1 ? "each CTA's tile" : "it"}`;
}

function findTiles({ order }) {
  return (query) => {
    const asked = /^(?:tile\s*)?(\d+)\s*[, ]\s*(\d+)$/.exec(query);
    if (!asked) return [];
    const [row, column] = [Number(asked[1]), Number(asked[2])];
    return order.spans.filter((span) => span[0] === MULTIPLY && span[1] === row && span[2] === column)
      .map((span) => ({ where: "order", text: `tile ${row}, ${column}${sliceText(order, span)}: wave ${span[9]}, slot ${span[5]}, k-tiles ${span[3]} to ${span[4] - 1}`, go: () => show("order").goTile(span) }));
  };
}

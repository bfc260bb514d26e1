// The cluster: what each CTA copies, and which CTAs receive it.

function clusterPanel(kernel) {
  return (self) => {
    const { cluster, overview: of } = kernel;
    const [rows, columns] = cluster.shape;
    const alone = rows * columns === 1;
    let chosen = 0;
    const says = el("div", { class: "out", "aria-live": "polite" });
    const rank = (m, n) => m + n * rows;
    const gets = (who) => ({ a: cluster.places.map((_, i) => i).filter((i) => cluster.places[i][0] === cluster.places[who][0]), b: cluster.places.map((_, i) => i).filter((i) => cluster.places[i][1] === cluster.places[who][1]) });
    const drawing = picture({
      label: "The CTAs of the cluster with the slices of A and B in each, coloured by the CTA that copies them", height: (width) => { const { h } = size_(width); return rows * (h + 14) + 34; },
      draw(context, width) {
        const { w, h } = size_(width);
        const who = gets(chosen);
        cluster.places.forEach(([m, n], i) => {
          const [x, y] = [6 + n * (w + 14), 24 + m * (h + 14)];
          context.fillStyle = colour("raised"); context.strokeStyle = i === chosen ? colour("text") : colour("line"); context.lineWidth = i === chosen ? 3 : 1;
          context.fillRect(x, y, w, h); context.strokeRect(x, y, w, h);
          label(context, `CTA ${i}: m ${m}, n ${n}`, x, y + 4, Math.min(w, 150), 22, 13);
          const [top, tall] = [y + 28, h - 36];
          const slice = (px, count, of_, name, index, sender, hot) => {
            const sw = (w - 36) / 2;
            const sh = tall / count;
            context.fillStyle = hue(sender, Math.max(4, rows * columns)); context.globalAlpha = hot ? 1 : 0.3;
            context.fillRect(px, top + index * sh + 1, sw, sh - 2); context.globalAlpha = 1;
            label(context, count > 1 ? `${name}${index} of CTA ${sender}` : name, px, top + index * sh, sw, sh, 12);
            if (hot && sender === chosen) { context.strokeStyle = colour("text"); context.lineWidth = 2; context.strokeRect(px + 1, top + index * sh + 2, sw - 2, sh - 4); }
          };
          for (let j = 0; j < columns; j += 1) slice(x + 12, columns, "A", "A", j, rank(m, j), rank(m, j) === chosen && who.a.includes(i));
          for (let j = 0; j < rows; j += 1) slice(x + 24 + (w - 36) / 2, rows, "B", "B", j, rank(j, n), rank(j, n) === chosen && who.b.includes(i));
          if (m === 0) label(context, `tile ${n} of N`, x, 4, w, 16, 11, colour("soft"));
        });
      },
      at(x, y, width) {
        const { w, h } = size_(width);
        const [n, m] = [Math.floor((x - 6) / (w + 14)), Math.floor((y - 24) / (h + 14))];
        return n >= 0 && n < columns && m >= 0 && m < rows ? { rank: rank(m, n), text: text(rank(m, n)) } : null;
      },
      pick: (what) => set(what.rank), key: (event) => keys(event),
    });
    const size_ = (width) => ({ w: Math.min(430, (width - 12 - 14 * columns) / columns), h: clamp(340 / rows, 96, 170) });
    const list = (ranks) => (ranks.length > 1 ? `CTAs ${ranks.join(", ")}` : `CTA ${ranks[0]}`);
    const text = (i) => `CTA ${i}: tile ${cluster.places[i][0]} along M, ${cluster.places[i][1]} along N of the cluster`;
    function set(next) {
      chosen = (next + cluster.places.length) % cluster.places.length;
      const who = gets(chosen);
      const part = (name, count, all, receivers) => (count > 1 ? `${bytes(all / count)} of ${name} (a ${["", "", "half", "third", "quarter"][count] ?? `${count}th`}), to ${list(receivers)} by multicast` : `all ${bytes(all)} of ${name}, for itself`);
      says.replaceChildren(details([["CTA", text(chosen)], ["copies per stage", part("A", cluster.slices[0], cluster.tile_bytes[0], who.a)], ["and", part("B", cluster.slices[1], cluster.tile_bytes[1], who.b)],
        ["full barrier", cluster.by_copies ? `${plural(cluster.filling, "arrival")} and ${bytes(cluster.transaction_bytes)}, from any CTA` : `${plural(cluster.filling, "arrival")} of copying threads`],
        ["empty barrier", cluster.emptying ? `${plural(cluster.emptying, "arrival")}: the consumers of every CTA that receives its copies` : "none: only the workers fill stages"]]));
      drawing.paint();
    }
    function keys(event) {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) set(chosen + step);
      return Boolean(step);
    }
    self.keys = keys;
    const [a, b] = cluster.tile_bytes;
    const [ownA, ownB] = cluster.slice_bytes;
    put(self.node, 
      el("div", {}, el("h1", {}, "Cluster"), el("p", { class: "lead" }, alone
        ? "The cluster is one CTA: it loads its own tiles of A and B, and shares nothing."
        : `${rows} × ${columns} CTAs run at the same time. CTAs of a row need the same tile of A, and CTAs of a column the same tile of B. Each CTA copies a slice and multicasts it to the others.`)),
      el("div", { class: "numbers" },
        ...[[`${rows} × ${columns}`, "CTAs along M × N"], [bytes(a + b), "operands per CTA and stage"], [bytes(ownA + ownB), "of them copied by the CTA itself"], [`${((a + b) / Math.max(1, ownA + ownB)).toFixed(2)} ×`, "fewer bytes from L2"]]
          .map(([value, what]) => el("div", { class: "number" }, el("b", {}, value), el("span", {}, what)))),
      card("Who copies what", alone ? "A stage of the one CTA." : "Each box is a CTA's stage. Slices have the colour of the CTA that copies them. Choose a CTA: the slices that it sends are bright in every receiver.", drawing.node, says),
      of.swapped && el("p", { class: "note" }, "The kernel computes D's transpose (swap-AB): its A and M are the call's B and N."));
    set(0);
  };
}

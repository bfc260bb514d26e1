// The gallery of layouts, and a box to type a layout.

function startGallery(cards) {
  panel("layouts", "Layouts", galleryPanel(cards));
  helpKeys.push(["← → ↑ ↓", "move to the next cell of the large picture"]);
  finders.push((query) => cards.flatMap((one, i) => (`${one.title} ${one.layout} ${one.sentence}`.toLowerCase().includes(query) ? [{ where: one.group.split(":")[0].slice(0, 12), text: `${one.title}: ${one.layout}`, go: () => { show("layouts").choose(i); scrollTo(0, 0); } }] : [])));
  glossary.push(["shape:stride", "a layout: coordinate (i, j) has offset i · stride₀ + j · stride₁; a mode may itself be a tuple"], ["Sw<B,M,S>", "a swizzle: B bits of the offset, from bit M + S, are XORed onto the B bits from bit M"],
    ["bank", "one of 32 parts of shared memory, 4 bytes wide: a wavefront accesses one word of each bank"], ["TV layout", "a map from (thread, value) to the position of an element in a tile"]);
}

/** The contents of a picture: rows x columns, `text(r, c)` and `tone(r, c)` of a cell. */
function model(layout, view, tile, bits) {
  if (view === "owners") {
    const map = owners(layout, tile);
    const owner = (r, c) => map[r + tile[0] * c];
    return { rows: tile[0], columns: tile[1], text: (r, c) => { const own = owner(r, c); return own ? `T${own[0]}V${own[1]}` : ""; }, short: (r, c) => { const own = owner(r, c); return own ? String(own[0]) : ""; },
      tone: (r, c) => { const own = owner(r, c); return !own ? colour("idle") : extents(layout)[0] > 32 ? shade(Math.floor(own[0] / 32), own[0]) : hue(own[0] % 8); },
      says: (r, c) => { const own = owner(r, c); return own ? `row ${r}, column ${c}: value ${own[1]} of thread ${own[0]}` : `row ${r}, column ${c}: no thread has it`; } };
  }
  const [rows, columns] = extents(layout);
  const bank = (offset) => Math.floor((offset * bits) / 32) % 32;
  const at = (r, c) => offsetAt(layout, r, c);
  const common = { rows, columns, says: (r, c) => `row ${r}, column ${c}: offset ${at(r, c)}${bits ? `, byte ${(at(r, c) * bits) / 8}, bank ${bank(at(r, c))}` : ""}${layout.swizzle ? `; without the swizzle ${offsetAt(layout, r, c, true)}` : ""}` };
  if (view === "banks") return { ...common, text: (r, c) => String(bank(at(r, c))), short: () => "", tone: (r, c) => hue(Math.floor(bank(at(r, c)) / 4)) };
  const period = rows * columns <= 8 ? 8 : Math.max(1, rows);
  return { ...common, text: (r, c) => String(at(r, c)), short: () => "", tone: (r, c) => hue(Math.floor(at(r, c) / Math.max(1, period)) % 8) };
}

/** A picture of a model; `over` gives the chosen cell. */
function drawModel(context, of, width, tall, over) {
  const [w, h] = [width / of.columns, tall / of.rows];
  for (let r = 0; r < of.rows; r += 1) {
    for (let c = 0; c < of.columns; c += 1) {
      context.fillStyle = of.tone(r, c);
      context.fillRect(c * w, r * h, Math.max(0.8, w - (w > 5 ? 1 : 0)), Math.max(0.8, h - (h > 5 ? 1 : 0)));
      if (w > 17 && h > 11) { context.font = "11px ui-monospace, monospace"; label(context, context.measureText(of.text(r, c)).width < w - 3 ? of.text(r, c) : of.short(r, c), c * w, r * h, w, h, 11); }
    }
  }
  if (over) { context.strokeStyle = colour("text"); context.lineWidth = 2.5; context.strokeRect(over.c * w + 1, over.r * h + 1, Math.max(3, w - 3), Math.max(3, h - 3)); }
}

function galleryPanel(cards) {
  return (self) => {
    let [of, over, chosen] = [null, null, 0];
    const input = el("input", { type: "text", id: "layout", value: "", spellcheck: "false", autocomplete: "off", "aria-describedby": "layout-error", oninput: () => { chosen = null; press(); update(); } });
    const view = el("select", { id: "view", onchange: () => update() }, el("option", { value: "offsets" }, "offsets"), el("option", { value: "banks" }, "banks"), el("option", { value: "owners" }, "owners (thread, value)"));
    const bits = el("select", { id: "bits", onchange: () => update() }, [8, 16, 32].map((count) => el("option", { value: count }, `${count} bits`)));
    const tile = el("input", { type: "text", id: "tile", value: "64x16", oninput: () => update(), size: 8 });
    const tileField = el("label", {}, "tile", tile);
    const bitsField = el("label", {}, "element", bits);
    const error = el("p", { class: "error", id: "layout-error", role: "alert" });
    const says = el("div", { class: "out", "aria-live": "polite" });
    const title = el("p", { class: "says" });
    const large = picture({
      label: "The layout: one cell per coordinate, rows down, columns to the right", height: (width) => (of ? clamp((width / of.columns) * of.rows, 34 * Math.min(of.rows, 2), Math.max(Math.min(of.rows * 24, 780), Math.min(of.rows * 6, 900))) : 40),
      draw(context, width, tall) { if (of) drawModel(context, of, width, tall, over); },
      at(x, y, width, tall) { if (!of) return null; const [r, c] = [Math.floor((y * of.rows) / tall), Math.floor((x * of.columns) / width)]; return r >= 0 && c >= 0 && r < of.rows && c < of.columns ? { r, c, text: of.says(r, c) } : null; },
      pick: (what) => { over = what; tell(); }, key: (event) => keys(event),
    });
    const wide = el("div", { class: "scroll" }, large.node);
    function tell() { says.textContent = of && over ? of.says(over.r, over.c) : of ? `${plural(of.rows, "row")}, ${plural(of.columns, "column")}. Point at a cell, or use the arrow keys.` : ""; large.paint(); }
    function update() {
      bitsField.hidden = view.value !== "banks";
      tileField.hidden = view.value !== "owners";
      try {
        const layout = parseLayout(input.value);
        const extent = /^\s*(\d+)\s*x\s*(\d+)\s*$/i.exec(tile.value);
        if (view.value === "owners" && !extent) throw new Error("a tile is written 64x16");
        const [rows, columns] = view.value === "owners" ? [Number(extent[1]), Number(extent[2])] : extents(layout);
        if (rows * columns > MOST_CELLS || !rows || !columns) throw new Error(`${whole(rows)} × ${whole(columns)} cells are no picture: 1 to ${whole(MOST_CELLS)} were needed`);
        of = model(layout, view.value, [rows, columns], Number(bits.value));
        error.textContent = "";
        input.removeAttribute("aria-invalid");
      } catch (wrong) {
        of = null;
        error.textContent = `${wrong.message[0].toUpperCase()}${wrong.message.slice(1)}.`;
        input.setAttribute("aria-invalid", "true");
      }
      over = null;
      large.node.style.minWidth = of && of.columns > 40 ? `${of.columns * (view.value === "owners" ? 8 : 5)}px` : "";
      large.node.style.maxWidth = of ? `${of.columns * 92}px` : "";
      large.node.hidden = !of;
      tell();
    }
    function keys(event) {
      const [dr, dc] = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key] ?? [0, 0];
      if (!of || (!dr && !dc) || event.target !== large.node) return false;
      over = over ? { r: clamp(over.r + dr, 0, of.rows - 1), c: clamp(over.c + dc, 0, of.columns - 1) } : { r: 0, c: 0 };
      tell();
      return true;
    }
    self.keys = keys;
    const buttons = cards.map((one, i) => {
      const shown = model(parseLayout(one.layout), one.view, one.tile, one.bits);
      const small = picture({ label: `Picture of ${one.title}`, height: (width) => clamp((width / shown.columns) * shown.rows, 40, 150), draw: (context, width, tall) => drawModel(context, shown, width, tall, null) });
      small.node.tabIndex = -1;
      return el("button", { type: "button", class: "card", "aria-pressed": "false", onclick: () => { self.choose(i); scrollTo({ top: 0 }); } }, el("b", {}, one.title), el("span", { class: "notation" }, one.layout), small.node, el("small", {}, one.sentence));
    });
    const press = () => { buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === chosen))); title.textContent = chosen == null ? "Your own layout." : `${cards[chosen].title}. ${cards[chosen].sentence}`; };
    self.choose = (i) => {
      const one = cards[i];
      chosen = i;
      [input.value, view.value] = [one.layout, one.view];
      if (one.bits) bits.value = one.bits;
      if (one.tile) tile.value = one.tile.join("x");
      press();
      update();
    };
    const groups = [...new Set(cards.map((one) => one.group))];
    put(self.node, 
      el("div", {}, el("h1", {}, "Layouts"), el("p", { class: "lead" }, "A layout is a function from coordinates to offsets, written shape:stride. Choose one below, or type your own.")),
      el("section", { class: "card" },
        el("div", { class: "typed" }, el("label", { class: "wide" }, "layout, such as (4,8):(8,1) or Sw<3,3,3> o 0 o (8,64):(64,1)", input), el("label", {}, "show", view), bitsField, tileField),
        error, title, wide, says),
      ...groups.map((group) => el("section", {}, el("h2", {}, group), el("div", { class: "cards", style: "margin-top:10px" }, cards.flatMap((one, i) => (one.group === group ? [buttons[i]] : []))))));
    bits.value = 16;
    self.choose(0);
  };
}

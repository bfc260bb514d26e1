// The timeline of an emulated run: lanes of warps and asynchronous engines, step by step, with the ring's stages and mbarriers.

const [LANE, LABEL, START, END, STAGE, SCOPES, SITE, NOTE, BARRIER] = [0, 1, 2, 3, 4, 5, 6, 7, 8];

function timelinePanel(kernel) {
  return (self) => {
    const { run, memory, run_note: note } = kernel;
    put(self.node, el("div", {}, el("h1", {}, "Timeline"), el("p", { class: "lead" }, run
      ? `A run of ${run.problem} in the emulator, step by step: which warps work, which wait for an mbarrier, and what is in flight.`
      : "No run was recorded.")));
    if (note) put(self.node, el("p", { class: "note" }, note));
    if (!run) return;
    if (run.trap) put(self.node, el("p", { class: "note bad" }, `The run ended in a fault: ${run.trap}`));
    if (run.cut != null) put(self.node, el("p", { class: "note", id: "cut" }, `The timeline is cut: the page holds the first ${whole(run.events.length)} of ${whole(run.events_in_all)} events, up to step ${whole(run.cut)}.`));
    timeline(self, run, memory);
  };
}

/** The colour of an event. */
function eventColour(word, kind) {
  if (word.startsWith("wait") || word === "poll") return "wait";
  if (kind === "loads") return "a";
  if (kind === "multiplies") return "d";
  if (kind === "stores") return "b";
  return { compute: "other", "issue copies": "a", "issue wgmma": "d", synchronise: "sync", "shared memory": "b", "global memory": "b" }[word] ?? "other";
}

const eventText = (run, event) => {
  const words = (index) => (index < 0 ? "" : run.words[index]);
  return { label: words(event[LABEL]), scopes: words(event[SCOPES]), site: words(event[SITE]), note: words(event[NOTE]) };
};

function findEvents({ run }) {
  if (!run) return () => [];
  return (query) => {
    const hit = run.words.map((word) => word.toLowerCase().includes(query));
    const lane = run.lanes.map((one) => one.name.toLowerCase().includes(query));
    const stage = /^stage (\d+)$/.exec(query);
    const rows = [];
    run.events.forEach((event, index) => {
      const found = stage ? event[STAGE] === Number(stage[1]) : lane[event[LANE]] || [LABEL, SCOPES, SITE, NOTE].some((column) => event[column] >= 0 && hit[event[column]]);
      if (!found) return;
      const { label: name, note } = eventText(run, event);
      rows.push({ where: `step ${whole(event[START])}`, text: `${run.lanes[event[LANE]].name}: ${name}${event[STAGE] >= 0 ? `, stage ${event[STAGE]}` : ""}${note ? ` · ${note}` : ""}`, index, go: () => show("timeline").goEvent(index, query) });
    });
    return rows;
  };
}

function timeline(self, run, memory) {
  const last = run.cut ?? run.steps;
  let [step, from, to, cta, everyWarp, picked, chosenLane, timer, matches] = [0, 0, last, 0, false, null, 0, null, []];
  const byLane = run.lanes.map(() => []);
  run.events.forEach((event, index) => byLane[event[LANE]].push(index));
  const barrierName = new Map(memory.barriers.map((barrier) => [barrier.offset, barrier]));
  const edges = [...new Set(run.events.flatMap((event) => [event[START], event[END]]))].sort((a, b) => a - b).filter((edge) => edge <= last);
  /** The rows shown: the first warp of each warpgroup, or all warps. */
  const rows = () => run.lanes.map((lane, index) => ({ ...lane, index })).filter((lane) => {
    const warp = /^warp (\d+)/.exec(lane.name);
    return lane.cta === cta && (everyWarp || !warp || Number(warp[1]) % 4 === 0);
  });
  const at = (lane, now) => byLane[lane].find((index) => run.events[index][START] <= now && now < run.events[index][END]);
  const phase = (offset, now) => { const of = run.phases.find(([own, place]) => own === cta && place === offset); return of ? of[2].filter((when) => when <= now).length : 0; };

  const describe = (event) => {
    const { label: name, note } = eventText(run, event);
    const barrier = barrierName.get(event[BARRIER]);
    return `${name}${event[STAGE] >= 0 ? `, stage ${event[STAGE]}` : ""}${barrier ? ` (${barrier.name})` : ""}${note ? `\n${note}` : ""}\nsteps ${whole(event[START])} to ${whole(event[END])}`;
  };
  const TOP = 20;
  /** Engines with many rows have low rows. */
  const tall = (lane) => (lane.kind === "loads" || lane.kind === "stores" ? 14 : 24);
  /** The top of each shown row, and the bottom of the last one. */
  const tops = (lanes) => lanes.reduce((all, lane) => [...all, all[all.length - 1] + tall(lane)], [TOP]);
  const left = (width) => (width < 520 ? 84 : 168);
  const short = (name, width) => (width < 520 ? name.replace("tensor loads", "TMA").replace("tensor stores", "store").replace("wgmma of warpgroup", "wgmma").replace("producer", "prod").replace("consumer", "cons").replace("warp ", "w") : name);
  const drawing = picture({
    className: "zoom", label: "Lanes of warps and asynchronous engines, from left to right in steps of the emulator; the line is the current step", height: () => tops(rows()).at(-1) + 6,
    draw(context, width, bottom) {
      const x0 = left(width);
      const scale = (width - x0) / Math.max(1, to - from);
      const x = (when) => x0 + (when - from) * scale;
      const lanes = rows();
      const starts = tops(lanes);
      const tones = Object.fromEntries(["wait", "a", "b", "d", "sync", "other", "wait-line", "text", "line", "idle", "soft", "bad", "accent", "raised"].map((name) => [name, colour(name)]));
      context.fillStyle = tones.soft; context.font = "11px system-ui, sans-serif"; context.textBaseline = "alphabetic";
      const least = Math.max(1, ((to - from) * 80) / (width - x0));
      const power = 10 ** Math.floor(Math.log10(least));
      const every = [1, 2, 5, 10].map((of) => of * power).find((of) => of >= least);
      context.textAlign = "center";
      for (let tick = Math.ceil(from / every) * every; tick <= to; tick += every) { context.fillText(whole(tick), clamp(x(tick), x0 + 12, width - 18), 12); context.fillStyle = tones.line; context.fillRect(x(tick), TOP - 4, 1, bottom); context.fillStyle = tones.soft; }
      const found = new Set(matches);
      lanes.forEach((lane, i) => {
        const [y, ROW] = [starts[i], tall(lane)];
        if (lane.index === chosenLane) { context.fillStyle = tones.raised; context.fillRect(0, y, width, ROW); }
        context.fillStyle = tones.text; context.textAlign = "left"; context.textBaseline = "middle";
        context.font = `${lane.index === chosenLane ? "600 " : ""}${ROW < 20 ? 11 : 12}px system-ui, sans-serif`;
        context.fillText(short(lane.name, width), 4, y + ROW / 2, x0 - 8);
        for (const index of byLane[lane.index]) {
          const event = run.events[index];
          if (event[END] < from || event[START] > to) continue;
          const [a, b] = [Math.max(x0, x(event[START])), Math.min(width, x(event[END]))];
          const tone = eventColour(run.words[event[LABEL]], lane.kind);
          context.fillStyle = tones[tone];
          const wide = Math.max(0.7, b - a - (b - a > 3 ? 0.6 : 0));
          if (tone === "wait") { context.fillRect(a, y + 8, wide, ROW - 16); context.fillStyle = tones["wait-line"]; context.fillRect(a, y + ROW / 2, wide, 1); } else context.fillRect(a, y + ROW / 8, wide, (ROW * 3) / 4);
          if (event[STAGE] >= 0 && b - a > 13) label(context, String(event[STAGE]), a, y, b - a, ROW, ROW < 20 ? 10 : 11, tone === "wait" ? tones.text : "#10151c");
          if (found.has(index)) { context.strokeStyle = tones.bad; context.lineWidth = 2; context.strokeRect(a + 1, y + 2, Math.max(2, wide - 2), ROW - 4); }
          if (index === picked) { context.strokeStyle = tones.text; context.lineWidth = 2; context.strokeRect(a, y + 2, Math.max(2, wide), ROW - 4); }
        }
      });
      if (step >= from && step <= to) { context.fillStyle = tones.accent; context.fillRect(Math.min(width - 2, x(step)), TOP - 6, 2, bottom); }
    },
    at(px, py, width) {
      const lanes = rows();
      const lane = lanes[tops(lanes).findLastIndex((top) => top <= py)];
      if (!lane) return null;
      const x0 = left(width);
      const when = from + ((px - x0) * (to - from)) / (width - x0);
      const slack = ((to - from) / (width - x0)) * 2;
      const index = px < x0 ? undefined : at(lane.index, when) ?? byLane[lane.index].find((one) => run.events[one][START] - slack <= when && when < run.events[one][END] + slack);
      return { lane: lane.index, when: px < x0 ? step : when, index, text: `${lane.name}${index != null ? `\n${describe(run.events[index])}` : ""}` };
    },
    pick: (what) => { chosenLane = what.lane; picked = what.index ?? null; set(Math.round(what.when)); }, key: (event) => keys(event),
  });
  drag(drawing.node);
  function drag(node) {
    const touches = new Map();
    let [moved, spread] = [0, 0];
    node.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.shiftKey) return;
      event.preventDefault();
      const box = node.getBoundingClientRect();
      zoom(event.deltaY < 0 || event.deltaX < 0 ? 0.8 : 1.25, from + ((event.clientX - box.left - left(box.width)) / (box.width - left(box.width))) * (to - from));
    }, { passive: false });
    node.addEventListener("pointerdown", (event) => { touches.set(event.pointerId, event.clientX); moved = 0; spread = 0; });
    node.addEventListener("pointermove", (event) => {
      if (!touches.has(event.pointerId)) return;
      const before = touches.get(event.pointerId);
      touches.set(event.pointerId, event.clientX);
      if (touches.size === 2) {
        const [a, b] = [...touches.values()];
        if (spread) zoom(spread / Math.max(20, Math.abs(a - b)), (from + to) / 2);
        spread = Math.max(20, Math.abs(a - b));
        return;
      }
      moved += Math.abs(event.clientX - before);
      if (moved > 4) shift(((before - event.clientX) * (to - from)) / (drawing.width() - left(drawing.width())));
    });
    for (const end of ["pointerup", "pointercancel", "pointerleave"]) node.addEventListener(end, (event) => touches.delete(event.pointerId));
    node.addEventListener("click", (event) => { if (moved > 4) event.stopImmediatePropagation(); }, true);
  }
  function window_(a, b) {
    const wide = clamp(b - a, 20, Math.max(20, last));
    from = clamp(a, 0, Math.max(0, last - wide));
    to = from + wide;
    drawing.paint();
  }
  const zoom = (factor, around = step) => window_(around - (around - from) * factor, around + (to - around) * factor);
  const shift = (by) => window_(from + by, to + by);
  const follow = () => { if (step < from || step > to) { const wide = to - from; window_(step - wide / 3, step + (wide * 2) / 3); } };

  const doing = el("div");
  const ring = el("div", { class: "ring" });
  const selected = el("div", { class: "out", "aria-live": "polite" });
  const others = el("div");
  function set(next, keep = true) {
    step = clamp(Math.round(next), 0, last);
    if (!keep) picked = null;
    position.input.value = step;
    position.input.setAttribute("aria-valuetext", `step ${step} of ${last}`);
    now.textContent = `${whole(step)} / ${whole(last)}`;
    follow();
    drawing.paint();
    doing.replaceChildren(table(["lane", "does", "since"], rows().map((lane) => {
      const index = at(lane.index, step);
      const event = index == null ? null : run.events[index];
      const word = event ? run.words[event[LABEL]] : "";
      const barrier = event && barrierName.get(event[BARRIER]);
      return { attributes: { class: lane.index === chosenLane ? "picked" : "" }, cells: [lane.name, event ? el("span", {}, el("i", { style: `background:var(--${eventColour(word, lane.kind) === "wait" ? "wait-line" : eventColour(word, lane.kind)})` }), `${word}${barrier ? ` ${barrier.name}` : event[STAGE] >= 0 ? `, stage ${event[STAGE]}` : ""}`) : el("span", { style: "color:var(--soft)" }, "nothing"), event ? whole(event[START]) : ""] };
    }), { class: "doing" }));
    drawRing();
    const event = picked == null ? null : run.events[picked];
    selected.replaceChildren(event ? details(eventRows(event)) : "Choose an event in the picture, or step with the arrow keys.");
  }
  function eventRows(event) {
    const { label: name, scopes, site, note } = eventText(run, event);
    const barrier = barrierName.get(event[BARRIER]);
    return [["event", `${run.lanes[event[LANE]].name}: ${name}`], ["steps", `${whole(event[START])} to ${whole(event[END])}, ${plural(event[END] - event[START], "step")}`],
      ...(event[STAGE] >= 0 ? [["stage", String(event[STAGE])]] : []), ...(barrier ? [["mbarrier", `${barrier.name}: ${barrier.meaning}`]] : []), ...(note ? [["detail", note]] : []),
      ...(scopes ? [["scope", scopes]] : []), ...(site ? [["source", el("span", { class: "mono" }, site)]] : [])];
  }
  /** The state of each stage. A stage that was filled once more than it was emptied is full. */
  function drawRing() {
    const active = run.lanes.flatMap((lane, index) => (lane.cta === cta ? [at(index, step)] : [])).filter((index) => index != null).map((index) => run.events[index]);
    const waiting = (offset) => active.filter((event) => event[BARRIER] === offset).length;
    const named = (name) => memory.barriers.find((barrier) => barrier.name === name);
    const line = (barrier) => { if (!barrier) return null; const done = phase(barrier.offset, step); return el("div", {}, `${barrier.name.split(" ")[0]}: phase ${done} (parity ${done % 2})`, waiting(barrier.offset) ? el("span", { class: "waits" }, ` · ${plural(waiting(barrier.offset), "warp")} wait`) : null); };
    ring.replaceChildren(...Array.from({ length: memory.stages }, (_, stage) => {
      const [full, empty] = [named(`full ${stage}`), named(`empty ${stage}`)];
      const of = (kind) => active.some((event) => event[STAGE] === stage && run.lanes[event[LANE]].kind === kind);
      const filled = full ? phase(full.offset, step) : 0;
      const freed = empty ? phase(empty.offset, step) : null;
      const state = of("multiplies") ? "read" : of("loads") ? "filling" : freed == null ? (filled ? "full" : "") : filled > freed ? "full" : "";
      const word = { read: "wgmma reads it", filling: "copies arrive", full: "full", "": "empty" }[state];
      return el("div", { class: `stage ${state}`, "data-stage": stage, "data-full": filled, "data-empty": freed ?? "" }, el("div", { class: "top" }, el("b", {}, `stage ${stage}`), el("span", {}, word)), line(full), line(empty));
    }));
    const rest = memory.barriers.filter((barrier) => !/^(full|empty) \d/.test(barrier.name));
    others.replaceChildren(rest.length ? table(["other mbarriers", "phase", "parity", "waiting"], rest.map((barrier) => { const done = phase(barrier.offset, step); return [barrier.name, String(done), String(done % 2), waiting(barrier.offset) ? plural(waiting(barrier.offset), "warp") : ""]; })) : "");
  }

  const stop = () => { clearInterval(timer); timer = null; play.textContent = "play"; play.setAttribute("aria-label", "Play"); };
  const play = el("button", { type: "button", onclick: () => toggle() });
  const toggle = () => {
    if (timer) { stop(); return; }
    if (step >= last) set(0);
    play.textContent = "stop"; play.setAttribute("aria-label", "Stop");
    timer = setInterval(() => { if (step >= last || current !== self) stop(); else advance(1); }, 160);
  };
  stop();
  /** Goes to the next or the previous step in which an event begins or ends. */
  function advance(direction) {
    const next = direction > 0 ? edges.find((edge) => edge > step) ?? last : edges.findLast((edge) => edge < step) ?? 0;
    const index = at(chosenLane, next);
    picked = index ?? null;
    set(next);
  }
  /** Goes to the next or the previous event of the chosen lane. */
  function alongLane(direction) {
    const own = byLane[chosenLane];
    const next = direction > 0 ? own.find((index) => run.events[index][START] > step) : own.findLast((index) => run.events[index][START] < step);
    if (next == null) return;
    picked = next;
    set(run.events[next][START]);
  }
  function toMatch(direction) {
    if (!matches.length) return;
    const at_ = matches.indexOf(picked);
    picked = matches[(at_ + direction + matches.length) % matches.length];
    reveal(picked);
  }
  function reveal(index) {
    const event = run.events[index];
    const lane = run.lanes[event[LANE]];
    [cta, chosenLane, picked] = [lane.cta, event[LANE], index];
    if (!rows().some((row) => row.index === chosenLane)) { everyWarp = true; warps.setAttribute("aria-pressed", "true"); }
    chooser?.set(cta, false);
    set(event[START]);
  }
  self.goEvent = (index, query) => {
    matches = query ? findEvents({ run })(query).map((row) => row.index) : [];
    counted.textContent = matches.length ? `${plural(matches.length, "match")} of “${query}”: n and N go through them`.replace("matchs", "matches") : "";
    reveal(index);
    drawing.node.focus({ preventScroll: true });
  };
  function keys(event) {
    const direction = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (direction) { if (event.shiftKey) alongLane(direction); else advance(direction); return true; }
    const down = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (down && event.target === drawing.node) {
      const all = rows();
      const index = clamp(all.findIndex((lane) => lane.index === chosenLane) + down, 0, all.length - 1);
      chosenLane = all[index].index;
      picked = at(chosenLane, step) ?? null;
      set(step);
      return true;
    }
    if (event.key === "Home" || event.key === "End") { set(event.key === "Home" ? 0 : last, false); return true; }
    if (event.key === " " && event.target.tagName !== "BUTTON") { toggle(); return true; }
    if (event.key === "+" || event.key === "=") { zoom(0.6); return true; }
    if (event.key === "-") { zoom(1.6); return true; }
    if (event.key === "0") { window_(0, last); return true; }
    if (event.key === "n" || event.key === "N") { toMatch(event.key === "n" ? 1 : -1); return true; }
    return false;
  }
  self.keys = keys;
  self.state = () => ({ step, picked, cta, from, to, last });

  const button = (text, name, act) => el("button", { type: "button", "aria-label": name, title: name, onclick: act }, text);
  const now = el("output", { class: "mono", "aria-live": "off" });
  const position = { input: el("input", { type: "range", min: 0, max: last, value: 0, "aria-label": "Step of the run", oninput: () => set(Number(position.input.value), false) }) };
  const warps = el("button", { type: "button", "aria-pressed": "false", onclick: () => { everyWarp = !everyWarp; warps.setAttribute("aria-pressed", String(everyWarp)); set(step); } }, "all warps");
  const chooser = run.ctas.length > 1 ? choice("CTA", run.ctas.map((place, i) => [i, `CTA ${place.filter((_, axis) => axis === 0 || place[axis]).join(",")}`]), 0, (next) => { cta = next; chosenLane = rows()[0]?.index ?? 0; picked = null; set(step); }) : null;
  const counted = el("p", { class: "says", "aria-live": "polite" });
  chosenLane = rows()[0]?.index ?? 0;
  put(self.node, 
    card("Work and waits", "One row per warp, and per asynchronous engine (tensor copies, wgmma). Numbers are stages of the ring. Steps are the emulator's, not time: they show order and overlap. Drag to move; pinch, or press + and −, to zoom.",
      el("div", { class: "bar" }, button(icon("M2 2h2v12H2zM14 2v12L5 8z"), "To the beginning", () => set(0, false)), button(icon("M12 2v12L3 8z"), "One event back", () => advance(-1)), play, button(icon("M4 2v12l9-6z"), "One event on", () => advance(1)), button(icon("M12 2h2v12h-2zM2 2v12l9-6z"), "To the end", () => set(last, false)),
        el("label", { class: "grow" }, "step", position.input), now),
      el("div", { class: "bar" }, chooser?.node, warps, button("+", "Closer", () => zoom(0.6)), button("−", "Further", () => zoom(1.6)), button("all", "The whole run", () => window_(0, last))),
      counted, drawing.node,
      legend(["var(--wait)", "waits"], ["var(--a)", "copies in"], ["var(--d)", "wgmma"], ["var(--sync)", "barriers and fences"], ["var(--b)", "reads and writes of memory"], ["var(--other)", "computes"])),
    card("The ring at this step", "Each stage has two mbarriers: full counts how often the stage was filled, empty how often it was released. A wait names the parity of the phase that it waits for.", ring, others),
    el("div", { class: "two" }, card("Every lane at this step", null, el("div", { class: "scroll tall" }, doing)), card("The chosen event", null, selected,
      run.banks.length ? el("div", { style: "margin-top:14px" }, el("h2", {}, "Banks"), el("p", { class: "says" }, "Warps' accesses to shared memory: the wavefronts that they took, and the wavefronts that their bytes need without conflicts."),
        table(["instruction", "in", "wavefronts", "needed"], run.banks.map((one) => [el("span", { class: "mono" }, one.instruction), one.place, whole(one.wavefronts), whole(one.ideal)]))) : null)));
  // Begin at the first multiplication, where there is something to see.
  const first = run.events.find((event) => run.lanes[event[LANE]].kind === "multiplies");
  set(first ? first[START] + 1 : 0);
}

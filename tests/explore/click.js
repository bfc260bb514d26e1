// Clicks and types through a page as a reader does, and reports the result to the server of the page.
(async () => {
  const $ = (id) => document.getElementById(id);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const data = JSON.parse($("data").textContent);
  let checks = 0;
  const check = (held, what) => { checks += 1; if (!held) wrong.push(what); };
  const wait = (time) => new Promise((done) => setTimeout(done, time));
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  /** Waits until pictures have had the frames that they need: without a window, time may run ahead of them. */
  const settle = async () => {
    await wait(60);
    for (let frames = 0; frames < 100 && !all("canvas", panel() ?? document).every((canvas) => canvas.hidden || !canvas.offsetWidth || drawn(canvas)); frames += 1) {
      await frame();
      await wait(10);
    }
  };
  const key = (name, target = document.activeElement ?? document.body, more = {}) =>
    target.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true, ...more }));
  const type = (input, text) => { input.focus(); input.value = text; input.dispatchEvent(new Event("input", { bubbles: true })); };
  const named = (name, within = document) => all("button", within).find((button) => (button.getAttribute("aria-label") ?? button.textContent) === name);
  const panel = () => all("[role=tabpanel]").find((one) => !one.hidden);

  /** A picture is drawn if its pixels are not all alike. */
  const drawn = (canvas) => {
    if (!canvas.width || !canvas.height) return false;
    const words = new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer);
    return words.some((word) => word !== words[0]);
  };
  /** What holds of every section, whatever is in it. */
  const sound = (where) => {
    check(document.documentElement.scrollWidth <= innerWidth, `${where}: ${document.documentElement.scrollWidth} pixels wide, the window ${innerWidth}`);
    check(panel().innerText.trim().length > 40, `${where}: the section is empty`);
    check(!/undefined|NaN|\[object|Infinity/.test(panel().innerText), `${where}: ${/.{0,40}(undefined|NaN|\[object|Infinity).{0,20}/.exec(panel().innerText)?.[0]}`);
    for (const canvas of all("canvas", panel())) {
      if (canvas.hidden || !canvas.offsetWidth) continue;
      check(drawn(canvas), `${where}: nothing is drawn in “${canvas.getAttribute("aria-label")}”`);
      check(canvas.getAttribute("aria-label") && canvas.tabIndex >= -1, `${where}: a picture without a name`);
    }
    for (const button of all("button", panel())) check((button.getAttribute("aria-label") ?? button.textContent).trim(), `${where}: a button without a name`);
  };
  /** Text against what lies under it, as WCAG counts it. */
  const contrast = (where) => {
    const numbers = (colour) => colour.match(/[\d.]+/g).map(Number);
    const light = (colour) => { const [r, g, b] = numbers(colour).map((v) => { const c = v / 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const under = (node) => { for (let at = node; at; at = at.parentElement) { const [, , , alpha = 1] = numbers(getComputedStyle(at).backgroundColor); if (alpha > 0.99) return getComputedStyle(at).backgroundColor; } return "rgb(255, 255, 255)"; };
    for (const node of all("p, td, th, dt, dd, h1, h2, span, b, button, label", panel())) {
      if (!node.offsetWidth || ![...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim())) continue;
      const [a, b] = [light(getComputedStyle(node).color), light(under(node))];
      const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      check(ratio >= 3.9, `${where}: “${node.textContent.trim().slice(0, 40)}” has contrast ${ratio.toFixed(2)}`);
    }
  };

  async function kernelPage() {
    const { kernel } = data;
    const tabs = all("#tabs [role=tab]");
    check(tabs.length === 6, `${tabs.length} sections, 6 were needed`);
    for (const tab of tabs) {
      tab.click();
      await settle();
      check(tab.getAttribute("aria-selected") === "true" && panel()?.id === tab.getAttribute("aria-controls"), `${tab.id}: a click does not open it`);
      sound(tab.id);
      for (let times = 0; times < 2; times += 1) { $("theme").click(); await settle(); contrast(`${tab.id}, ${document.documentElement.dataset.theme}`); sound(`${tab.id}, ${document.documentElement.dataset.theme}`); }
    }
    // The digits open the sections, the arrow keys go from tab to tab, "t" changes the colours.
    for (let i = tabs.length; i >= 1; i -= 1) { key(String(i), document.body); check(tabs[i - 1].getAttribute("aria-selected") === "true", `key ${i} does not open section ${i}`); }
    key("ArrowDown", tabs[0]);
    check(tabs[1].getAttribute("aria-selected") === "true" && document.activeElement === tabs[1], "an arrow key does not go to the next tab");
    const before = document.documentElement.dataset.theme;
    key("t", document.body);
    check(document.documentElement.dataset.theme !== before, "key t does not change the colours");
    await plan(kernel); await memory(kernel); await multiply(kernel); await order(kernel); await cluster(kernel); await timeline(kernel);
    await found(kernel);
  }

  async function plan({ overview }) {
    $("tab-plan").click();
    await settle();
    overview.traits.forEach(([what, value], i) => check($(`fact-${i}`)?.innerText.includes(value), `the plan's row “${what}” does not say ${value}`));
  }

  async function memory({ memory: of }) {
    $("tab-memory").click();
    await settle();
    const parts = all("button.part", panel());
    check(parts.length === of.parts.length, `${parts.length} parts are drawn, the plan has ${of.parts.length}`);
    parts.forEach((part, i) => {
      part.click();
      const says = panel().querySelector(".out").innerText.replaceAll(",", "");
      check(part.getAttribute("aria-pressed") === "true" && says.includes(String(of.parts[i].offset)) && says.includes(String(of.parts[i].bytes)), `part ${i} does not say where it lies: ${says}`);
    });
    const without = named("without", panel());
    if (without) {
      const pictures = all("canvas", panel());
      for (const tile of all("[aria-label=Tile] button", panel())) {
        tile.click();
        const swizzled = named("swizzled", panel());
        swizzled.click();
        const was = pictures.map((picture) => picture.toDataURL());
        without.click();
        const differs = pictures.some((picture, i) => picture.toDataURL() !== was[i]);
        const one = of.tiles[all("[aria-label=Tile] button", panel()).indexOf(tile)];
        check(differs === one.swizzle_bytes > 16, `tile ${one.name} in rows of ${one.swizzle_bytes} bytes: its picture ${differs ? "changes" : "stays"} without the swizzle`);
        swizzled.click();
      }
      const start = pictures[0].toDataURL();
      key("ArrowRight", pictures[0]);
      check(of.tiles.at(-1).chunks[0].length === 1 || pictures[0].toDataURL() !== start, "an arrow key does not go to the next chunk");
    }
    check(of.barriers.every((_, i) => $(`barrier-${i}`)), "not every mbarrier has a row");
  }

  async function multiply({ multiply: of }) {
    $("tab-wgmma").click();
    await settle();
    const steps = panel().querySelector("input[type=range]");
    const says = panel().querySelector(".out");
    for (let step = 0; step < of.steps; step += 1) { type(steps, String(step)); check(says.innerText.includes(`k ${step * of.k} to ${(step + 1) * of.k - 1}`), `step ${step} of K says ${says.innerText}`); }
    const thread = panel().querySelector("input[type=number]");
    const chosen = all(".out", panel()).at(-1);
    for (const lane of [0, 37, 127]) { type(thread, String(lane)); check(chosen.innerText.startsWith(`Thread ${lane} is lane ${lane % 32} of warp ${Math.floor(lane / 32)}`), `thread ${lane} says ${chosen.innerText}`); }
    key("ArrowRight", all("canvas", panel()).at(-1));
    check(chosen.innerText.startsWith("Thread 0 "), `the thread after 127 says ${chosen.innerText}`);
    for (const kind of all("[aria-label=Fragment] button", panel())) { kind.click(); check(kind.getAttribute("aria-pressed") === "true", "a fragment is not chosen"); }
  }

  async function order({ order: of }) {
    $("tab-order").click();
    await settle();
    const slide = panel().querySelector("input[type=range]");
    const says = panel().querySelector(".out");
    const waves = of.spans.filter(([does]) => does === 0).reduce((most, span) => Math.max(most, span[9] + 1), 0);
    check(Number(slide.max) === waves - 1, `the slider ends at ${slide.max}, there are ${waves} waves`);
    key("End", document.body);
    check(Number(slide.value) === waves - 1, "End does not go to the last wave");
    key("Home", document.body);
    for (let wave = 0; wave < Math.min(waves, 5); wave += 1) {
      check(Number(slide.value) === wave, `the slider says ${slide.value}, wave ${wave} was due`);
      const pieces = of.spans.filter((span) => span[0] === 0 && span[9] === wave).length.toLocaleString("en");
      check(says.innerText.includes(`${pieces} work unit`), `wave ${wave} says ${says.innerText}, it has ${pieces} work units`);
      key("ArrowRight", document.body);
    }
    key("Home", document.body);
    // Slices are said to be slices, in their wave and where their tile is found.
    const isSlice = (span) => of.sliced && span[0] === 0 && span[11] - span[10] < of.sliced.extent;
    const slice = of.spans.find(isSlice);
    if (slice) {
      type(slide, String(slice[9]));
      const count = of.spans.filter((span) => isSlice(span) && span[9] === slice[9]).length;
      check(says.innerText.includes(`${count} of them are slices`), `${count} slices were due: ${says.innerText}`);
      type($("query"), `${slice[1]},${slice[2]}`);
      const columns = `${of.sliced.along} ${slice[10]} to ${slice[11] - 1} of`;
      check($("results").innerText.includes(columns), `“${columns}” is not among ${$("results").innerText}`);
      key("Escape", $("query"));
      key("Home", document.body);
    } else check(!says.innerText.includes("slices"), `no tile is sliced: ${says.innerText}`);
    named("Play the waves", panel()).click();
    await wait(1600);
    check(waves === 1 || Number(slide.value) > 0, "the waves do not play");
    named("Stop", panel())?.click();
  }

  async function cluster({ cluster: of }) {
    $("tab-cluster").click();
    await settle();
    const says = panel().querySelector(".out");
    of.places.forEach((_, i) => { check(says.innerText.includes(`CTA ${i}:`), `CTA ${i} was due: ${says.innerText}`); key("ArrowRight", document.body); });
    check(says.innerText.includes("CTA 0:"), "the arrow keys do not go round the cluster");
  }

  async function timeline({ run, run_note: note, memory: of }) {
    $("tab-timeline").click();
    await settle();
    if (!run) { check(note && panel().innerText.includes(note), "no run, and no word why"); return; }
    const slide = panel().querySelector("input[type=range]");
    const now = () => Number(slide.value);
    const last = run.cut ?? run.steps;
    check(Number(slide.max) === last, `the slider ends at ${slide.max}, the run at ${last}`);
    const edges = [...new Set(run.events.flatMap((event) => [event[2], event[3]]))].filter((edge) => edge <= last).sort((a, b) => a - b);
    named("To the beginning", panel()).click();
    check(now() === 0, "the first button does not go to step 0");
    // Forward by the button, back by the key: both must visit every event edge.
    for (let i = 0, steps = edges.filter((edge) => edge > 0); i < 25 && i < steps.length; i += 1) { named("One event on", panel()).click(); check(now() === steps[i], `after ${i + 1} clicks the step is ${now()}, ${steps[i]} was due`); }
    const back = edges.filter((edge) => edge < now()).reverse();
    for (let i = 0; i < 10 && i < back.length; i += 1) { key("ArrowLeft", document.body); check(now() === back[i], `the left key goes to ${now()}, ${back[i]} was due`); }
    key("End", document.body);
    check(now() === last, "End does not go to the last step");
    // The phases of a stage's barriers, as recorded, at some steps.
    for (const at of [0, 0.2, 0.5, 0.9].map((part) => Math.round(part * last))) {
      type(slide, String(at));
      all("[data-stage]", panel()).forEach((stage, i) => {
        const full = of.barriers.find((barrier) => barrier.name === `full ${i}`);
        const phases = run.phases.find(([cta, offset]) => cta === 0 && offset === full?.offset)?.[2] ?? [];
        check(Number(stage.dataset.full) === phases.filter((when) => when <= at).length, `step ${at}: stage ${i} was filled ${stage.dataset.full} times`);
      });
      check(panel().querySelector("output").textContent.startsWith(at.toLocaleString("en")), `step ${at} is not what the page says`);
    }
    const picture = panel().querySelector("canvas");
    const whole = picture.toDataURL();
    named("Closer", panel()).click();
    check(picture.toDataURL() !== whole, "“Closer” does not change the picture");
    key("0", document.body);
    const lanes = all("table.doing tbody tr", panel()).length;
    const warps = named("all warps", panel());
    warps.click();
    check(all("table.doing tbody tr", panel()).length > lanes, "“all warps” adds no row");
    warps.click();
    picture.focus();
    const chosen = () => panel().querySelector("tr.picked td")?.textContent;
    const lane = chosen();
    key("ArrowDown", picture);
    check(lanes < 2 || chosen() !== lane, "the down key does not go to the next lane");
    const box = picture.getBoundingClientRect();
    picture.dispatchEvent(new MouseEvent("click", { clientX: box.left + box.width * 0.6, clientY: box.top + 30, bubbles: true }));
    check(now() > 0 && now() < last, `a click into the picture goes to step ${now()}`);
    for (const cta of all("[aria-label=CTA] button", panel())) { cta.click(); check(all("table.doing tbody tr", panel()).length > 0, `${cta.textContent} has no lanes`); }
    named("To the beginning", panel()).click();
    key(" ", document.body);
    await wait(900);
    check(now() > 0, "Space does not play the time line");
    key(" ", document.body);
    const stopped = now();
    await wait(500);
    check(now() === stopped, "Space does not stop the time line");
  }

  async function found({ run }) {
    const list = () => all("#results [role=option]");
    key("/", document.body);
    check(document.activeElement === $("query"), "the key / does not go to the search");
    type($("query"), "no such thing anywhere");
    check(list().length === 0 && $("results").innerText.includes("Nothing"), "what is nowhere is found");
    const jump = async (query, tab) => {
      type($("query"), query);
      check(list().length > 0, `“${query}” is not found`);
      key("Enter", $("query"));
      await settle();
      check($(`tab-${tab}`).getAttribute("aria-selected") === "true", `“${query}” does not lead to ${tab}`);
    };
    await jump("contiguous directions", "plan");
    check(document.querySelector("tr.found")?.innerText.includes("contiguous"), "the row found is not marked");
    await jump("0,0", "order");
    if (data.kernel.memory.barriers.length) await jump("mbarrier full 0", "memory");
    if (run) {
      // Kernels without mbarriers wait at barriers of their warps.
      await jump(["wait for mbarrier", "wait for barrier"].find((word) => run.words.includes(word)) ?? "synchronise", "timeline");
      const slide = panel().querySelector("input[type=range]");
      const first = slide.value;
      const picture = panel().querySelector("canvas");
      for (let i = 0; i < 400 && slide.value === first; i += 1) key("n", picture);
      check(slide.value !== first, "n does not go to the next match");
    }
    type($("query"), "stage");
    const chosen = () => list().findIndex((row) => row.getAttribute("aria-selected") === "true");
    key("ArrowDown", $("query"));
    check(chosen() === 1, `the down key in the search chooses row ${chosen()}`);
    key("Escape", $("query"));
    check($("results").hidden && $("query").value === "", "Escape does not end the search");
  }

  async function galleryPage() {
    const cards = all(".cards button.card");
    check(cards.length === data.gallery.length, `${cards.length} layouts, ${data.gallery.length} were needed`);
    for (let times = 0; times < 2; times += 1) { $("theme").click(); await settle(); sound("gallery"); contrast(`gallery, ${document.documentElement.dataset.theme}`); }
    cards.forEach((card, i) => { card.click(); check($("layout").value === data.gallery[i].layout && card.getAttribute("aria-pressed") === "true", `layout ${i} is not chosen`); check($("layout-error").textContent === "", `${data.gallery[i].layout}: ${$("layout-error").textContent}`); });
    const large = panel().querySelector(".typed").parentElement.querySelector("canvas");
    const says = panel().querySelector(".out");
    const view = (name) => { $("view").value = name; $("view").dispatchEvent(new Event("change")); };
    view("offsets");
    type($("layout"), "(4,8):(8,1)");
    await settle();
    // From the corner two down and three to the right: 2 x 8 + 3.
    for (const name of ["ArrowRight", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowDown", "ArrowDown"]) key(name, large);
    check(says.innerText.includes("row 2, column 3: offset 19"), `(4,8):(8,1) at 2, 3 says ${says.innerText}`);
    type($("layout"), "Sw<3,3,3> o 0 o (8,64):(64,1)");
    for (const name of ["ArrowRight", "ArrowDown"]) key(name, large);
    check(/offset 72\b[^;]*; without the swizzle 64/.test(says.innerText), `the swizzle at 1, 0 says ${says.innerText}`);
    for (const [text, needed] of [["(4,8", "not closed"], ["(4,8):(8)", "not nested alike"], ["(0,8):(8,1)", "extent is 0"], ["(4096,4096):(1,4096)", "no picture"], ["", "type a layout"], ["Sw<9,9>", "a swizzle is written"], ["(4,8):(8,1)x", "follows the strides"]]) {
      type($("layout"), text);
      check($("layout-error").innerText.toLowerCase().includes(needed) && $("layout").getAttribute("aria-invalid") === "true", `“${text}” says ${$("layout-error").innerText}`);
    }
    type($("layout"), "((4,8,4),(2,2,4)):((128,1,16),(64,8,512))");
    view("owners");
    type($("tile"), "64x32");
    check($("layout-error").textContent === "" && !large.hidden, `owners: ${$("layout-error").textContent}`);
    type($("tile"), "8x8");
    check($("layout-error").textContent.includes("outside of a tile"), `a tile too small says ${$("layout-error").textContent}`);
    type($("tile"), "wide");
    check($("layout-error").textContent.includes("64x16"), `no tile says ${$("layout-error").textContent}`);
    view("banks");
    type($("layout"), "(8,8):(8,1)");
    check($("layout-error").textContent === "" && drawn(large), "banks are not drawn");
    type($("query"), "swizzle");
    key("Enter", $("query"));
    check(/swizzle/i.test(panel().innerText) && $("layout").value !== "(8,8):(8,1)", "the search does not choose a layout");
  }

  async function tourPage() {
    const { tour } = data;
    const tabs = all("#tabs [role=tab]");
    check(tabs.length === tour.stops.length + 1 && tour.stops.length === 7, `${tabs.length} panels`);
    for (const [at, tab] of tabs.entries()) {
      key(String(at), document.body);
      await settle();
      check(tab.getAttribute("aria-selected") === "true", `key ${at} does not open its stop`);
      for (let times = 0; times < 2; times += 1) { $("theme").click(); await settle(); contrast(`${tab.id}, ${document.documentElement.dataset.theme}`); sound(`${tab.id}, ${document.documentElement.dataset.theme}`); }
      const choices = all("[aria-label='What to look at'] button", panel());
      const stop = tour.stops[at - 1];
      check(at === 0 || choices.length === stop.choices.length, `${tab.id}: ${choices.length} choices`);
      const seen = new Set();
      for (const [i, pick] of choices.entries()) {
        pick.click();
        await settle();
        sound(`${tab.id}, ${pick.textContent}`);
        check(panel().querySelector(".spec").textContent.includes(stop.choices[i].spec), `${tab.id}: the spec is not that of ${pick.textContent}`);
        check(all("h1", panel()).length === 1, `${tab.id}: more than one title`);
        seen.add(all("canvas", panel()).filter((canvas) => !canvas.hidden && canvas.offsetWidth).map((canvas) => canvas.toDataURL()).join());
      }
      check(seen.size === choices.length, `${tab.id}: ${choices.length} choices have ${seen.size} different pictures`);
    }
    $("tab-card").click();
    await settle();
    for (const [i, button] of all("[aria-label=Card] button", panel()).entries()) {
      button.click();
      const of = tour.cards[i];
      const slide = panel().querySelector("input[type=range]");
      for (const ctas of [1, 4, 8]) { type(slide, String(ctas)); check(panel().querySelector(".out").innerText.includes(`${of.sms - ctas * of.clusters[ctas - 1]} of ${of.sms} SMs`), `${of.name}: ${panel().querySelector(".out").innerText}`); }
      sound(`card ${of.name}`);
    }
    $("tab-node").click();
    await settle();
    for (const [i, shape] of all("[aria-label=GEMM] button", panel()).entries()) for (const [j, way] of all("[aria-label=Way] button", panel()).entries()) {
      shape.click(); way.click();
      sound(`node ${shape.textContent} ${way.textContent}`);
      const parts = tour.node.shapes[i].ways[j].parts;
      check(parts.every((part) => panel().innerText.includes(part.microseconds.toFixed(1))), `node ${shape.textContent} ${way.textContent}: a time is missing`);
    }
    named("Back to the start", panel()).click();
    check(tabs[0].getAttribute("aria-selected") === "true", "the last stop does not lead to the start");
    type($("query"), "swizzle");
    key("Enter", $("query"));
    check(tabs[3].getAttribute("aria-selected") === "true", "the search does not open a stop");
  }

  async function familyPage() {
    const { family } = data;
    const tabs = all("#tabs [role=tab]");
    check(tabs.length === 3, `${tabs.length} sections, 3 were needed`);
    for (const [at, tab] of tabs.entries()) {
      key(String(at + 1), document.body);
      await settle();
      check(tab.getAttribute("aria-selected") === "true", `key ${at + 1} does not open its section`);
      for (let times = 0; times < 2; times += 1) { $("theme").click(); await settle(); contrast(`${tab.id}, ${document.documentElement.dataset.theme}`); sound(`${tab.id}, ${document.documentElement.dataset.theme}`); }
    }
    tabs[0].click();
    await settle();
    family.numbers.forEach(([what, value], i) => check($(`fact-${i}`)?.innerText.includes(value), `the row “${what}” does not say ${value}`));
    for (const product of family.blocks.products) check(panel().innerText.includes(product), `the product ${product} is missing`);
    for (const [what, count] of family.statements) check(panel().innerText.includes(count.toLocaleString("en")), `${what} is not counted`);
    tabs[1].click();
    await settle();
    const [grid] = all("canvas", panel());
    const box = grid.getBoundingClientRect();
    const { needed } = family.blocks;
    needed.forEach((row, i) => row.forEach((kind, j) => {
      const [x, y] = [box.left + ((j + 0.5) * box.width) / row.length, box.top + ((i + 0.5) * box.height) / needed.length];
      grid.dispatchEvent(new PointerEvent("pointermove", { clientX: x, clientY: y, bubbles: true }));
      check($("tip").textContent.includes(["left out", "masked", "whole"][kind]), `block ${i}, ${j}: “${$("tip").textContent}”`);
    }));
    type($("query"), "producer");
    key("Enter", $("query"));
    check(tabs[2].getAttribute("aria-selected") === "true", "the search does not open the timeline");
  }

  try {
    await settle();
    if (data.kernel) await kernelPage(); else if (data.family) await familyPage(); else if (data.tour) await tourPage(); else await galleryPage();
    key("?", document.body);
    check($("help").open && $("help").innerText.includes("search"), "the key ? does not open the help");
    check(document.documentElement.scrollWidth <= innerWidth, "the help is wider than the window");
    all("#help button").at(-1).click();
    await settle();
    check(!$("help").open, "the help does not close");
    const loaded = performance.getEntriesByType("resource").map((one) => one.name).filter((name) => !name.startsWith("data:"));
    check(loaded.length === 0, `the page loaded ${loaded}`);
  } catch (thrown) { wrong.push(`the clicks stopped: ${thrown.stack}`); }
  await fetch("/verdict", { method: "POST", body: `${checks} checks\n${wrong.join("\n")}` });
})();

// Elements, canvases, tabs, keys and search, which every panel uses.

const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);

/** An element: attributes (`on…` are listeners, `class` is its class), then children. */
function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false && value != null) node.setAttribute(key, value);
  }
  return put(node, ...children);
}

/** Appends children; null and false are skipped. */
function put(node, ...children) {
  node.append(...children.flat().filter((child) => child != null && child !== false));
  return node;
}

/** Makes text between backticks code. */
const rich = (text) => text.split("`").map((part, i) => (i % 2 ? el("code", {}, part) : part));

/** A small icon for a button, from a path in a square of 16. */
function icon(path) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  for (const [key, value] of Object.entries({ viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true" })) node.setAttribute(key, value);
  const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
  line.setAttribute("d", path);
  line.setAttribute("fill", "currentColor");
  node.append(line);
  return node;
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const dark = () => document.documentElement.dataset.theme === "dark";

/** One of `count` distinct hues. */
const hue = (index, count = 8) => `hsl(${(index * 360) / count + 210} ${dark() ? "52% 46%" : "68% 74%"})`;

/** A warp's colour, paler for each further lane in a group of four. */
const shade = (warp, lane) => `hsl(${[212, 36, 160, 270][warp % 4]} ${dark() ? 45 : 65}% ${dark() ? 32 + (lane % 4) * 5 : 84 - (lane % 4) * 5}%)`;

/** A colour from early (0) to late (1). */
const ramp = (part) =>
  dark() ? `hsl(${215 - part * 45} 55% ${26 + part * 38}%)` : `hsl(${205 + part * 25} 62% ${88 - part * 44}%)`;

function bytes(count) {
  if (count >= 1e9) return `${(count / 1e9).toFixed(2)} GB`;
  if (count >= 1e6) return `${(count / 1e6).toFixed(1)} MB`;
  return count % 1024 === 0 && count > 0 ? `${count / 1024} KiB` : `${count.toLocaleString("en")} B`;
}
const whole = (number) => number.toLocaleString("en");
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const plural = (count, word) => `${whole(count)} ${word}${count === 1 ? "" : "s"}`;

// ---- Themes ----

const redraws = new Set();
const redraw = () => redraws.forEach((draw) => draw());

function theme() {
  const media = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try { chosen = localStorage.getItem("falchion-theme"); } catch { /* a page from a file may have no storage */ }
  const button = $("theme");
  const apply = () => {
    const now = chosen ?? (media.matches ? "dark" : "light");
    document.documentElement.dataset.theme = now;
    button.textContent = now === "dark" ? "☀" : "☾";
    button.setAttribute("aria-label", now === "dark" ? "Light colours" : "Dark colours");
    button.title = button.getAttribute("aria-label");
    redraw();
  };
  button.addEventListener("click", () => {
    chosen = dark() ? "light" : "dark";
    try { localStorage.setItem("falchion-theme", chosen); } catch { /* then the choice holds for this view only */ }
    apply();
  });
  media.addEventListener("change", apply);
  apply();
}

// ---- Tooltips ----

function tip(text, x, y) {
  const node = $("tip");
  node.hidden = !text;
  if (!text) return;
  node.textContent = text;
  const box = node.getBoundingClientRect();
  node.style.left = `${clamp(x + 14, 6, Math.max(6, innerWidth - box.width - 6))}px`;
  node.style.top = `${y + 18 + box.height > innerHeight ? y - box.height - 12 : y + 18}px`;
}

// ---- Canvases ----

/**
 * A canvas as wide as its container. `height(width)` is its height in pixels. `draw(context, width, height)` draws it. `at(x, y)` returns
 * what is at a point, `{text, …}`, or null. `pick(what)` is called on a click. `key(event)` handles keys and returns whether it did.
 */
function picture({ label, height, draw, at, pick, key, className = "" }) {
  const node = el("canvas", { role: "img", "aria-label": label, tabindex: 0, class: className });
  let [width, tall] = [0, 0];
  const paint = () => {
    // Draw a newly shown panel now: its size is observed only with the next frame.
    width ||= Math.floor(node.clientWidth);
    if (!width || !node.isConnected) return;
    tall = height(width);
    const ratio = devicePixelRatio || 1;
    node.width = Math.round(width * ratio);
    node.height = Math.round(tall * ratio);
    node.style.height = `${tall}px`;
    const context = node.getContext("2d");
    context.scale(ratio, ratio);
    context.font = "12px system-ui, sans-serif";
    draw(context, width, tall);
  };
  new ResizeObserver(([entry]) => {
    const now = Math.floor(entry.contentRect.width);
    // Paint later: the height follows from the width, and a height that changes here would be observed again.
    if (now && now !== width) { width = now; setTimeout(paint); }
  }).observe(node);
  const found = (event) => {
    const box = node.getBoundingClientRect();
    return at?.(event.clientX - box.left, event.clientY - box.top, width, tall) ?? null;
  };
  node.addEventListener("pointermove", (event) => {
    const what = found(event);
    tip(what?.text, event.clientX, event.clientY);
    node.style.cursor = what && pick ? "pointer" : "default";
  });
  node.addEventListener("pointerleave", () => tip(""));
  if (pick) node.addEventListener("click", (event) => { const what = found(event); if (what) pick(what); });
  if (key) node.addEventListener("keydown", (event) => { if (key(event)) { event.preventDefault(); event.stopPropagation(); } });
  redraws.add(paint);
  return { node, paint, width: () => width };
}

/** Draws text in a box of a canvas if it fits. */
function label(context, text, x, y, width, height, size = 12, fill = colour("text")) {
  context.font = `${size}px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace`;
  if (context.measureText(text).width > width - 2 || size > height) return;
  context.fillStyle = fill;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillText(text, x + width / 2, y + height / 2 + 0.5);
}

// ---- Parts of panels ----

const card = (title, says, ...children) =>
  el("section", { class: "card" }, el("h2", {}, title), says && el("p", { class: "lead" }, rich(says)), ...children);

const legend = (...rows) =>
  el("p", { class: "legend" }, rows.map(([name, text]) => el("span", {}, el("i", { style: `background:${name}` }), text)));

const table = (heads, rows, attributes = {}) =>
  el("div", { class: "scroll" }, el("table", attributes,
    el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head)))),
    el("tbody", {}, rows.map((row) => el("tr", row.attributes ?? {}, (row.cells ?? row).map((cell) => el("td", {}, cell)))))));

const details = (rows) => el("dl", {}, rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));

/** A group of buttons; one of them is pressed. */
function choice(label, options, chosen, change) {
  const buttons = options.map(([value, text]) =>
    el("button", { type: "button", "aria-pressed": String(value === chosen), onclick: () => set(value, true) }, text));
  const set = (value, tell) => {
    options.forEach(([own], i) => buttons[i].setAttribute("aria-pressed", String(own === value)));
    if (tell) change(value);
  };
  return { node: el("div", { class: "group", role: "group", "aria-label": label }, buttons), set };
}

/** A slider that shows its number. */
function slider(name, [low, high], value, change) {
  const output = el("output", { class: "mono" }, String(value));
  const input = el("input", { type: "range", min: low, max: high, value, "aria-label": name, oninput: () => { output.textContent = input.value; change(Number(input.value)); } });
  return { node: el("label", {}, name, input, output), input, set: (now) => { input.value = now; output.textContent = now; } };
}

// ---- Tabs ----

const panels = [];
let current = null;
/** The number of the first panel, which is also its key. */
let firstKey = 1;

function panel(id, name, build) { panels.push({ id, name, build, node: null, tab: null, keys: null }); }

function show(id, focus = false) {
  const next = panels.find((one) => one.id === id) ?? panels[0];
  if (current === next) return next;
  tip("");
  for (const one of panels) {
    one.tab.setAttribute("aria-selected", String(one === next));
    one.tab.tabIndex = one === next ? 0 : -1;
    if (one.node) one.node.hidden = one !== next;
  }
  current = next;
  if (!next.node) {
    next.node = el("div", { id: `panel-${next.id}`, role: "tabpanel", "aria-labelledby": `tab-${next.id}`, class: "stack" });
    $("main").append(next.node);
    next.build(next);
  }
  if (location.hash !== `#${next.id}`) history.replaceState(null, "", `#${next.id}`);
  next.tab.scrollIntoView({ block: "nearest", inline: "nearest" });
  scrollTo(0, 0);
  redraw();
  if (focus) next.tab.focus();
  return next;
}

function tabs() {
  panels.forEach((one, i) => {
    one.tab = el("button", { type: "button", role: "tab", id: `tab-${one.id}`, "aria-controls": `panel-${one.id}`, "aria-selected": "false", onclick: () => show(one.id) },
      el("span", { class: "n", "aria-hidden": "true" }, String(i + firstKey)), one.name);
    $("tabs").append(one.tab);
  });
  document.body.classList.toggle("single", panels.length < 2);
  $("tabs").addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    show(panels[(panels.indexOf(current) + step + panels.length) % panels.length].id, true);
  });
  addEventListener("hashchange", () => show(location.hash.slice(1)));
  show(location.hash.slice(1));
}

// ---- Search ----

/** Functions that return rows `{where, text, go}` for a query in lower case. */
const finders = [];
const MOST_FOUND = 40;

function search() {
  const [input, list] = [$("query"), $("results")];
  let [rows, chosen] = [[], -1];
  const close = () => { list.hidden = true; input.setAttribute("aria-expanded", "false"); input.removeAttribute("aria-activedescendant"); };
  const choose = (index) => {
    chosen = rows.length ? (index + rows.length) % rows.length : -1;
    [...list.children].forEach((item, i) => item.setAttribute("aria-selected", String(i === chosen)));
    if (chosen < 0) return;
    list.children[chosen].scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", `result-${chosen}`);
  };
  const go = (row) => { close(); input.blur(); row.go(); };
  const update = () => {
    const query = input.value.trim().toLowerCase();
    rows = [];
    let all = 0;
    if (query) for (const find of finders) for (const row of find(query)) { all += 1; if (rows.length < MOST_FOUND) rows.push(row); }
    list.replaceChildren(...rows.map((row, i) =>
      el("li", { role: "option", id: `result-${i}`, "aria-selected": "false", onmousedown: (event) => { event.preventDefault(); go(row); } },
        el("span", { class: "where" }, row.where), el("span", {}, row.text))));
    if (query && !rows.length) list.append(el("li", { class: "none" }, "Nothing found."));
    if (all > rows.length) list.append(el("li", { class: "none" }, `and ${whole(all - rows.length)} more`));
    list.hidden = !query;
    input.setAttribute("aria-expanded", String(Boolean(query)));
    choose(0);
  };
  input.addEventListener("input", update);
  input.addEventListener("focus", () => { if (input.value) update(); });
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") { event.preventDefault(); choose(chosen + (event.key === "ArrowDown" ? 1 : -1)); }
    if (event.key === "Enter" && rows[chosen]) go(rows[chosen]);
    if (event.key === "Escape") { input.value = ""; close(); input.blur(); }
    event.stopPropagation();
  });
}

// ---- Help and keys ----

const helpKeys = [["/", "search"], ["?", "this help"], ["Tab", "next control"], ["t", "dark or light colours"]];
const glossary = [];

function help() {
  const dialog = $("help");
  dialog.append(
    el("h1", { id: "help-title" }, "Keys"), el("dl", {}, helpKeys.flatMap(([key, does]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, does)])),
    ...(glossary.length ? [el("h2", {}, "Words"), el("dl", {}, glossary.flatMap(([word, says]) => [el("dt", {}, word), el("dd", {}, says)]))] : []),
    el("form", { method: "dialog" }, el("button", {}, "Close")));
  $("help-open").addEventListener("click", () => dialog.showModal());
}

function keys() {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || $("help").open) return;
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "range";
    if (typing) return;
    if (event.key === "/") { event.preventDefault(); $("query").focus(); $("query").select(); return; }
    if (event.key === "?") { event.preventDefault(); $("help").showModal(); return; }
    if (event.key === "t") { $("theme").click(); return; }
    const digit = Number(event.key);
    if (/^[0-9]$/.test(event.key) && panels[digit - firstKey] && panels.length > 1) { show(panels[digit - firstKey].id, true); return; }
    if (event.target.type === "range" && event.key.startsWith("Arrow")) return;
    if (current?.keys?.(event)) event.preventDefault();
  });
}

function start() {
  $("title").textContent = data.title;
  $("title").title = data.title;
  theme();
  if (data.kernel) startKernel(data.kernel); else if (data.family) startFamily(data.family); else if (data.tour) startTour(data.tour); else startGallery(data.gallery);
  if (panels.length > 1) helpKeys.push([`${firstKey} … ${panels.length + firstKey - 1}`, "the panels"]);
  tabs();
  search();
  help();
  keys();
}

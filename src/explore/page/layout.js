// Parses and evaluates CuTe layouts such as `(4,8):(1,4)` or `Sw<3,3,3> o 0 o (8,64):(64,1)`.

/** Largest number of cells in a picture, and of numbers in a tuple. */
const MOST_CELLS = 65536;

/** Parses a nested tuple. Throws an error whose message is a sentence. */
function parseTuple(text, from) {
  let at = from;
  const space = () => { while (text[at] === " ") at += 1; };
  const one = (depth) => {
    space();
    if (depth > 16) throw new Error("a tuple is nested at most 16 deep");
    if (text[at] === "(") {
      at += 1;
      const modes = [one(depth + 1)];
      for (;;) {
        space();
        if (text[at] === ",") { at += 1; modes.push(one(depth + 1)); continue; }
        if (text[at] === ")") { at += 1; return modes; }
        throw new Error(at >= text.length ? "a bracket is not closed" : `column ${at + 1}: found “${text[at]}”, “,” or “)” was needed`);
      }
    }
    const digits = /^\d+/.exec(text.slice(at));
    if (!digits) throw new Error(at >= text.length ? "a number is missing at the end" : `column ${at + 1}: found “${text[at]}”, a number or “(” was needed`);
    at += digits[0].length;
    const number = Number(digits[0]);
    if (number > 2 ** 31) throw new Error(`${digits[0]} is larger than 2147483648`);
    return number;
  };
  const value = one(0);
  space();
  return [value, at];
}

/** `{swizzle: [b, m, s] or null, offset, shape, stride}`; throws an error whose message is a sentence. */
function parseLayout(source) {
  let text = source.trim();
  if (!text) throw new Error("type a layout such as (4,8):(8,1)");
  let [swizzle, offset] = [null, 0];
  const head = /^(?:Sw|Swizzle|S)\s*<\s*(\d+)\s*,\s*(\d+)\s*,\s*(-?\d+)\s*>\s*(?:o|∘)\s*(?:(\d+)\s*(?:o|∘)\s*)?/i.exec(text);
  if (head) {
    swizzle = [head[1], head[2], head[3]].map(Number);
    offset = Number(head[4] ?? 0);
    text = text.slice(head[0].length);
  } else if (/^s/i.test(text)) {
    throw new Error("a swizzle is written Sw<3,4,3> o (8,64):(64,1)");
  }
  const [bits, base, shift] = swizzle ?? [0, 0, 0];
  if (swizzle && Math.abs(shift) < bits) throw new Error(`Sw<${swizzle}>: the shift ${shift} is smaller than the ${bits} bits that it moves`);
  if (bits + base + Math.abs(shift) > 30) throw new Error(`Sw<${swizzle}> reaches beyond 30 bits`);
  const [shape, colon] = parseTuple(text, 0);
  if (text[colon] !== ":" && colon < text.length) throw new Error(`“${text.slice(colon)}” follows the shape; “:” and the strides were needed`);
  let stride = compact(shape);
  if (text[colon] === ":") {
    const [read, end] = parseTuple(text, colon + 1);
    if (end < text.length) throw new Error(`“${text.slice(end)}” follows the strides`);
    stride = read;
  }
  congruent(shape, stride);
  const layout = { swizzle, offset, shape, stride };
  if (flat(shape).some((extent) => extent === 0)) throw new Error("an extent is 0, at least 1 was needed");
  return layout;
}

const flat = (tuple) => (Array.isArray(tuple) ? tuple.flatMap(flat) : [tuple]);
const size = (tuple) => flat(tuple).reduce((product, extent) => product * extent, 1);
const tupleText = (tuple) => (Array.isArray(tuple) ? `(${tuple.map(tupleText).join(",")})` : String(tuple));
const layoutText = ({ swizzle, offset, shape, stride }) =>
  `${swizzle ? `Sw<${swizzle}> o ${offset} o ` : ""}${tupleText(shape)}:${tupleText(stride)}`;

/** Column-major strides of a shape. */
function compact(shape) {
  let next = 1;
  const of = (tuple) => {
    if (Array.isArray(tuple)) return tuple.map(of);
    const own = next;
    next *= tuple;
    return own;
  };
  return of(shape);
}

function congruent(shape, stride) {
  const alike = (a, b) => Array.isArray(a) === Array.isArray(b) && (!Array.isArray(a) || (a.length === b.length && a.every((mode, i) => alike(mode, b[i]))));
  if (!alike(shape, stride)) throw new Error(`the shape ${tupleText(shape)} and the strides ${tupleText(stride)} are not nested alike`);
}

/** The offset of an integer coordinate within a tuple of modes, first mode fastest. */
function inner(shape, stride, coordinate) {
  if (!Array.isArray(shape)) return coordinate * stride;
  let [rest, sum] = [coordinate, 0];
  shape.forEach((mode, i) => {
    const extent = size(mode);
    const own = i + 1 < shape.length ? rest % extent : rest;
    sum += inner(mode, stride[i], own);
    rest = Math.floor(rest / extent);
  });
  return sum;
}

/** XORs the bits of a swizzle; numbers below 2^31. */
function swizzled([bits, base, shift], offset) {
  const mask = (1 << bits) - 1;
  const moved = shift >= 0 ? (offset & (mask << (base + shift))) >>> shift : (offset & (mask << base)) << -shift;
  return offset ^ moved;
}

/** The offset of `(row, column)`, or of `(thread, value)`: one coordinate for the first mode and one for the rest. */
function offsetAt(layout, first, second, plain = false) {
  const { shape, stride, swizzle, offset } = layout;
  let sum;
  if (Array.isArray(shape) && shape.length > 1) {
    sum = inner(shape[0], stride[0], first) + inner(shape.slice(1), stride.slice(1), second);
  } else {
    sum = inner(shape, stride, second);
  }
  sum += offset;
  return swizzle && !plain ? swizzled(swizzle, sum) : sum;
}

/** Rows and columns of a picture: the size of the first mode, and of the others. A layout of one mode is a row. */
function extents({ shape }) {
  if (!Array.isArray(shape) || shape.length < 2) return [1, size(shape)];
  return [size(shape[0]), size(shape.slice(1))];
}

/** The thread and value that own each element of a tile of `rows` x `columns`: `owners[row + rows * column] = [thread, value]`. */
function owners(layout, [rows, columns]) {
  const [threads, values] = extents(layout);
  if (threads * values > MOST_CELLS * 4) throw new Error(`${whole(threads * values)} values are too many for a picture`);
  const map = new Array(rows * columns).fill(null);
  for (let t = 0; t < threads; t += 1) {
    for (let v = 0; v < values; v += 1) {
      const place = offsetAt(layout, t, v);
      if (place >= map.length) throw new Error(`value ${v} of thread ${t} is element ${place}, outside of a tile of ${rows} x ${columns}`);
      map[place] ??= [t, v];
    }
  }
  return map;
}

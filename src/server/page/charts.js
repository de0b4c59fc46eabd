/* Small charts on canvas, in the page's own colours, drawn again when these change. */

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/* A canvas of the size that it has on the screen, in points of the page. */
function beginDrawing(canvas) {
  const scale = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * scale)) canvas.width = Math.round(width * scale);
  if (canvas.height !== Math.round(height * scale)) canvas.height = Math.round(height * scale);
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return {context, width, height};
}

/* 1, 2 or 5 times a power of ten, not below `value`: the top of a scale. */
function roundUp(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map(factor => factor * power).find(top => top >= value * 0.999);
}

function drawTop({context, width}, text) {
  context.fillStyle = colour("soft");
  context.font = `11px ${colour("sans")}`;
  context.textAlign = "right";
  context.fillText(text, width - 1, 10);
}

/* Stacked bars, the newest at the right. rows: [[value, ...]], colours: names, one a part. */
function drawBars(canvas, rows, colours, unit) {
  const drawing = beginDrawing(canvas);
  const {context, width, height} = drawing;
  const top = roundUp(Math.max(...rows.map(row => row.reduce((sum, value) => sum + value, 0)), 0));
  const count = Math.max(1, Math.floor(width / 5));
  const shown = rows.slice(-count);
  const room = height - 16;
  shown.forEach((row, i) => {
    let y = height;
    row.forEach((value, part) => {
      const size = value / top * room;
      context.fillStyle = colours[part];
      context.fillRect(width - (shown.length - i) * 5, y - size, 4, size);
      y -= size;
    });
  });
  if (rows.length) drawTop(drawing, `${number(top)}${unit}`);
}

/* A line over time. values: the newest last, `count` fill the width. */
function drawLine(canvas, values, count, name) {
  const drawing = beginDrawing(canvas);
  const {context, width, height} = drawing;
  const top = roundUp(Math.max(...values, 0));
  if (values.length < 2 || top <= 0) return;
  const room = height - 16;
  const xOf = i => width - (values.length - 1 - i) * width / (count - 1);
  context.beginPath();
  values.forEach((value, i) => context.lineTo(xOf(i), height - 1 - value / top * room));
  context.strokeStyle = colour(name);
  context.lineWidth = 1.5;
  context.lineJoin = "round";
  context.stroke();
  context.lineTo(xOf(values.length - 1), height);
  context.lineTo(xOf(0), height);
  context.globalAlpha = 0.12;
  context.fillStyle = colour(name);
  context.fill();
  context.globalAlpha = 1;
  drawTop(drawing, number(top));
}

const SQUARES_MAX = 512; // of the map
const SQUARE = 10; // pixels from one to the next

/* Blocks of a square: a power of two. */
function mapBlocks(total) {
  return 2 ** Math.max(0, Math.ceil(Math.log2(total / SQUARES_MAX)));
}

const mapColumns = canvas => Math.max(1, Math.floor(canvas.clientWidth / SQUARE));

function mapBlockAt(canvas, event, total) {
  const square = Math.floor(event.offsetY / SQUARE) * mapColumns(canvas) + Math.floor(event.offsetX / SQUARE);
  return square * mapBlocks(total);
}

/* All blocks as squares of many, each filled from below by what its blocks are: used, shared, cached. The
 * squares of the blocks from `first` to `end` are underlined. */
function drawMap(canvas, letters, first, end) {
  const each = mapBlocks(letters.length), columns = mapColumns(canvas);
  const height = Math.ceil(letters.length / each / columns) * SQUARE;
  if (canvas.style.height !== `${height}px`) canvas.style.height = `${height}px`;
  const {context} = beginDrawing(canvas);
  const ground = colour("sunken"), ink = colour("text");
  const kinds = [["up", colour("used")], ["s", colour("shared")], ["c", colour("cached")]];
  for (let from = 0, i = 0; from < letters.length; from += each, i++) {
    const x = i % columns * SQUARE, y = Math.floor(i / columns) * SQUARE, size = SQUARE - 2;
    const part = letters.slice(from, from + each);
    context.fillStyle = ground;
    context.fillRect(x, y, size, size);
    let top = y + size;
    for (const [marks, fill] of kinds) {
      const count = part.reduce((sum, letter) => sum + marks.includes(letter), 0);
      if (!count) continue;
      const share = Math.max(1, Math.round(count / part.length * size)); // one block of many is seen too
      context.fillStyle = fill;
      context.fillRect(x, Math.max(y, top - share), size, Math.min(share, top - y));
      top = Math.max(y, top - share);
    }
    context.fillStyle = ink;
    if (from < end && from + each > first) context.fillRect(x, y + size, size, 1.5);
  }
}

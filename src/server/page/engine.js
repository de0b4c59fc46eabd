/* The engine room: the sequences, the steps, and the stream that tells of them and of the blocks. */

// ---- charts ----

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

// ---- blocks ----

/* The engine room's state, and its grid: the blocks of the KV cache, and the tokens of one of them. */

const WINDOW = 128; // blocks that are shown one by one

const room = {
  mode: "", // off, view or control; "": not known
  controller: null, // of the stream; null: closed
  letters: [], // of all blocks: f, c, u, p or s
  fills: [], // tokens of each block
  blockSize: 16,
  first: 0, // of the window
  cells: [],
  chosen: -1, // the block whose tokens are shown
  marked: null, // id of the sequence whose blocks are marked
  state: null, // the last event
  steps: [],
  rates: [],
  samples: [], // [when, generated tokens]
  isDirty: false,
  isLost: false, // the stream broke: what is shown is old
};

const STATES = {f: "free", c: "cached", u: "used", p: "used", s: "shared"};

function paintCell(cell, id) {
  const letter = room.letters[id];
  const isPart = letter === "u" && room.fills[id] < room.blockSize;
  const look = `${letter}${isPart ? room.fills[id] : ""}`;
  if (cell.look === look) return;
  cell.look = look;
  cell.className = `cell ${letter}${cell.isMine ? " mine" : ""}${id === room.chosen ? " chosen" : ""}`;
  if (isPart) cell.style.setProperty("--fill", `${100 * room.fills[id] / room.blockSize}%`);
  else cell.style.removeProperty("--fill");
  const fill = isPart ? `, ${room.fills[id]} of ${room.blockSize} tokens` : "";
  cell.setAttribute("aria-label", `Block ${id}: ${STATES[letter]}${fill}`);
}

function makeCells() {
  const count = Math.min(WINDOW, room.letters.length - room.first);
  while (room.cells.length > count) room.cells.pop().remove();
  while (room.cells.length < count) {
    const cell = make("button", {type: "button", tabIndex: -1});
    cell.place = room.cells.length;
    room.cells.push(cell);
    byId("blocks").append(cell);
  }
  room.cells.forEach((cell, i) => {
    cell.look = "";
    paintCell(cell, room.first + i);
  });
  if (!room.cells.some(cell => cell.tabIndex === 0) && count) room.cells[0].tabIndex = 0;
}

/* What the map and the slider say where there are more blocks than the window shows. */
function showRange() {
  const total = room.letters.length, end = Math.min(total, room.first + WINDOW);
  const squares = plural(mapBlocks(total), "block");
  byId("whole").hidden = total <= WINDOW;
  byId("range-text").textContent = `Shown: ${number(room.first)} to ${number(end - 1)} of ${number(total)}; ` +
    `a square of the map is ${squares}`;
  const range = byId("range");
  Object.assign(range, {max: lastWindow(), step: WINDOW, value: room.first});
  range.setAttribute("aria-valuetext", `${number(room.first)} to ${number(end - 1)}`);
}

function lastWindow() {
  return Math.max(0, Math.ceil(room.letters.length / WINDOW) - 1) * WINDOW;
}

function moveWindow(first) {
  room.first = Math.min(lastWindow(), Math.max(0, Math.floor(first / WINDOW) * WINDOW));
  makeCells();
  showRange();
  markBlocks();
  room.isDirty = true;
}

function markedBlocks() {
  const sequence = room.state && room.state.sequences.find(one => one.id === room.marked);
  return sequence ? sequence.blocks : [];
}

/* Marks the blocks of the sequence that was chosen in the table. */
function markBlocks() {
  const mine = new Set(markedBlocks());
  room.cells.forEach((cell, i) => {
    const isMine = mine.has(room.first + i);
    if (isMine === Boolean(cell.isMine)) return;
    cell.isMine = isMine;
    cell.classList.toggle("mine", isMine);
  });
}

/* A space or a line's end can be seen, so that a token's borders can. */
function tokenElement(token) {
  if (token.text === null) {
    return make("span", {className: "token", textContent: "?", title: "It was there before you watched."});
  }
  const element = make("span", {className: "token", title: `Token ${token.id}`});
  for (const part of token.text.split(/(\n)/)) {
    if (part === "\n") element.append(make("span", {className: "space", textContent: "↵"}), "\n");
    else element.append(part);
  }
  return element;
}

/* isSpoken: the keyboard asked for it, so a screen reader says it. */
async function showBlock(id, isSpoken) {
  const cells = room.cells;
  const before = cells[room.chosen - room.first];
  if (before) before.classList.remove("chosen");
  room.chosen = id;
  if (cells[id - room.first]) cells[id - room.first].classList.add("chosen");
  let block;
  try {
    block = await askJson(`engine/blocks/${id}`);
  } catch (error) {
    if (room.chosen === id) byId("block-title").textContent = error.message;
    return;
  }
  if (room.chosen !== id) return;
  const held = {free: "free", cached: "free, but its tokens can be found again"}[block.state] ||
    `held by ${plural(block.num_holders, "sequence")}` +
    (block.state === "used" ? "" : ", and in the prefix cache");
  byId("block-title").textContent =
    `Block ${number(id)} · ${held} · ${block.num_tokens} of ${plural(block.block_size, "token")}`;
  byId("block-text").replaceChildren(...block.tokens.map(tokenElement));
  if (isSpoken && block.text) announce(block.text);
}

/* The chosen block is asked for again when it changed, at most a few times a second. */
function refreshBlock() {
  if (room.chosen < 0 || room.refresh) return;
  room.refresh = setTimeout(() => {
    room.refresh = 0;
    if (room.chosen >= 0 && room.controller) showBlock(room.chosen);
  }, 250);
}

function moveFocus(cell, key) {
  const {cells} = room;
  const columns = getComputedStyle(byId("blocks")).gridTemplateColumns.split(" ").length;
  const steps = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns};
  let to = cell.place + (steps[key] || 0);
  if (key === "Home") to = 0;
  if (key === "End") to = cells.length - 1;
  if (to < 0 || to >= cells.length) return;
  cell.tabIndex = -1;
  cells[to].tabIndex = 0;
  cells[to].focus();
}

function initBlocks() {
  const blocks = byId("blocks");
  const idOf = target => target.place === undefined ? -1 : room.first + target.place;
  const choose = event => {
    const id = idOf(event.target);
    if (id >= 0 && id !== room.chosen) showBlock(id, event.type === "focusin");
  };
  blocks.addEventListener("pointerover", choose);
  blocks.addEventListener("focusin", choose);
  blocks.addEventListener("click", choose);
  blocks.addEventListener("keydown", event => {
    if (!/^(Arrow|Home$|End$)/.test(event.key) || idOf(event.target) < 0) return;
    event.preventDefault();
    moveFocus(event.target, event.key);
  });
  byId("range").addEventListener("input", () => moveWindow(Number(byId("range").value)));
  byId("map").addEventListener("click", event => moveWindow(mapBlockAt(byId("map"), event, room.letters.length)));
}

// ---- the panel ----

const STEPS_KEPT = 400, RATES_KEPT = 120;
const RATE_MS = 500; // between two points of the rate

// ---- sequences ----

function shareOf(sequence) {
  if (!sequence.is_running) return ["none", sequence.tokens > sequence.prompt ? "preempted, waits" : "waits"];
  if (!sequence.step_tokens) return ["none", "nothing"];
  if (sequence.is_prefill) return ["prefill", `prefill ${plural(sequence.step_tokens, "token")}`];
  return ["decode", `decode ${plural(sequence.step_tokens, "token")}`];
}

function rowOf(sequence) {
  const mark = button(`#${sequence.id}`, {title: "Mark its blocks"}, () => {
    room.marked = room.marked === sequence.id ? null : sequence.id;
    const blocks = markedBlocks();
    const isSeen = blocks.some(id => id >= room.first && id < room.first + WINDOW);
    if (blocks.length && !isSeen) moveWindow(blocks[0]);
    showSequences(room.state);
    markBlocks();
  });
  const title = titleOfRequest(sequence.request_id);
  const row = make("tr", {}, make("th", {scope: "row"}, mark, make("span", {className: "asked", textContent: title, title})),
                   make("td", {}, make("span")), make("td"), make("td"), make("td"));
  row.key = sequence.id;
  row.addEventListener("pointerenter", () => {
    room.hovered = room.marked;
    room.marked = sequence.id;
    markBlocks();
  });
  row.addEventListener("pointerleave", () => {
    if (room.hovered !== undefined) room.marked = room.hovered;
    markBlocks();
  });
  return row;
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function fillRow(row, sequence) {
  const [kind, text] = shareOf(sequence);
  const share = row.cells[1].firstChild;
  const className = `share ${kind}`;
  if (share.className !== className) share.className = className;
  setText(share, text);
  setText(row.cells[2], `${number(sequence.computed)} of ${number(sequence.tokens)}`);
  setText(row.cells[3], number(sequence.cached));
  setText(row.cells[4], number(sequence.blocks.length));
  const isMarked = String(room.marked === sequence.id);
  const mark = row.cells[0].firstChild;
  if (mark.getAttribute("aria-pressed") !== isMarked) mark.setAttribute("aria-pressed", isMarked);
}

/* Rows are kept from event to event, so that focus and pointer stay where they are. */
function showSequences(state) {
  const body = byId("sequences");
  const rows = new Map(Array.from(body.rows, row => [row.key, row]));
  state.sequences.forEach((sequence, i) => {
    const row = rows.get(sequence.id) || rowOf(sequence);
    rows.delete(sequence.id);
    if (body.rows[i] !== row) body.insertBefore(row, body.rows[i] || null);
    fillRow(row, sequence);
  });
  for (const row of rows.values()) row.remove();
  const more = state.num_running + state.num_waiting - state.sequences.length;
  byId("no-sequences").hidden = state.sequences.length > 0;
  byId("more-sequences").hidden = more <= 0;
  byId("more-sequences").textContent = `and ${number(Math.max(0, more))} more`;
}

// ---- figures and charts ----

/* Generated tokens a second over the last two seconds. */
function rateNow() {
  const now = performance.now();
  const samples = room.samples;
  while (samples.length > 1 && now - samples[1][0] > 2000) samples.shift();
  if (samples.length < 2) return 0;
  const [since, before] = samples[0];
  const seconds = Math.max(.25, (now - since) / 1000);
  return Math.max(0, (samples[samples.length - 1][1] - before) / seconds);
}

function showFigures(state) {
  const {stats} = state;
  const prompts = stats.num_cached_tokens + stats.num_prefill_tokens, drafted = stats.num_draft_tokens;
  const used = room.letters.reduce((sum, letter) => sum + (letter !== "f" && letter !== "c"), 0);
  setText(byId("f-running"), number(state.num_running));
  setText(byId("f-waiting"), number(state.num_waiting));
  setText(byId("f-used"), `${number(used)} of ${number(room.letters.length)}`);
  setText(byId("f-hits"), `${prompts ? Math.round(100 * stats.num_cached_tokens / prompts) : 0} %`);
  setText(byId("f-drafts"), `${drafted ? Math.round(100 * stats.num_accepted_tokens / drafted) : 0} %`);
  setText(byId("f-preempted"), number(stats.num_preemptions));
}

function milliseconds(value) {
  return value >= 100 ? `${number(Math.round(value))} ms` : `${value.toFixed(value >= 10 ? 1 : 2)} ms`;
}

function drawCharts() {
  const last = room.steps[room.steps.length - 1];
  const times = room.steps.map(step => [step.schedule_ms, step.model_ms, step.output_ms]);
  drawBars(byId("chart-steps"), times.slice(-150), [colour("shared"), colour("used"), colour("output")], " ms");
  drawBars(byId("chart-tokens"), room.steps.slice(-150).map(step => [step.prefill, step.decode]),
           [colour("shared"), colour("used")], "");
  drawLine(byId("chart-rate"), room.rates, RATES_KEPT, "used");
  if (last) {
    const sum = last.schedule_ms + last.model_ms + last.output_ms;
    setText(byId("step-time"), `last ${milliseconds(sum)}`);
    setText(byId("step-tokens"), `last ${number(last.prefill + last.decode)}`);
    byId("chart-steps").setAttribute("aria-label", `The last step, number ${last.number}, took ${milliseconds(sum)}.`);
    byId("chart-tokens").setAttribute("aria-label",
      `The last step ran ${last.prefill} tokens of prompts and ${last.decode} generated ones.`);
  }
  if (!last) byId("chart-steps").setAttribute("aria-label", "No step was seen yet.");
  if (!last) byId("chart-tokens").setAttribute("aria-label", "No step was seen yet.");
  const rate = room.rates[room.rates.length - 1] || 0;
  byId("chart-rate").setAttribute("aria-label", `${number(Math.round(rate))} generated tokens a second.`);
  if (room.letters.length > WINDOW) {
    drawMap(byId("map"), room.letters, room.first, room.first + WINDOW);
  }
}

function onTick() {
  if (room.isLost) return;
  const rate = rateNow();
  room.rates.push(rate);
  if (room.rates.length > RATES_KEPT) room.rates.shift();
  setText(byId("f-rate"), number(Math.round(rate)));
  drawCharts();
}

// ---- the stream ----

function showState(kind, text) {
  const state = byId("engine-state");
  const className = `state ${kind}`;
  if (state.className !== className) state.className = className;
  setText(state, text);
}

function showControl(state) {
  if (state.is_paused !== room.wasPaused && room.wasPaused !== undefined) {
    announce(state.is_paused ? "The engine is paused." : "The engine goes on.");
  }
  room.wasPaused = state.is_paused;
  setText(byId("pause"), state.is_paused ? "Resume" : "Pause");
  byId("pause").disabled = false;
  byId("step").disabled = !state.is_paused;
  const steps = `step ${number(state.stats.num_steps)}`;
  if (state.is_paused) showState("paused", `paused after ${steps}`);
  else if (state.num_running + state.num_waiting) showState("running", "running");
  else showState("idle", "idle");
}

/* What was seen last is no longer so: figures go, blocks and sequences are dimmed, nothing can be pressed. */
function showLost(text) {
  showState("lost", text);
  byId("engine-live").classList.add("lost");
  for (const figure of document.querySelectorAll(".figures dd")) setText(figure, "–");
  byId("pause").disabled = byId("step").disabled = true;
  room.isLost = true;
}

function takeBlocks(kind, data) {
  if (kind === "state") {
    room.letters = Array.from(data.blocks);
    room.blockSize = data.block_size;
    room.fills = room.letters.map(letter => letter === "f" ? 0 : data.block_size);
    for (let i = 0; i < data.fills.length; i += 2) room.fills[data.fills[i]] = data.fills[i + 1];
    moveWindow(room.first);
    if (room.chosen >= 0) refreshBlock();
    return;
  }
  for (let i = 0; i < data.changed.length; i += 3) {
    const id = data.changed[i];
    room.letters[id] = data.changed[i + 1];
    room.fills[id] = data.changed[i + 2];
    const cell = room.cells[id - room.first];
    if (cell) paintCell(cell, id);
    if (id === room.chosen) refreshBlock();
  }
}

function takeEvent(kind, data) {
  room.state = data;
  if (room.isLost) {
    byId("engine-live").classList.remove("lost");
    room.isLost = false;
    room.samples = []; // a server that started again counts from 0
  }
  takeBlocks(kind, data);
  room.steps.push(...data.steps);
  if (room.steps.length > STEPS_KEPT) room.steps.splice(0, room.steps.length - STEPS_KEPT);
  room.samples.push([performance.now(), data.stats.num_generated_tokens]);
  showFigures(data);
  showSequences(data);
  markBlocks();
  showControl(data);
  room.isDirty = true;
}

/* Draws in the next frame what came since the last one. */
function drawSoon() {
  if (!room.controller) return;
  if (room.isDirty) drawCharts();
  room.isDirty = false;
  setTimeout(() => requestAnimationFrame(drawSoon), 100);
}

async function watch(controller) {
  for (let pause = 500; room.controller === controller;) {
    try {
      const answer = await ask("engine/events", {signal: controller.signal});
      for await (const {event, data} of readEvents(answer)) {
        pause = 500;
        takeEvent(event, parseObject(data));
      }
      showLost("the stream ended; trying again");
    } catch (error) {
      if (error.name === "AbortError") return;
      if (!(error instanceof ServerFault)) throw error;
      showLost(error.message);
      if (error.status === 401) return;
    }
    await new Promise(resolve => setTimeout(resolve, pause));
    pause = Math.min(2 * pause, 10000);
  }
}

const OFF = `nanovllm serve -m MODEL --engine-room control`;

function showOff() {
  byId("engine-live").hidden = true;
  byId("engine-off").hidden = false;
  byId("engine-off").replaceChildren(
    make("p", {textContent: "Here you can watch the engine: each block of its KV cache, each sequence, each step. " +
      "This server does not show it, because it would show everybody's prompts."}),
    make("p", {textContent: "To see it, start the server with this flag; “view” in place of “control” shows, " +
      "but lets nobody pause:"}),
    make("pre", {textContent: OFF}));
  showState("idle", "not shown");
}

async function openEngine() {
  document.body.classList.add("engine-open");
  byId("engine").hidden = false;
  byId("engine-button").setAttribute("aria-expanded", "true");
  sessionStorage.setItem("nanovllm.engine", "open");
  if (room.controller) return;
  room.controller = new AbortController();
  const {controller} = room;
  showState("idle", "connecting");
  try {
    room.mode = (await askJson("engine/state")).engine_room;
  } catch (error) {
    showLost(error.message);
    room.controller = null;
    return;
  }
  if (room.controller !== controller) return;
  if (room.mode === "off") {
    showOff();
    return;
  }
  byId("engine-off").hidden = true;
  byId("engine-live").hidden = false;
  byId("controls").hidden = room.mode !== "control";
  room.samples = [];
  room.timer = setInterval(onTick, RATE_MS);
  drawSoon();
  watch(controller);
}

function closeEngine() {
  document.body.classList.remove("engine-open");
  byId("engine").hidden = true;
  scrollDown(true); // what is not shown has no place to scroll to
  byId("engine-button").setAttribute("aria-expanded", "false");
  sessionStorage.removeItem("nanovllm.engine");
  if (room.controller) room.controller.abort();
  room.controller = null;
  clearInterval(room.timer);
}

async function control(action) {
  try {
    await askJson("engine/control", {body: {action}});
  } catch (error) {
    showState("lost", error.message);
  }
}

function initEngine() {
  initBlocks();
  byId("engine-button").addEventListener("click", () => byId("engine").hidden ? openEngine() : closeEngine());
  byId("engine-close").addEventListener("click", () => {
    closeEngine();
    byId("engine-button").focus();
  });
  byId("pause").addEventListener("click", () => control(room.state && room.state.is_paused ? "resume" : "pause"));
  byId("step").addEventListener("click", () => control("step"));
  const redraw = () => { room.isDirty = true; };
  window.addEventListener("resize", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  if (sessionStorage.getItem("nanovllm.engine")) openEngine();
}

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

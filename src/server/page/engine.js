/* The engine room: the sequences, the steps, and the stream that tells of them and of the blocks. */

const STEPS_KEPT = 400, RATES_KEPT = 120;
const RATE_MS = 500; // between two points of the rate

// ---- sequences ----

function shareOf(sequence) {
  if (!sequence.is_running) return ["none", sequence.tokens > sequence.prompt ? "preempted, waits" : "waits"];
  if (!sequence.step_tokens) return ["none", "nothing"];
  if (sequence.is_prefill) return ["prefill", `prefill ${plural(sequence.step_tokens, "token")}`];
  return ["decode", "decode 1 token"];
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
  const prompts = stats.num_cached_tokens + stats.num_prefill_tokens;
  const used = room.letters.reduce((sum, letter) => sum + (letter !== "f" && letter !== "c"), 0);
  setText(byId("f-running"), number(state.num_running));
  setText(byId("f-waiting"), number(state.num_waiting));
  setText(byId("f-used"), `${number(used)} of ${number(room.letters.length)}`);
  setText(byId("f-hits"), `${prompts ? Math.round(100 * stats.num_cached_tokens / prompts) : 0} %`);
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

const OFF = `nanovllm serve -m DIR --engine-room control`;

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

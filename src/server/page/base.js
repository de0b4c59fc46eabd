/* The page at /: a chat with the model, and the engine room. No framework and no other origin. The
 * files of this folder are joined to one page.js by the build, in this order: base, markdown, store,
 * chat, engine, main. This one: elements, the server, streams of events. */
"use strict";

const byId = id => document.getElementById(id);

/* make("a", {href: "x", className: "y"}, child, "text"): text is always text, never HTML. */
function make(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.filter(child => child !== null && child !== undefined));
  return element;
}

function button(text, properties, onClick) {
  const element = make("button", {type: "button", textContent: text, ...properties});
  element.addEventListener("click", onClick);
  return element;
}

/* A screen reader reads the text aloud, after the text that it is reading. */
function announce(text) {
  byId("announce").textContent = text;
}

const number = value => value.toLocaleString("en-US");
const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;

// ---- the server ----

/* A request that failed, with the sentence to show. */
class ServerFault extends Error {
  constructor(sentence, status) {
    super(sentence);
    this.status = status;
  }
}

const key = {
  read: () => sessionStorage.getItem("nanovllm.key") || "",
  write: value => sessionStorage.setItem("nanovllm.key", value),
};

async function faultOf(answer) {
  let sentence = "";
  try {
    sentence = (await answer.json()).error.message;
  } catch {
    // Not this server's: a proxy in front of it, say.
  }
  const wait = answer.headers.get("Retry-After");
  if (answer.status === 503 && wait) sentence += `. Try again in ${plural(Number(wait), "second")}.`;
  if (sentence && !/[.!?]$/.test(sentence)) sentence += ".";
  return new ServerFault(sentence ? sentence[0].toUpperCase() + sentence.slice(1)
                                  : `The server answered with status ${answer.status}.`, answer.status);
}

/* fetch with the key. Throws ServerFault, or AbortError where `signal` ended it. */
async function ask(path, {body, signal, requestId} = {}) {
  const headers = {};
  if (requestId) headers["X-Request-Id"] = requestId;
  if (body) headers["Content-Type"] = "application/json";
  if (key.read()) headers.Authorization = `Bearer ${key.read()}`;
  let answer;
  try {
    answer = await fetch(path, {method: body ? "POST" : "GET", headers, signal,
                                body: body && JSON.stringify(body), cache: "no-store"});
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerFault("The server cannot be reached. Is it still running?", 0);
  }
  if (answer.status === 401) askForKey(key.read() ? "The server does not know this key." : "");
  if (!answer.ok) throw await faultOf(answer);
  return answer;
}

const NOT_UNDERSTOOD = "The page does not understand what the server sent. Is it a nanovllm server?";

/* The object that a text is in JSON. Throws ServerFault where it is none: a proxy may have written it. */
function parseObject(text) {
  let value = null;
  try {
    value = JSON.parse(text);
  } catch {
    // null is no object either
  }
  if (value === null || typeof value !== "object" || Array.isArray(value)) throw new ServerFault(NOT_UNDERSTOOD, 0);
  return value;
}

async function askJson(path, options) {
  return parseObject(await (await ask(path, options)).text());
}

/* The events of a stream as {event, data}, until it ends. A broken connection is a ServerFault. */
async function* readEvents(answer) {
  const reader = answer.body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    let piece;
    try {
      piece = await reader.read();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ServerFault("The connection to the server broke.", 0);
    }
    if (piece.done) return;
    rest += decoder.decode(piece.value, {stream: true});
    for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
      const event = {event: "message", data: ""};
      for (const line of rest.slice(0, end).split("\n")) {
        if (line.startsWith("event: ")) event.event = line.slice(7);
        if (line.startsWith("data: ")) event.data += line.slice(6);
      }
      rest = rest.slice(end + 2);
      if (event.data) yield event;
    }
  }
}

/* What the browser keeps: chats, one entry each, and settings. */

const CHAT_PREFIX = "nanovllm.chat.";

function readStored(name) {
  try {
    return JSON.parse(localStorage.getItem(name));
  } catch {
    return null; // somebody else's, or damaged: as if it were not there
  }
}

function isCall(call) {
  return call && [call.id, call.name, call.arguments, call.result || ""].every(part => typeof part === "string");
}

/* A chat: {id, title, updated, messages: [{role, content, reasoning, calls, facts, fault, ended}]} */
function isChat(chat) {
  return chat && typeof chat.id === "string" && Array.isArray(chat.messages) &&
         chat.messages.every(message => message && typeof message.content === "string" &&
                             (message.role === "user" || message.role === "assistant") &&
                             (message.calls === undefined ||
                              Array.isArray(message.calls) && message.calls.every(isCall)));
}

const chats = {
  list() {
    const found = [];
    for (let i = 0; i < localStorage.length; i++) {
      const name = localStorage.key(i);
      if (!name.startsWith(CHAT_PREFIX)) continue;
      const chat = readStored(name);
      if (isChat(chat)) found.push(chat);
    }
    return found.sort((a, b) => (b.updated || 0) - (a.updated || 0));
  },
  read(id) {
    const chat = readStored(CHAT_PREFIX + id);
    return isChat(chat) ? chat : null;
  },
  /* False: the browser has no room. */
  write(chat) {
    try {
      localStorage.setItem(CHAT_PREFIX + chat.id, JSON.stringify(chat));
      return true;
    } catch {
      return false;
    }
  },
  remove: id => localStorage.removeItem(CHAT_PREFIX + id),
  create() {
    const random = crypto.getRandomValues(new Uint32Array(3));
    return {id: Array.from(random, part => part.toString(36)).join(""), title: "", updated: Date.now(),
            messages: []};
  },
};

/* A request's id says which chat it is of, so that the engine room can, in other tabs too. */
const requestIdOf = chat => `${chat.id}.${Date.now().toString(36)}`;

/* The title of the chat that asked; "": none of this browser's. */
function titleOfRequest(requestId) {
  const [id, ...rest] = (requestId || "").split(".");
  const chat = rest.length ? chats.read(id) : null;
  return chat ? chat.title : "";
}

// ---- settings ----

/* All other fields of the form are numbers, members of requests by the same name. */
const TEXTS = ["system", "thinking", "tool_choice", "stop", "tools", "form", "form_text"];

const linesOf = text => (text || "").split("\n").filter(line => line);

/* Throws ServerFault: `begin` and "not JSON". */
function parseSetting(begin, text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new ServerFault(`${begin} not JSON. ${error.message}.`, 0);
  }
}

/* The form of answers as a request's structured_outputs; null: any text. Throws ServerFault. */
function readForm(kind, text) {
  if (!kind) return null;
  if (!text || !text.trim()) throw new ServerFault("The form in the settings is empty.", 0);
  if (kind === "json") return {json: parseSetting("The schema in the settings is", text)};
  return {[kind]: kind === "choice" ? linesOf(text) : text};
}

const settings = {
  values: readStored("nanovllm.settings") || {},
  write(values) {
    settings.values = values;
    try {
      localStorage.setItem("nanovllm.settings", JSON.stringify(values));
    } catch {
      // Without room they hold until the page is closed.
    }
  },
  /* As members of a request. Throws ServerFault where the tools or the schema are not JSON. */
  parameters() {
    const values = settings.values;
    const members = {};
    for (const [name, value] of Object.entries(values)) {
      if (!TEXTS.includes(name) && value !== "") members[name] = Number(value);
    }
    const stops = linesOf(values.stop);
    if (stops.length) members.stop = stops;
    const tools = readTools(values.tools);
    if (tools) members.tools = tools;
    if (tools && values.tool_choice) members.tool_choice = values.tool_choice;
    const form = readForm(values.form, values.form_text);
    if (form) members.structured_outputs = form;
    if (values.thinking) members.chat_template_kwargs = {enable_thinking: values.thinking === "on"};
    return members;
  },
};

function fillSettings() {
  const values = settings.values;
  for (const field of byId("settings-form").elements) {
    if (field.name) field.value = values[field.name] || "";
  }
  checkTexts();
}

/* Shows below a field what read() throws. */
function checkField(id, read) {
  let fault = "";
  try {
    read(byId(id).value);
  } catch (error) {
    fault = error.message;
  }
  byId(`${id}-fault`).hidden = !fault;
  byId(`${id}-fault`).textContent = fault;
  byId(id).setAttribute("aria-invalid", String(Boolean(fault)));
}

/* Says at once what an answer would say later. */
function checkTexts() {
  checkField("tools", readTools);
  checkField("form-text", text => readForm(byId("form").value, text));
}

function keepSettings() {
  const values = {...settings.values}; // of fields too that are not made yet
  for (const field of byId("settings-form").elements) {
    if (field.name) delete values[field.name];
    if (field.name && field.value.trim()) values[field.name] = field.value;
  }
  settings.write(values);
}

function exportChats() {
  const text = JSON.stringify({chats: chats.list()}, null, 2);
  const address = URL.createObjectURL(new Blob([text], {type: "application/json"}));
  make("a", {href: address, download: "nanovllm-chats.json"}).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

/* The chat: one answer at a time, shown while it comes, and kept by the browser. */

// ---- tool calls ----

/* Tool calls in the chat: shown folded, as the model wrote them, and answered by hand. A message keeps
 * them as `calls`: {id, name, arguments, result}, the last one once it is sent. */

/* The tools of the settings, as a request has them; null: none. Throws ServerFault. */
function readTools(text) {
  if (!text || !text.trim()) return null;
  const tools = parseSetting("The tools in the settings are", text);
  if (!Array.isArray(tools)) throw new ServerFault("The tools in the settings are not a JSON list.", 0);
  return tools;
}

function takeCalls(message, pieces) {
  message.calls ||= [];
  for (const {index, id = "", function: {name = "", arguments: text = ""}} of pieces) {
    const call = message.calls[index] ||= {id: "", name: "", arguments: ""};
    call.id += id;
    call.name += name;
    call.arguments += text;
  }
}

const waitsForResults = message =>
  message.ended === "tool_calls" && message.calls && message.calls.every(call => call.result === undefined);

/* A message of the chat as those of a request: the results of its calls follow it. Its reasoning goes with
 * calls alone, which it led to. */
function requestMessages(message) {
  const {reasoning, text} = splitThinking(message);
  const own = {role: message.role, content: text};
  if (!message.calls) return text || message.role === "user" ? [own] : [];
  if (reasoning) own.reasoning = reasoning;
  own.tool_calls = message.calls.map(call =>
    ({id: call.id, type: "function", function: {name: call.name, arguments: call.arguments}}));
  const results = message.calls.filter(call => call.result !== undefined)
    .map(call => ({role: "tool", tool_call_id: call.id, content: call.result}));
  return [own, ...results];
}

function callElement() {
  const parts = {name: make("code"), text: make("pre"), result: make("pre"),
                 resultHead: make("p", {textContent: "Result"})};
  const item = make("details", {className: "folded call"}, make("summary", {}, "Tool call: ", parts.name),
                    make("div", {className: "text"}, parts.text, parts.resultHead, parts.result));
  item.parts = parts;
  return item;
}

/* Elements that are there stay, with what is open. */
function showCalls(holder, message) {
  const calls = message.calls || [];
  while (holder.children.length < calls.length) holder.append(callElement());
  calls.forEach((call, i) => {
    const {parts} = holder.children[i];
    parts.name.textContent = call.name;
    parts.text.textContent = call.arguments;
    parts.result.textContent = call.result || "";
    parts.result.hidden = parts.resultHead.hidden = call.result === undefined;
  });
}

/* A field for each call's result. `onSend` gets the texts. */
function resultsForm(calls, onSend) {
  const fields = calls.map(() => make("textarea", {rows: 1, required: true}));
  const labels = calls.map((call, i) => make("label", {}, "Result of ", make("code", {textContent: call.name}),
                                             fields[i]));
  const form = make("form", {className: "results"}, ...labels,
                    make("button", {type: "submit", textContent: calls.length > 1 ? "Send results" : "Send result"}));
  form.addEventListener("submit", event => {
    event.preventDefault();
    onSend(fields.map(field => field.value));
  });
  form.addEventListener("keydown", event => {
    if (event.target.tagName !== "TEXTAREA" || !sendsMessage(event)) return;
    event.preventDefault();
    form.requestSubmit(); // goes to the first field that is empty
  });
  return form;
}

// ---- the chat ----

const chatView = {
  chat: null, // that is shown
  answering: null, // {controller, chat, message, element}: an answer that comes
  editing: -1, // index of the message that the next one replaces
  model: "", // as the server calls it
  contextLength: 0, // tokens; 0: not known yet
};

const EXAMPLES = ["What is 37 + 58?", "Tell me a short story about a fox.", "What is the capital of France?"];

// ---- an answer's text ----

/* Reasoning and answer of a text. Servers that split them send `reasoning`; others leave the tags. */
function splitThinking(message) {
  if (message.reasoning) return {reasoning: message.reasoning, text: message.content};
  const content = message.content;
  const open = /^\s*<think>/.exec(content);
  const close = content.indexOf("</think>");
  if (close >= 0) {
    return {reasoning: content.slice(open ? open[0].length : 0, close).trim(),
            text: content.slice(close + "</think>".length).trimStart()};
  }
  if (open) return {reasoning: content.slice(open[0].length).trimStart(), text: ""};
  // The tag may be on its way.
  const isBeginning = content.trim() && "<think>".startsWith(content.trim());
  return {reasoning: "", text: isBeginning ? "" : content};
}

async function copyText(text, where) {
  try {
    await navigator.clipboard.writeText(text);
    where.textContent = "Copied";
  } catch {
    where.textContent = "Not allowed"; // only over HTTPS or from this machine
  }
  setTimeout(() => { where.textContent = "Copy"; }, 1500);
}

// ---- showing ----

function userMessage(message, index) {
  const edit = button("Edit", {className: "quiet"}, () => beginEdit(index));
  const item = make("li", {className: "message user"},
                    make("span", {className: "hidden", textContent: "You:"}),
                    make("div", {className: "text", textContent: message.content}),
                    make("div", {className: "foot"}, edit));
  return item;
}

function assistantMessage(message, index) {
  const item = make("li", {className: "message assistant"},
                    make("span", {className: "hidden", textContent: "The model:"}));
  item.parts = {
    summary: make("summary"),
    thought: make("div", {className: "text"}),
    text: make("div", {className: "md"}),
    calls: make("div"),
    results: make("div"), // the form for them, while they are waited for
    fault: make("p", {className: "fault", hidden: true}),
    facts: make("span", {className: "facts"}),
  };
  const parts = item.parts;
  parts.reasoning = make("details", {className: "folded reasoning", hidden: true}, parts.summary, parts.thought);
  parts.copy = button("Copy", {className: "quiet"}, () => copyText(splitThinking(message).text, parts.copy));
  parts.again = button("Again", {className: "quiet", title: "Ask for another answer"}, () => answerAgain(index));
  parts.foot = make("div", {className: "foot"}, parts.facts,
                    make("span", {}, parts.copy, parts.again));
  item.append(parts.reasoning, parts.text, parts.calls, parts.results, parts.fault, parts.foot);
  showAnswer(item, message);
  return item;
}

function showAnswer(item, message) {
  const {reasoning, text} = splitThinking(message);
  const {parts} = item;
  const isComing = chatView.answering !== null && chatView.answering.message === message;
  const isThinking = isComing && reasoning && !text && !message.calls;
  parts.reasoning.hidden = !reasoning;
  parts.summary.textContent = isThinking ? "Thinking …" : "Reasoning";
  if (parts.thought.shown !== reasoning) parts.thought.textContent = parts.thought.shown = reasoning;
  showMarkdown(parts.text, text);
  parts.text.classList.toggle("waiting", isComing && !text && !message.calls);
  showCalls(parts.calls, message);
  showResultsForm(parts.results, message);
  parts.fault.hidden = !message.fault;
  parts.fault.textContent = message.fault || "";
  parts.facts.textContent = message.facts || "";
  parts.foot.hidden = isComing;
  parts.copy.hidden = !text;
}

/* Only for the last message: what follows has been asked without results. */
function showResultsForm(holder, message) {
  const isWaiting = chatView.chat.messages.at(-1) === message && waitsForResults(message);
  if (isWaiting === Boolean(holder.firstChild)) return;
  holder.replaceChildren(...isWaiting ? [resultsForm(message.calls, results => sendResults(message, results))] : []);
}

function showMessages() {
  const {chat} = chatView;
  const items = [];
  for (let i = chat.messages.length - 1; i >= 0; i--) { // the last one is seen first
    const message = chat.messages[i];
    items.unshift(message.role === "user" ? userMessage(message, i) : assistantMessage(message, i));
  }
  byId("messages").replaceChildren(...items);
  byId("welcome").hidden = chat.messages.length > 0;
  const {answering} = chatView;
  if (answering && answering.chat === chat) {
    answering.element = byId("messages").lastElementChild;
    showAnswer(answering.element, answering.message);
  }
  markLast();
  scrollDown(true);
  showContext();
  document.title = chat.title ? `${chat.title} – nanovllm` : "nanovllm";
}

/* Only the last answer can be asked for again. */
function markLast() {
  const items = byId("messages").children;
  for (const item of items) {
    if (item.parts) item.parts.again.hidden = item !== items[items.length - 1];
  }
}

/* A chat is gone at the second click. */
function deleteButton(chat) {
  const remove = button("×", {className: "delete", title: "Delete"}, () => {
    if (remove.textContent === "Delete") deleteChat(chat.id);
    remove.textContent = "Delete";
  });
  remove.setAttribute("aria-label", `Delete the chat ${chat.title}: press twice`);
  remove.addEventListener("blur", () => { remove.textContent = "×"; });
  return remove;
}

function showChatList() {
  byId("chat-list").replaceChildren(...chats.list().map(chat => {
    const open = button(chat.title || "New chat", {className: "open"}, () => openChat(chat.id));
    if (chatView.chat && chat.id === chatView.chat.id) open.setAttribute("aria-current", "true");
    return make("li", {}, open, deleteButton(chat));
  }));
}

function isNearEnd() {
  const scroll = byId("scroll");
  return scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 120;
}

function scrollDown(isForced) {
  if (isForced || isNearEnd()) byId("scroll").scrollTop = byId("scroll").scrollHeight;
}

/* How full the context is after the last answer. */
function showContext() {
  const {chat, contextLength} = chatView;
  const last = chat.messages.findLast(message => message.total);
  const isKnown = Boolean(contextLength && last);
  byId("context").hidden = !isKnown;
  if (!isKnown) return;
  byId("context-text").textContent = `${number(last.total)} of ${plural(contextLength, "token")}`;
  byId("context-meter").value = last.total / contextLength;
}

function keep(chat) {
  chat.updated = Date.now();
  if (chats.write(chat)) return;
  const last = chat.messages[chat.messages.length - 1];
  last.fault = "The browser has no room left, so this is not kept. Delete some chats.";
}

// ---- opening ----

function openChat(id) {
  chatView.chat = chats.read(id) || chats.create();
  const {answering} = chatView;
  if (answering && answering.chat.id === chatView.chat.id) chatView.chat = answering.chat;
  endEdit();
  closeDrawer();
  showMessages();
  showChatList();
  sessionStorage.setItem("nanovllm.open", chatView.chat.id);
}

function newChat() {
  openChat("");
  byId("composer-text").focus();
}

function deleteChat(id) {
  if (chatView.answering && chatView.answering.chat.id === id) stopAnswer();
  chats.remove(id);
  if (chatView.chat.id === id) newChat();
  showChatList();
}

// ---- asking ----

function requestBody(chat) {
  const system = (settings.values.system || "").trim();
  const messages = chat.messages.flatMap(requestMessages);
  if (system) messages.unshift({role: "system", content: system});
  const members = settings.parameters();
  if (messages.at(-1).role === "tool") delete members.tool_choice; // else calls would never end
  return {model: chatView.model || undefined, messages, stream: true, stream_options: {include_usage: true},
          ...members};
}

function takeChunk(message, chunk, times) {
  if (chunk.error) throw new ServerFault(chunk.error.message, 0);
  const [choice] = chunk.choices || [];
  const delta = choice && choice.delta || {};
  const thought = delta.reasoning_content || delta.reasoning;
  if (thought) message.reasoning = (message.reasoning || "") + thought;
  if (delta.content) message.content += delta.content;
  if (delta.tool_calls) takeCalls(message, delta.tool_calls);
  if (thought || delta.content || delta.tool_calls) {
    times.last = performance.now();
    times.first ||= times.last;
  }
  if (choice && choice.finish_reason) message.ended = choice.finish_reason;
  if (chunk.usage) message.usage = chunk.usage;
}

/* "84 tokens, 51 a second, first after 12 ms" */
function factsOf(message, times) {
  const facts = [];
  const {usage} = message;
  if (usage) {
    const seconds = (times.last - times.first) / 1000;
    facts.push(plural(usage.completion_tokens, "token"));
    if (seconds > 0 && usage.completion_tokens > 1) {
      facts.push(`${number(Math.round((usage.completion_tokens - 1) / seconds))} a second`);
    }
    const cached = usage.prompt_tokens_details && usage.prompt_tokens_details.cached_tokens;
    if (cached) facts.push(`${number(cached)} of the prompt cached`);
    message.total = usage.total_tokens;
    delete message.usage;
  }
  if (times.first) facts.push(`first after ${number(Math.round(times.first - times.start))} ms`);
  if (message.ended === "length") facts.push("cut at max tokens");
  if (message.ended === "abort") facts.push("the server ended it");
  if (message.ended === "stopped") facts.push("stopped");
  return facts.join(" · ");
}

async function receive(answering, times) {
  const {chat, message, controller} = answering;
  const answer = await ask("v1/chat/completions",
                           {body: requestBody({messages: chat.messages.slice(0, -1)}), signal: controller.signal,
                            requestId: requestIdOf(chat)});
  let lastKept = performance.now();
  for await (const {data} of readEvents(answer)) {
    if (data === "[DONE]") return;
    takeChunk(message, parseObject(data), times);
    showSoon();
    if (performance.now() - lastKept > 1000) {
      keep(chat); // so that a reload loses little
      lastKept = performance.now();
    }
  }
  if (!message.ended) throw new ServerFault("The answer broke off.", 0);
}

/* At most once a frame, however fast tokens come. */
function showSoon() {
  if (chatView.frame) return;
  chatView.frame = requestAnimationFrame(() => {
    chatView.frame = 0;
    const {answering} = chatView;
    if (!answering || answering.chat !== chatView.chat) return;
    showAnswer(answering.element, answering.message);
    scrollDown(false);
  });
}

function showBusy(isBusy) {
  if (document.activeElement === byId("stop")) byId("composer-text").focus(); // it is about to go
  byId("send").hidden = isBusy;
  byId("stop").hidden = !isBusy;
}

const SPOKEN_MAX = 5000; // characters

function beginningOf(text) {
  return text.length <= SPOKEN_MAX ? text : `${text.slice(0, SPOKEN_MAX)} … The answer goes on in the chat.`;
}

function spokenAnswer(message) {
  const text = beginningOf(splitThinking(message).text);
  if (!waitsForResults(message)) return text || "The answer is empty.";
  const names = message.calls.map(call => call.name).join(" and ");
  return `${text} The model calls ${names}. The fields for the results are before the message field.`.trim();
}

async function answerLast() {
  const {chat} = chatView;
  const message = {role: "assistant", content: ""};
  const times = {start: performance.now(), first: 0, last: 0};
  const answering = {controller: new AbortController(), chat, message, element: null};
  chat.messages.push(message);
  chatView.answering = answering;
  showMessages();
  showChatList();
  showBusy(true);
  announce("The model is answering.");
  try {
    await receive(answering, times);
  } catch (error) {
    if (error.name === "AbortError") message.ended = "stopped";
    else message.fault = error instanceof ServerFault ? error.message : NOT_UNDERSTOOD;
    if (message.fault === NOT_UNDERSTOOD) console.error(error);
  } finally {
    chatView.answering = null;
    message.facts = factsOf(message, times);
    keep(chat);
    showBusy(false);
    if (chatView.chat === chat) {
      showAnswer(answering.element, message);
      showContext();
      scrollDown(false);
    }
    announce(message.fault || spokenAnswer(message));
  }
}

function stopAnswer() {
  if (chatView.answering) chatView.answering.controller.abort();
}

function send(text) {
  const {chat} = chatView;
  if (chatView.answering || !text.trim()) return;
  if (chatView.editing >= 0) chat.messages.length = chatView.editing;
  endEdit();
  if (!chat.messages.length) chat.title = text.trim().replace(/\s+/g, " ").slice(0, 60);
  chat.messages.push({role: "user", content: text});
  byId("composer-text").value = "";
  fitField();
  keep(chat);
  sessionStorage.setItem("nanovllm.open", chat.id);
  answerLast();
}

function sendResults(message, results) {
  if (chatView.answering) return;
  message.calls.forEach((call, i) => { call.result = results[i]; });
  keep(chatView.chat);
  answerLast();
  byId("stop").focus();
}

function answerAgain(index) {
  if (chatView.answering) return;
  chatView.chat.messages.length = index;
  answerLast();
  byId("stop").focus();
}

function beginEdit(index) {
  if (chatView.answering) return;
  chatView.editing = index;
  byId("editing").hidden = false;
  byId("composer-text").value = chatView.chat.messages[index].content;
  fitField();
  byId("composer-text").focus();
}

function endEdit() {
  if (chatView.editing >= 0) byId("composer-text").value = "";
  chatView.editing = -1;
  byId("editing").hidden = true;
  fitField();
}

/* The field grows with its text. */
function fitField() {
  const field = byId("composer-text");
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight}px`;
}

/* A keyboard on the screen has no Shift + Enter: there the button sends. */
function sendsMessage(event) {
  return event.key === "Enter" && !event.shiftKey && !event.isComposing && !matchMedia("(pointer: coarse)").matches;
}

function initChat() {
  const field = byId("composer-text");
  byId("composer").addEventListener("submit", event => {
    event.preventDefault();
    send(field.value);
  });
  field.addEventListener("input", fitField);
  field.addEventListener("keydown", event => {
    if (sendsMessage(event)) {
      event.preventDefault();
      send(field.value);
    } else if (event.key === "Escape") {
      if (chatView.answering) stopAnswer();
      else endEdit();
    }
  });
  byId("stop").addEventListener("click", () => {
    stopAnswer();
    field.focus();
  });
  byId("cancel-edit").addEventListener("click", endEdit);
  byId("new-chat").addEventListener("click", newChat);
  byId("examples").append(...EXAMPLES.map(text => make("li", {}, button(text, {}, () => send(text)))));
  window.addEventListener("storage", showChatList); // another tab
  window.addEventListener("pagehide", () => {
    if (chatView.answering) keep(chatView.answering.chat);
  });
  openChat(sessionStorage.getItem("nanovllm.open") || "");
}

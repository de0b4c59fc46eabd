/* Tool calls in the chat: shown folded, as the model wrote them, and answered by hand. A message keeps them
 * as `calls`: {id, name, arguments, result}, the last one once it is sent. */

/* The tools of the settings, as a request has them; null: none. Throws ServerFault. */
function readTools(text) {
  if (!text || !text.trim()) return null;
  let tools;
  try {
    tools = JSON.parse(text);
  } catch (error) {
    throw new ServerFault(`The tools in the settings are not JSON. ${error.message}.`, 0);
  }
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

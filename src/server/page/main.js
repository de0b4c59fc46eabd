/* Start: what belongs to the whole page. */

function openDrawer() {
  document.body.classList.add("chats-open");
  byId("chats-button").setAttribute("aria-expanded", "true");
  byId("new-chat").focus();
}

function closeDrawer() {
  if (document.body.classList.contains("chats-open")) requestAnimationFrame(() => scrollDown(true));
  document.body.classList.remove("chats-open");
  byId("chats-button").setAttribute("aria-expanded", "false");
}

function askForKey(fault) {
  byId("key-button").hidden = false;
  byId("key-fault").hidden = !fault;
  byId("key-fault").textContent = fault;
  if (!byId("key").open) byId("key").showModal();
}

async function readModel() {
  try {
    const [model] = (await askJson("v1/models")).data;
    chatView.model = model.id;
    chatView.contextLength = model.max_model_len;
    byId("model").textContent = model.id;
    byId("welcome-text").textContent =
      `${model.id} on this server answers. Nothing else is contacted.`;
    showContext();
    await makeNumbers();
  } catch (error) {
    if (error.status !== 401) byId("welcome-text").textContent = error.message;
  }
}

/* Makes the settings' fields of numbers: the sampler's as /props has them, their ranges and help from
   /openapi.json. What the server takes where a field is empty stands in it, grey. */
async function makeNumbers() {
  const {repeat_penalty, ...others} = (await askJson("props")).default_generation_settings.params;
  const schemas = (await askJson("openapi.json")).components.schemas.Sampling.properties;
  const defaults = {...others, repetition_penalty: repeat_penalty, max_tokens: "the rest", seed: "drawn"};
  for (const [name, value] of Object.entries(defaults)) {
    if (byId("settings-form").elements[name]) continue;
    const schema = schemas[name] || {type: ["integer"], minimum: 1};
    const field = make("input", {name, type: "number", step: schema.type[0] === "integer" ? "1" : "any",
                                 min: schema.minimum ?? schema.exclusiveMinimum, max: schema.maximum ?? "",
                                 placeholder: String(value), value: settings.values[name] || ""});
    const label = make("label", {title: schema.description || ""},
                       name[0].toUpperCase() + name.slice(1).replaceAll("_", " "));
    label.append(field);
    byId("settings-grid").append(label);
  }
}

function initDialogs() {
  byId("settings-button").addEventListener("click", () => {
    fillSettings();
    byId("settings").showModal();
  });
  byId("settings-form").addEventListener("input", keepSettings);
  for (const id of ["tools", "form", "form-text"]) byId(id).addEventListener("input", checkTexts);
  byId("settings-reset").addEventListener("click", () => {
    settings.write({});
    fillSettings();
  });
  byId("export").addEventListener("click", exportChats);
  byId("delete-all").addEventListener("click", () => {
    if (!confirm("Delete all chats of this browser?")) return;
    stopAnswer();
    chats.list().forEach(chat => chats.remove(chat.id));
    byId("settings").close();
    newChat();
  });
  byId("key-button").addEventListener("click", () => askForKey(""));
  byId("key-form").addEventListener("submit", () => {
    key.write(byId("key-value").value.trim());
    byId("key-value").value = "";
    readModel();
    if (!byId("engine").hidden) {
      closeEngine();
      openEngine();
    }
  });
}

initDialogs();
byId("chats-button").addEventListener("click", () =>
  document.body.classList.contains("chats-open") ? closeDrawer() : openDrawer());
document.addEventListener("keydown", event => {
  if (event.key !== "Escape" || !document.body.classList.contains("chats-open")) return;
  closeDrawer();
  byId("chats-button").focus();
});
initChat();
initEngine();
readModel();
byId("composer-text").focus();

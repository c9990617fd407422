// The page's frame: menu, dialogs, keys, and the list of models.
const isWide = matchMedia("(min-width: 60rem)");

function atEnd() {
  const view = get("main");
  return view.scrollHeight - view.scrollTop - view.clientHeight < 80;
}

function follow(was) {
  if (was) get("main").scrollTop = get("main").scrollHeight;
}

function showRunning(isRunning, said = "") {
  get("send").textContent = isRunning ? "Stop" : "Send";
  get("status").textContent = isRunning ? "The answer is being written." : said;
}

function notify(text) { get("notice").textContent = text; }

function showMenu(isShown) {
  document.body.classList.toggle("menu", isShown);
  get("menu").setAttribute("aria-expanded", isShown);
}

/// What the boxes of schema and tools contain, and whether a request uses them.
function showBoxes() {
  for (const name of ["schema", "tools"]) {
    get(name + "_open").classList.toggle("used", get("use_" + name).checked);
    get(name + "_open").textContent = (name === "schema" ? "Schema" : "Tools") + (get("use_" + name).checked ? ": on" : "");
    let fault = "";
    if (get(name).value.trim() !== "") {
      try { JSON.parse(get(name).value); } catch (error) { fault = error.message; }
    }
    get(name + "_fault").textContent = fault;
    get(name).setAttribute("aria-invalid", fault !== "");
  }
  document.body.classList.toggle("untinted", !get("tint").checked);
  document.documentElement.dataset.theme = get("theme").value;
}

async function nameModels() {
  try {
    const response = await fetch("/v1/models", {headers: headers()});
    if (!response.ok) return;
    const names = (await response.json()).data.map(model => model.id), kept = get("model").value || keptModel;
    get("model").replaceChildren(...names.map(name => new Option(name, name, false, name === kept)));
  } catch { /* the server is gone: the figures show it */ }
}

loadSettings();
showMenu(isWide.matches);
showBoxes();
const talk = new Talk();

get("form").addEventListener("submit", event => {
  event.preventDefault();
  if (talk.writing) return talk.stop();
  const text = get("input").value;
  if (!text.trim()) return;
  get("input").value = "";
  talk.ask(text);
});
get("input").addEventListener("keydown", event => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  if (!talk.writing) get("form").requestSubmit();
});
get("clear").addEventListener("click", () => {
  talk.show(newConversation());
  if (!isWide.matches) showMenu(false);
  get("input").focus();
});
get("menu").addEventListener("click", () => showMenu(!document.body.classList.contains("menu")));
get("shade").addEventListener("click", () => showMenu(false));
get("export").addEventListener("click", exportConversations);
for (const name of ["settings", "schema", "tools"]) {
  const dialog = get(name + "_dialog");
  get(name + "_open").addEventListener("click", () => dialog.showModal());
  dialog.querySelector(".close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", event => { if (event.target === dialog) dialog.close(); });
}
document.addEventListener("keydown", event => {
  if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
  if (document.body.classList.contains("menu") && !isWide.matches) return showMenu(false);
  talk.stop();
});
document.addEventListener("input", event => {
  const name = event.target.id;
  if (name === "schema" || name === "tools") get("use_" + name).checked = event.target.value.trim() !== "";
  if (!keptSettings.includes(name)) return;
  saveSettings();
  showBoxes();
  if (name === "markdown") talk.redraw();
});
get("key").addEventListener("change", nameModels);
isWide.addEventListener("change", () => showMenu(isWide.matches));
window.addEventListener("storage", event => { if (event.key?.startsWith(chatPrefix)) talk.reload(); });
window.addEventListener("pagehide", () => { if (talk.writing) talk.keep(talk.shown); });
setInterval(lookAtFigures, 1000);
nameModels();
lookAtFigures();

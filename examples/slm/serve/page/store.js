"use strict";
const get = id => document.getElementById(id);

// What the browser keeps: conversations, an entry each, so that two tabs do not overwrite each other's, and the settings.
// The API key is not kept.
const chatPrefix = "slm.chat.", settingsKey = "slm.settings";
const keptSettings = ["mode", "temperature", "top_p", "top_k", "min_p", "max_tokens", "seed", "thinking", "budget", "system", "model",
                      "schema", "use_schema", "tools", "tool_choice", "use_tools", "markdown", "tint", "theme"];

function newConversation() {
  const random = crypto.getRandomValues(new Uint32Array(2));
  return {id: Date.now().toString(36) + "-" + random[0].toString(36) + random[1].toString(36), changed: Date.now(), messages: []};
}

/// The beginning of the first text.
function titleOf(conversation) {
  const first = conversation.messages[0];
  const text = (first?.prompt ?? first?.content ?? "").trim().replace(/\s+/g, " ");
  return text === "" ? "New chat" : text.length > 60 ? text.slice(0, 60) + "…" : text;
}

function isConversation(value) {
  return typeof value?.id === "string" && Array.isArray(value.messages) &&
    value.messages.every(message => typeof message?.role === "string" && typeof message.content === "string");
}

/// The kept conversations, the last changed one first.
function keptConversations() {
  const found = [];
  for (let k = 0; k < localStorage.length; ++k) {
    const key = localStorage.key(k);
    if (!key.startsWith(chatPrefix)) continue;
    try {
      const value = JSON.parse(localStorage.getItem(key));
      if (isConversation(value)) found.push(value);
    } catch { /* an entry of something else */ }
  }
  return found.sort((a, b) => b.changed - a.changed);
}

function keep(conversation) {
  conversation.changed = Date.now();
  try {
    localStorage.setItem(chatPrefix + conversation.id, JSON.stringify(conversation));
    notify("");
  } catch {
    notify("The browser keeps no more chats: export and delete some.");
  }
}

function forget(conversation) { localStorage.removeItem(chatPrefix + conversation.id); }

function exportConversations() {
  const text = JSON.stringify({conversations: keptConversations()}, null, 1);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], {type: "application/json"}));
  link.download = "slm-chats.json";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

let keptModel = "";

function loadSettings() {
  let kept = {};
  try { kept = JSON.parse(localStorage.getItem(settingsKey)) ?? {}; } catch { /* an entry of something else */ }
  for (const name of keptSettings) {
    const field = get(name);
    if (kept[name] === undefined) continue;
    if (field.type === "checkbox") field.checked = kept[name] === true;
    else if (name === "model") keptModel = kept[name];  // its options come from the server
    else field.value = kept[name];
  }
}

function saveSettings() {
  const values = keptSettings.map(name => [name, get(name).type === "checkbox" ? get(name).checked : get(name).value]);
  try {
    localStorage.setItem(settingsKey, JSON.stringify(Object.fromEntries(values)));
  } catch { /* the settings last until the page is closed */ }
}

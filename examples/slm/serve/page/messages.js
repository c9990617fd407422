// A message of the shown conversation as elements. Roles: user, assistant, tool (the result of a call), and text (a
// prompt and its continuation).
function make(tag, kind, text, parent) {
  const element = document.createElement(tag);
  if (kind) element.className = kind;
  if (text) element.textContent = text;
  parent?.append(element);
  return element;
}

function makeButton(text, label, act, parent) {
  const button = make("button", "", text, parent);
  button.type = "button";
  button.setAttribute("aria-label", label);
  button.title = label;
  button.addEventListener("click", () => act(button));
  return button;
}

async function copyText(text) {
  try {
    return await navigator.clipboard.writeText(text);
  } catch { /* a page without TLS, or without the permission */ }
  const area = make("textarea", "unseen", "", document.body);
  area.value = text;
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  if (!copied) throw new Error("The browser does not copy.");
}

function copyButton(label, text) {
  return makeButton("Copy", label, async button => {
    try {
      await copyText(text());
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not copied";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
    button.focus();
  });
}

function indented(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;  // the beginning of a call
  }
}

/// Shows a text that only grows, as it is.
class PlainView {
  constructor(element) {
    this.element = element;
    this.length = 0;
  }

  show(source, drafted) {
    new Painter(source, drafted).put(this.element, this.length, source.length);
    this.length = source.length;
  }
}

/// `talk` has edit(message, text), regenerate(message), sendResults(message, texts), and nameOfCall(message).
class MessageView {
  constructor(message, talk) {
    this.message = message;
    this.talk = talk;
    const {role} = message, isAnswer = role === "assistant" || role === "text";
    const label = {user: "Your message", assistant: "Answer", tool: "Result of a call", text: "Text"}[role];
    this.element = make("article", isAnswer ? "assistant" : role);
    this.element.setAttribute("aria-label", label);
    this.marked = role === "assistant" && get("markdown").checked;
    if (role === "text") make("span", "prompt", message.prompt, make("div", "body", "", this.element));
    if (role === "assistant") {
      this.reasoning = make("details", "reasoning", "", this.element);
      make("summary", "", "Reasoning", this.reasoning);
      this.thoughts = this.viewIn(this.reasoning);
    }
    if (role === "tool") {
      const details = make("details", "result", "", this.element);
      details.open = true;
      make("summary", "", "Result of " + talk.nameOfCall(message), details);
      this.body = this.viewIn(details);
    } else {
      this.body = this.viewIn(this.element);
    }
    this.calls = make("div", "calls", "", this.element);
    this.fault = make("div", "fault", "", this.element);
    this.fault.setAttribute("role", "alert");
    this.footer = make("footer", "", "", this.element);
    const actions = make("div", "actions", "", this.element);
    actions.append(copyButton("Copy the message", () => (message.prompt ?? "") + message.content));
    makeButton("Edit", "Edit the message", () => this.edit(), actions);
    if (isAnswer) makeButton("Regenerate", "Regenerate the answer", () => talk.regenerate(message), actions);
    this.update();
  }

  viewIn(parent) {
    const element = make("div", this.marked ? "body markdown" : "body", "", parent);
    return this.marked ? new MarkdownView(element) : new PlainView(element);
  }

  update() {
    const message = this.message, drafted = message.drafted ?? {};
    this.element.setAttribute("aria-busy", this.talk.isWriting(message));
    this.body.show(message.content, drafted.content ?? []);
    if (this.reasoning) {
      this.reasoning.hidden = !message.reasoning_content;
      this.thoughts.show(message.reasoning_content ?? "", drafted.reasoning_content ?? []);
      const isThinking = this.talk.isWriting(message) && message.content === "" && !message.tool_calls;
      this.reasoning.firstChild.textContent = isThinking ? "Reasoning…" : "Reasoning";
    }
    this.showCalls();
    this.fault.textContent = message.fault ?? "";
    this.footer.textContent = message.facts ?? "";
    this.element.classList.toggle("writing", this.talk.isWriting(message));
  }

  showCalls() {
    const calls = this.message.tool_calls ?? [], asks = calls.length > 0 && this.talk.wantsResults(this.message);
    const state = JSON.stringify([calls, asks]);
    if (state === this.callsState) return;
    this.callsState = state;
    this.calls.replaceChildren();
    for (const call of calls) {
      const details = make("details", "call", "", this.calls), text = indented(call.function.arguments);
      details.open = true;
      make("summary", "", "Call of " + call.function.name, details);
      make("pre", "", text, details).tabIndex = 0;
      details.append(copyButton("Copy the arguments", () => text));
    }
    if (asks) this.askForResults(calls);
  }

  askForResults(calls) {
    const form = make("form", "results", "", this.calls);
    const fields = calls.map(call => {
      const label = make("label", "", "Result of " + call.function.name, form), field = make("textarea", "", "", label);
      field.rows = 2;
      return field;
    });
    makeButton(calls.length > 1 ? "Send results" : "Send result", "Send to the model", () => form.requestSubmit(), form);
    form.addEventListener("submit", event => {
      event.preventDefault();
      this.talk.sendResults(this.message, fields.map(field => field.value));
    });
    for (const field of fields) submitOnEnter(field, form);
  }

  /// Replaces the text by a form until it is saved or given up.
  edit() {
    if (this.talk.isWriting(this.message) || this.editor) return;
    const message = this.message, name = message.role === "text" ? "prompt" : "content";
    const form = this.editor = make("form", "editor");
    const field = make("textarea", "", "", form), row = make("div", "row", "", form);
    field.value = message[name];
    field.rows = Math.min(20, message[name].split("\n").length + 1);
    field.setAttribute("aria-label", "Text of the message");
    const leave = () => {
      this.editor = null;
      form.remove();
      this.element.classList.remove("edited");
      this.element.querySelector(".actions button:nth-child(2)").focus();
    };
    const save = make("button", "main", message.role === "assistant" ? "Save" : "Save and ask", row);
    save.type = "submit";
    makeButton("Cancel", "Cancel the edit", leave, row);
    form.addEventListener("submit", event => {
      event.preventDefault();
      leave();
      if (field.value !== message[name]) this.talk.edit(message, name, field.value);
    });
    submitOnEnter(field, form);
    field.addEventListener("keydown", event => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      leave();
    });
    this.element.classList.add("edited");
    this.element.prepend(form);
    field.focus();
  }
}

/// Enter submits, Shift+Enter breaks the line.
function submitOnEnter(field, form) {
  field.addEventListener("keydown", event => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  });
}

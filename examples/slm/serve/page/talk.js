// The shown conversation: its messages, its answers, and the list of all conversations.
class Talk {
  constructor() {
    this.conversations = keptConversations();
    this.views = new Map();  // by message
    this.writing = null;     // the message that is being filled
    const asked = this.conversations.find(conversation => conversation.id === location.hash.slice(1));
    this.show(asked ?? newConversation());
  }

  isWriting(message) { return this.writing === message; }

  /// A message's calls have no results yet.
  wantsResults(message) { return !this.isWriting(message) && this.messages.at(-1) === message && !message.fault; }

  nameOfCall(result) {
    const calls = this.messages.flatMap(message => message.tool_calls ?? []);
    return calls.find(call => call.id === result.tool_call_id)?.function.name ?? "a call";
  }

  get messages() { return this.shown.messages; }

  show(conversation) {
    this.stop();
    this.shown = conversation;
    history.replaceState(null, "", conversation.messages.length > 0 ? "#" + conversation.id : location.pathname);
    this.redraw();
    get("main").scrollTop = get("main").scrollHeight;
  }

  redraw() {
    this.views.clear();
    get("talk").replaceChildren();
    get("hint").hidden = this.messages.length > 0;
    for (const message of this.messages) this.addView(message);
    this.list();
  }

  addView(message) {
    const view = new MessageView(message, this);
    this.views.set(message, view);
    get("talk").append(view.element);
  }

  add(message) {
    this.messages.push(message);
    get("hint").hidden = true;
    this.addView(message);
  }

  /// The list of conversations.
  list() {
    const list = get("chats");
    list.replaceChildren();
    for (const conversation of this.conversations) {
      const line = make("li", "", "", list), title = titleOf(conversation);
      const button = makeButton(title, title, () => {
        this.show(conversation);
        if (!isWide.matches) showMenu(false);
        get("input").focus();
      }, line);
      if (conversation === this.shown) button.setAttribute("aria-current", "true");
      makeButton("✕", "Delete " + title, remove => {  // a second press deletes
        if (remove.textContent === "Delete?") return this.forget(conversation);
        remove.textContent = "Delete?";
        remove.setAttribute("aria-label", "Press again to delete " + title);
        remove.addEventListener("blur", () => { remove.textContent = "✕"; }, {once: true});
        remove.focus();
      }, line);
    }
  }

  forget(conversation) {
    forget(conversation);
    this.conversations = this.conversations.filter(other => other !== conversation);
    if (conversation === this.shown) this.show(newConversation());
    else this.list();
    (get("chats").querySelector("button") ?? get("clear")).focus();
  }

  /// Another tab has changed the kept conversations.
  reload() {
    this.conversations = keptConversations().map(other => other.id === this.shown.id ? this.shown : other);
    this.list();
  }

  keep(conversation) {
    keep(conversation);
    this.conversations = [conversation, ...this.conversations.filter(other => other !== conversation)];
    if (conversation === this.shown) history.replaceState(null, "", "#" + conversation.id);
    this.list();
  }

  ask(text) {
    const isChat = get("mode").value === "chat";
    if (isChat) this.add({role: "user", content: text});
    return this.answer(isChat ? {role: "assistant", content: ""} : {role: "text", prompt: text, content: ""});
  }

  stop() {
    running?.stop();
    running = null;
    this.writing = null;
    showRunning(false);
  }

  /// Fills a message at the end of the conversation. Another one may be shown meanwhile.
  async answer(message) {
    const conversation = this.shown, before = [...conversation.messages];
    this.stop();
    this.writing = message;
    this.add(message);
    this.refresh();
    this.keep(conversation);
    showRunning(true);
    get("input").focus();
    follow(true);
    let asked = false;
    await fill(message, before, () => {
      if (asked) return;
      asked = true;
      requestAnimationFrame(() => {
        asked = false;
        const was = atEnd();
        this.views.get(message)?.update();
        follow(was);
      });
    });
    const was = atEnd(), isOurs = this.writing === message;
    if (isOurs) this.writing = null;
    if (this.conversations.includes(conversation)) this.keep(conversation);
    this.refresh();
    follow(was && conversation === this.shown);
    if (isOurs) showRunning(false, message.fault ? "The answer failed." : "The answer is complete.");
  }

  refresh() { for (const view of this.views.values()) view.update(); }

  regenerate(message) {
    const at = this.messages.indexOf(message);
    this.stop();
    this.messages.splice(at);
    this.redraw();
    const {role, prompt} = message;
    return this.answer(role === "text" ? {role, prompt, content: ""} : {role, content: ""});
  }

  /// An edited answer stays; what follows another edited message is written anew.
  edit(message, name, text) {
    message[name] = text;
    message.drafted = {};
    if (message.role === "assistant") {
      this.keep(this.shown);
      return this.redraw();
    }
    if (message.role === "text") return this.regenerate(message);
    this.stop();
    let end = this.messages.indexOf(message) + 1;
    while (this.messages[end]?.role === "tool") ++end;  // results of other calls of the same answer
    this.messages.splice(end);
    this.redraw();
    return this.answer({role: "assistant", content: ""});
  }

  sendResults(message, texts) {
    message.tool_calls.forEach((call, k) => this.add({role: "tool", tool_call_id: call.id, content: texts[k]}));
    return this.answer({role: "assistant", content: ""});
  }
}

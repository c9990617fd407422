// Requests to the server and their streams.
let running = null;  // the answer that is being written: {stop}

function headers() {
  const key = get("key").value;
  return {"Content-Type": "application/json", ...(key ? {"Authorization": "Bearer " + key} : {})};
}

/// The JSON of a field, if its box is ticked; throws a message for the user.
function jsonOf(name, used) {
  if (!get(used).checked) return undefined;
  try {
    return JSON.parse(get(name).value);
  } catch (error) {
    throw new Error((name === "schema" ? "The schema is no JSON: " : "The list of tools is no JSON: ") + error.message);
  }
}

/// A message as the API takes it.
function sent(message) {
  const names = ["role", "content", "reasoning_content", "tool_calls", "tool_call_id"];
  return Object.fromEntries(names.filter(name => message[name]?.length > 0 || name === "content").map(name => [name, message[name]]));
}

function hasAnswer(message) { return message.content !== "" || message.tool_calls?.length > 0; }

/// The path and the body of a request for the answer `message`, which follows the messages before it.
function requestFor(message, before) {
  const number = name => get(name).value === "" ? undefined : Number(get(name).value);
  const body = {model: get("model").value || undefined, stream: true, stream_options: {include_usage: true}};
  for (const name of ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"]) body[name] = number(name);
  const schema = jsonOf("schema", "use_schema");
  if (schema !== undefined) body.response_format = {type: "json_schema", json_schema: {name: "answer", schema}};
  if (message.role === "text") return ["/v1/completions", {...body, prompt: message.prompt}];
  const system = get("system").value.trim(), thinking = get("thinking").value;
  body.messages = before.filter(other => other.role !== "text" && (other.role !== "assistant" || hasAnswer(other))).map(sent);
  if (system) body.messages.unshift({role: "system", content: system});
  if (thinking) body.enable_thinking = thinking === "on";
  body.reasoning_budget_tokens = number("budget");
  body.tools = jsonOf("tools", "use_tools");
  if (body.tools) body.tool_choice = get("tool_choice").value;
  return ["/v1/chat/completions", body];
}

/// Calls take(event) for each event of a stream.
async function readEvents(response, take) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      if (event.startsWith("data: ") && event !== "data: [DONE]") take(JSON.parse(event.slice(6)));
    }
  }
}

/// Adds text to a member of a message, and its range to the drafted ones.
function addText(message, name, text, drafted) {
  const from = (message[name] ?? "").length, ranges = message.drafted[name] ??= [];
  message[name] = (message[name] ?? "") + text;
  if (!drafted) return;
  if (ranges.at(-1)?.[1] === from) ranges.at(-1)[1] += text.length;
  else ranges.push([from, from + text.length]);
}

function addCalls(message, deltas) {
  for (const delta of deltas) {
    message.tool_calls ??= [];
    const call = message.tool_calls[delta.index] ??= {id: delta.id, type: "function", function: {name: "", arguments: ""}};
    call.function.name += delta.function.name ?? "";
    call.function.arguments += delta.function.arguments ?? "";
  }
}

function factsOf(milliseconds, usage, statistics, ending) {
  const facts = [], count = usage?.completion_tokens ?? 0, cached = usage?.prompt_tokens_details?.cached_tokens ?? 0;
  if (count > 1) facts.push(((count - 1) * 1000 / Math.max(milliseconds, 1)).toFixed(1) + " tokens/s");
  if (statistics?.drafted > 0) {
    facts.push((100 * statistics.acceptance_rate).toFixed(0) + " % of " + statistics.drafted + " drafted tokens accepted");
    facts.push(statistics.tokens_per_step.toFixed(2) + " tokens per step");
  }
  if (usage) facts.push("prompt of " + usage.prompt_tokens + " tokens" + (cached ? ", " + cached + " cached" : ""));
  if (ending) facts.push(ending);
  return facts.join(" · ");
}

/// Fills an answer from the server; changed() is called after each event.
async function fill(message, before, changed) {
  const controller = new AbortController(), mine = {stop: () => controller.abort()};
  running = mine;
  let began = 0, now = 0, statistics, usage, ending = "";
  message.drafted = {};
  try {
    const [path, body] = requestFor(message, before);
    const response = await fetch(path, {method: "POST", headers: headers(), body: JSON.stringify(body), signal: controller.signal});
    if (!response.ok) throw new Error((await response.json()).error.message);
    await readEvents(response, event => {
      if (event.error) throw new Error(event.error.message);
      usage = event.usage ?? usage;
      const choice = event.choices[0];
      if (!choice) return;
      const delta = choice.delta ?? {content: choice.text}, drafted = choice.slm?.drafted === true;
      if (delta.reasoning_content) addText(message, "reasoning_content", delta.reasoning_content, drafted);
      if (delta.content) addText(message, "content", delta.content, drafted);
      if (delta.tool_calls) addCalls(message, delta.tool_calls);
      if (delta.content || delta.reasoning_content || delta.tool_calls) began ||= (now = performance.now());
      if (began) now = performance.now();
      if (choice.finish_reason === "length") ending = "cut at its length";
      statistics = choice.slm?.statistics ?? statistics;
      changed();
    });
  } catch (error) {
    if (error.name === "AbortError") ending = "stopped";
    else message.fault = error.message;
  }
  message.facts = factsOf(now - began, usage, statistics, ending);
  if (running === mine) running = null;
}

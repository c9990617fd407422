// Figures of the whole server, once a second, from /metrics.
const curve = [];
let figuresBefore = null;

function sample(text, name) {
  const line = text.split("\n").find(line => line.startsWith(name + "{") || line.startsWith(name + " "));
  return line ? Number(line.slice(line.lastIndexOf(" ") + 1)) : NaN;
}

function showFigure(id, value, format) { get(id).textContent = Number.isFinite(value) ? format(value) : "–"; }

async function lookAtFigures() {
  if (document.hidden) return;
  try {
    const text = await (await fetch("/metrics", {headers: headers()})).text();
    const now = {at: performance.now(), tokens: sample(text, "vllm:generation_tokens_total"),
                 drafted: sample(text, "vllm:spec_decode_num_draft_tokens_total"),
                 accepted: sample(text, "vllm:spec_decode_num_accepted_tokens_total")};
    showFigure("running", sample(text, "vllm:num_requests_running"), value => value);
    showFigure("waiting", sample(text, "vllm:num_requests_waiting"), value => value);
    showFigure("cache", sample(text, "vllm:kv_cache_usage_perc"), value => (100 * value).toFixed(1) + " %");
    showFigure("acceptance", now.accepted / now.drafted, value => (100 * value).toFixed(0) + " %");
    if (figuresBefore) {
      const speed = (now.tokens - figuresBefore.tokens) * 1000 / (now.at - figuresBefore.at);
      showFigure("speed", speed, value => value.toFixed(0));
      curve.push(Number.isFinite(speed) ? speed : 0);
      if (curve.length > 45) curve.shift();
      const most = Math.max(...curve, 1);
      get("curve").setAttribute("points", curve.map((value, i) => 2 * i + "," + (21 - 20 * value / most).toFixed(1)).join(" "));
    }
    figuresBefore = now;
  } catch { figuresBefore = null; }
}

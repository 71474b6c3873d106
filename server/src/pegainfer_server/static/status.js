// The column that shows what the server does.

const byId = (id) => document.getElementById(id);
const show = (id, text) => { byId(id).textContent = text ?? "–"; };

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export function bytes(count) {
  if (count === null) return "–";
  let unit = 0;
  while (count >= 1024 && unit < UNITS.length - 1) { count /= 1024; unit += 1; }
  return `${count >= 100 || unit === 0 ? Math.round(count) : count.toFixed(1)} ${UNITS[unit]}`;
}

export function duration(seconds) {
  if (seconds === null) return "–";
  if (seconds < 1) return `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 60 * 48) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${Math.floor(minutes / 1440)} days`;
}

const whole = (value) => (value === null ? "–" : Math.round(value).toLocaleString("en"));
const share = (part, all) => (all ? `${(100 * part / all).toFixed(part && part / all < 0.1 ? 1 : 0)} %` : "–");

function fill(bar, ...shares) {
  [...bar.children].forEach((part, i) => {
    part.style.width = `${100 * Math.min(Math.max(shares[i] || 0, 0), 1)}%`;
  });
}

export function showHealth(state) {
  const pill = byId("health");
  pill.textContent = state;
  pill.className = `pill ${state === "ok" ? "ok" : ["dead", "unreachable", "stalled"].includes(state) ? "bad" : ""}`;
}

export function showMetrics(history) {
  const now = history.scrapes.at(-1);
  const generated = history.rate("generation_tokens_total");
  show("generated", generated === null ? "–" : generated >= 100 || generated === 0 ? whole(generated) : generated.toFixed(1));
  show("prefilled", whole(history.rate("prompt_tokens_total")));
  show("ttft", duration(history.mean("time_to_first_token_seconds")));
  show("itl", duration(history.mean("inter_token_latency_seconds")));
  drawSpark(history.rates("generation_tokens_total"));
  showRequests(now);
  showKv(now);
  showTiers(now);
  const started = now.value("process_start_time_seconds");
  show("uptime", duration(started === null ? null : now.nowMs / 1000 - started));
  const memory = now.all("process_resident_memory_bytes").map((sample) => bytes(sample.value));
  show("memory", memory.join(" + ") || "–");
  const backend = now.label("engine_info", "backend");
  show("engine", backend ? `${now.label("engine_info", "family")} on ${backend}` : "–");
}

function showRequests(now) {
  const [running, most] = [now.value("num_requests_running"), now.value("max_requests_running")];
  show("running", running === null ? "–" : `${whole(running)} of ${whole(most)}`);
  fill(byId("running-bar"), running / most);
  const waiting = now.value("num_requests_waiting");
  const forPages = now.value("num_requests_waiting_by_reason", { reason: "kv" });
  show("waiting", forPages ? `${whole(waiting)} (${whole(forPages)} for KV pages)` : whole(waiting));
  const ended = (...reasons) => whole(reasons
    .map((reason) => now.value("request_success_total", { finished_reason: reason }) ?? 0)
    .reduce((sum, count) => sum + count, 0));
  show("answered", ended("stop", "length"));
  show("aborted", ended("abort"));
  show("failed", ended("error"));
}

function showKv(now) {
  const pages = Number(now.label("cache_config_info", "num_gpu_blocks"));
  byId("kv-card").hidden = !pages;
  if (!pages) return;
  const used = now.value("kv_cache_used_pages") ?? 0;
  const cached = now.value("kv_cache_cached_pages") ?? 0;
  fill(byId("kv-bar"), used / pages, cached / pages);
  show("kv-used", share(used, pages));
  show("kv-cached", share(cached, pages));
  const queries = now.value("prefix_cache_queries_total");
  byId("prefix-row").hidden = queries === null;
  show("prefix", share(now.value("prefix_cache_hits_total"), queries));
  show("preemptions", whole(now.value("num_preemptions_total")));
}

function showTiers(now) {
  const used = now.all("kv_offload_used_bytes");
  byId("tier-card").hidden = !used.length;
  byId("tiers").replaceChildren(...used.map(({ labels, value }) => {
    const of = (name) => now.value(`kv_offload_${name}`, { tier: labels.tier });
    const capacity = of("capacity_bytes");
    const bar = element("div", "bar", element("i"));
    fill(bar, capacity ? value / capacity : 0);
    const held = capacity ? `${bytes(value)} of ${bytes(capacity)}` : bytes(value);
    const title = element("h3", "", labels.tier, element("span", "", of("cut_off") ? "cut off" : held));
    return element("div", "tier", title, bar, pairs([
      ["Restored from here", share(of("hits_total"), of("queries_total"))],
      ["Saved, loaded", `${bytes(of("saved_bytes_total"))}, ${bytes(of("loaded_bytes_total"))}`],
    ]));
  }));
}

function pairs(entries) {
  return element("dl", "", ...entries.map(([name, value]) =>
    element("div", "", element("dt", "", name), element("dd", "", value))));
}

export function showModels(models) {
  const names = models.map((model) => model.id);
  show("model", names.join(", "));
  show("context", models.length ? `${models[0].max_model_len.toLocaleString("en")} tokens` : "–");
  const select = byId("models");
  const chosen = select.value;
  select.replaceChildren(...names.map((name) => new Option(name, name)));
  if (names.includes(chosen)) select.value = chosen;
}

export function showVersion(version) {
  show("version", version);
}

export function showPlugins(plugins) {
  byId("plugins").replaceChildren(...plugins.map((plugin) => {
    const dot = element("span", `dot ${plugin.error ? "bad" : plugin.state === "loaded" ? "" : "off"}`);
    const line = element("li", "", dot, element("span", "", plugin.name), element("span", "version", plugin.version || ""));
    line.title = plugin.error || plugin.state || "";
    return line;
  }));
}

function drawSpark(values) {
  const [width, height, most] = [120, 36, Math.max(...values, 1)];
  const points = values.map((value, i) =>
    `${(width - (values.length - 1 - i) * (width / 59)).toFixed(1)} ${(height - 1 - value / most * (height - 3)).toFixed(1)}`);
  const line = points.length > 1 ? `M${points.join("L")}` : "";
  byId("spark-line").setAttribute("d", line);
  const left = points.length ? points[0].split(" ")[0] : 0;
  byId("spark-area").setAttribute("d", line && `${line}L${width} ${height}L${left} ${height}Z`);
}

// Text becomes text, whatever is in it.
export function element(tag, className = "", ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

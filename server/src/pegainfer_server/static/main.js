// Starts the page: looks at the server every second while somebody looks at the page.

import { call, hasKey, setKey } from "/page/api.js";
import { Chat } from "/page/chat.js";
import { History, Scrape } from "/page/metrics.js";
import { showHealth, showMetrics, showModels, showPlugins, showVersion } from "/page/status.js";

const PERIOD_MS = 1000;
const FACTS_EVERY = 15;

const byId = (id) => document.getElementById(id);
const history = new History();
let looks = 0;
let asked = false;

async function look() {
  const state = await health();
  showHealth(state);
  if (state === "unreachable") {
    looks = 0;
    return;
  }
  try {
    const response = await call("/metrics");
    history.add(new Scrape(await response.text(), Date.now()));
    showMetrics(history);
    if (looks % FACTS_EVERY === 0) await facts();
    looks = state === "ok" ? looks + 1 : 0;
    byId("key").hidden = !hasKey();
  } catch (fault) {
    if (fault.status === 401) refused();
  }
}

async function health() {
  try {
    return (await (await fetch("/health", { cache: "no-store" })).json()).status;
  } catch {
    return "unreachable";
  }
}

async function facts() {
  showVersion((await (await call("/version")).json()).version);
  showPlugins((await (await call("/v1/plugins")).json()).plugins);
  showModels((await (await call("/v1/models")).json()).data);
}

// Ask once; who closes the dialog finds the button.
function refused() {
  byId("key").hidden = false;
  byId("key-text").textContent = hasKey()
    ? "This server does not accept the key. It stays in this tab and is forgotten with it."
    : "This server asks for a key. It stays in this tab and is forgotten with it.";
  if (!asked) askForKey();
}

function askForKey() {
  asked = true;
  if (!byId("key-dialog").open) byId("key-dialog").showModal();
}

function saveKey() {
  setKey(byId("key-input").value.trim());
  byId("key-input").value = "";
  byId("key-dialog").close();
  asked = false;
  looks = 0;
}

byId("key").addEventListener("click", askForKey);
byId("key-save").addEventListener("click", saveKey);
byId("key-cancel").addEventListener("click", () => byId("key-dialog").close());
byId("key-input").addEventListener("keydown", (event) => {
  if (event.key === "Enter") saveKey();
});
new Chat(refused);

for (;;) {
  if (!document.hidden) await look();
  await new Promise((resolve) => setTimeout(resolve, PERIOD_MS));
}

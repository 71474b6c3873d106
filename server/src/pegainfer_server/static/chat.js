// The chat: what was said, and the answer that is on its way. Text from the model is only ever text.

import { ApiFault, call, events } from "/page/api.js";
import { duration, element } from "/page/status.js";

const byId = (id) => document.getElementById(id);

export class Chat {
  constructor(onRefused) {
    this.onRefused = onRefused;
    this.history = [];
    this.abort = null;
    byId("send").addEventListener("click", () => this.send());
    byId("stop").addEventListener("click", () => this.abort?.abort());
    byId("clear").addEventListener("click", () => this.clear());
    byId("prompt").addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.send();
    });
  }

  clear() {
    this.abort?.abort();
    this.history = [];
    byId("messages").replaceChildren(byId("hint") ?? this.hint);
  }

  async send() {
    const prompt = byId("prompt");
    if (this.abort || !prompt.value.trim()) return;
    this.hint ??= byId("hint");
    this.hint.remove();
    this.history.push({ role: "user", content: prompt.value });
    byId("messages").append(element("div", "message user", element("div", "text", prompt.value)));
    prompt.value = "";
    const history = this.history;
    const said = history.at(-1).content;
    const answer = new Answer();
    byId("messages").append(answer.node);
    this.abort = new AbortController();
    this.showBusy(true);
    answer.scroll(true);
    try {
      const response = await call("/v1/chat/completions", { body: request(history), signal: this.abort.signal });
      for await (const event of events(response)) answer.take(event);
      answer.end();
    } catch (fault) {
      answer.fail(fault);
      if (fault.status === 401) this.onRefused();
    } finally {
      this.abort = null;
      this.showBusy(false);
    }
    if (answer.content) {
      history.push({ role: "assistant", content: answer.content });
    } else {
      // Nothing came of it: it can be said again, and the model never hears of it.
      history.pop();
      prompt.value ||= said;
    }
  }

  showBusy(busy) {
    byId("send").hidden = busy;
    byId("stop").hidden = !busy;
  }
}

function request(history) {
  const body = { model: byId("models").value || undefined, messages: [...history], stream: true, stream_options: { include_usage: true } };
  const system = byId("system").value.trim();
  if (system) body.messages.unshift({ role: "system", content: system });
  if (byId("temperature").value) body.temperature = Number(byId("temperature").value);
  if (byId("max-tokens").value) body.max_tokens = Number(byId("max-tokens").value);
  const thinking = byId("thinking").value;
  if (thinking) body.chat_template_kwargs = { enable_thinking: thinking === "on" };
  return body;
}

class Answer {
  constructor() {
    this.content = "";
    this.startMs = performance.now();
    this.firstMs = null;
    this.reason = null;
    this.usage = null;
    this.text = element("div", "text");
    this.node = element("div", "message assistant busy", this.text);
  }

  take(event) {
    if (event.error) throw new ApiFault(0, event.error.message, null);
    if (event.usage) this.usage = event.usage;
    const [choice] = event.choices;
    if (!choice) return;
    const reasoning = choice.delta.reasoning_content;
    const calls = (choice.delta.tool_calls ?? []).map((one) => (one.function.name ?? "") + (one.function.arguments ?? ""));
    const content = (choice.delta.content ?? "") + calls.join("");
    if (reasoning || content) this.firstMs ??= performance.now();
    const atEnd = this.isAtEnd();
    if (reasoning) this.reasoning().append(reasoning);
    if (content) {
      if (!this.content && this.thought) this.thought.open = false;
      this.content += content;
      this.text.append(content);
    }
    this.reason = choice.finish_reason ?? this.reason;
    this.scroll(atEnd);
  }

  reasoning() {
    if (!this.thought) {
      this.thoughts = element("div", "text");
      this.thought = element("details", "reasoning", element("summary", "", "Reasoning"), this.thoughts);
      this.thought.open = true;
      this.node.prepend(this.thought);
    }
    return this.thoughts;
  }

  end() {
    const facts = [];
    if (this.usage) {
      const count = this.usage.completion_tokens;
      const seconds = (performance.now() - (this.firstMs ?? this.startMs)) / 1000;
      facts.push(`${count} token${count === 1 ? "" : "s"}`);
      if (count > 1 && seconds > 0) facts.push(`${((count - 1) / seconds).toFixed(1)} tokens/s`);
    }
    if (this.firstMs !== null) facts.push(`first after ${duration((this.firstMs - this.startMs) / 1000)}`);
    if (this.reason === "length") facts.push("cut off at the limit of tokens");
    else if (this.reason !== "stop" && this.reason) facts.push(this.reason);
    this.close(element("div", "note", facts.join(" · ")));
  }

  fail(fault) {
    if (fault.name === "AbortError") {
      this.close(element("div", "note", "stopped"));
      return;
    }
    const id = fault.requestId ? ` (request ${fault.requestId})` : "";
    const words = fault instanceof ApiFault ? fault.message + id : "the connection to the server broke";
    this.close(element("div", "fault", words));
  }

  close(note) {
    const atEnd = this.isAtEnd();
    this.node.classList.remove("busy");
    this.node.append(note);
    this.scroll(atEnd);
  }

  isAtEnd() {
    const list = this.node.parentElement;
    return !list || list.scrollHeight - list.scrollTop - list.clientHeight < 40;
  }

  // Only for who looks at the end anyway.
  scroll(wanted) {
    const list = this.node.parentElement;
    if (wanted && list) list.scrollTop = list.scrollHeight;
  }
}

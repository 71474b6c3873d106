// Prometheus text to numbers, and numbers of two moments to rates.

const SAMPLE = /^pegainfer:([a-z0-9_]+)\{(.*)\} (\S+)$/;
const LABEL = /([a-z_]+)="((?:[^"\\]|\\.)*)"/g;

// One scrape.
export class Scrape {
  constructor(text, nowMs) {
    this.nowMs = nowMs;
    this.samples = new Map();
    for (const line of text.split("\n")) {
      const match = SAMPLE.exec(line);
      if (!match) continue;
      const labels = {};
      for (const [, name, value] of match[2].matchAll(LABEL)) {
        labels[name] = value.replace(/\\(.)/g, (_, c) => (c === "n" ? "\n" : c));
      }
      if (!this.samples.has(match[1])) this.samples.set(match[1], []);
      this.samples.get(match[1]).push({ labels, value: Number(match[3]) });
    }
  }

  // Null when it is absent, which is not the same as 0.
  value(name, labels = {}) {
    const found = this.all(name).find((sample) =>
      Object.entries(labels).every(([key, text]) => sample.labels[key] === text));
    return found ? found.value : null;
  }

  all(name) {
    return this.samples.get(name) || [];
  }

  label(name, label) {
    const [first] = this.all(name);
    return first ? first.labels[label] : null;
  }
}

// The scrapes of the last minute.
export class History {
  constructor(spanMs = 60_000) {
    this.spanMs = spanMs;
    this.scrapes = [];
  }

  add(scrape) {
    const last = this.scrapes.at(-1);
    // A server that began anew counts from 0.
    if (last && (scrape.value("generation_tokens_total") ?? 0) < (last.value("generation_tokens_total") ?? 0)) {
      this.scrapes = [];
    }
    this.scrapes.push(scrape);
    while (scrape.nowMs - this.scrapes[0].nowMs > this.spanMs) this.scrapes.shift();
  }

  // Growth a second between the last two scrapes.
  rate(name) {
    return rateBetween(this.scrapes.at(-2), this.scrapes.at(-1), name);
  }

  // The same for every pair of neighbours.
  rates(name) {
    return this.scrapes.slice(1).map((scrape, i) => rateBetween(this.scrapes[i], scrape, name) ?? 0);
  }

  // Mean of a histogram's observations of the last minute; null without any.
  mean(name) {
    const [first, last] = [this.scrapes[0], this.scrapes.at(-1)];
    if (!first) return null;
    const grown = (suffix) => (last.value(name + suffix) ?? 0) - (first.value(name + suffix) ?? 0);
    const count = grown("_count");
    return count > 0 ? grown("_sum") / count : null;
  }
}

function rateBetween(before, after, name) {
  if (!before || !after) return null;
  const [from, to] = [before.value(name), after.value(name)];
  if (to === null) return null;
  return Math.max(to - (from ?? 0), 0) / ((after.nowMs - before.nowMs) / 1000);
}

// Requests to this server, with the API key when there is one.

const STORED_KEY = "pegainfer-api-key";

export class ApiFault extends Error {
  constructor(status, message, requestId) {
    super(message);
    this.status = status;
    this.requestId = requestId;
  }
}

export function hasKey() {
  return Boolean(sessionStorage.getItem(STORED_KEY));
}

export function setKey(key) {
  if (key) sessionStorage.setItem(STORED_KEY, key);
  else sessionStorage.removeItem(STORED_KEY);
}

// A response of status 2xx, or an ApiFault. Faults of the network are TypeErrors, as of fetch.
export async function call(path, { body, signal } = {}) {
  const headers = {};
  const key = sessionStorage.getItem(STORED_KEY);
  if (key) headers["Authorization"] = `Bearer ${key}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const response = await fetch(path, {
    method: body === undefined ? "GET" : "POST",
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
    signal,
    cache: "no-store",
  });
  if (!response.ok) throw await faultOf(response);
  return response;
}

async function faultOf(response) {
  let message = `the server answered with status ${response.status}`;
  try {
    message = (await response.json()).error.message || message;
  } catch {
    // No JSON: the status has to do.
  }
  return new ApiFault(response.status, message, response.headers.get("x-request-id"));
}

// The decoded events of a stream, up to its end.
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      if (!block.startsWith("data: ")) continue;
      const data = block.slice(6);
      if (data === "[DONE]") return;
      yield JSON.parse(data);
    }
  }
}

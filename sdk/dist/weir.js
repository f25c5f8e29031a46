// src/events.ts
var uuid = () => "10000000-1000-4000-8000-100000000000".replace(/[018]/g, (digit) => (+digit ^ crypto.getRandomValues(new Uint8Array(1))[0] & 15 >> +digit / 4).toString(16));
function createEvents() {
  const EVENT = "weir.event.", LOST = "weir.lost", VISITOR = "weir.visitor", KEPT_MAX = 500, CHARS_MAX = 16e3;
  const page = globalThis.document;
  let config, store, timer;
  let busy = false, failures = 0, resumeAt = 0, made = 0;
  const visitor = () => config?.consent == "full" ? store[VISITOR] ||= uuid() : "";
  const kept = () => Object.keys(store).filter((key) => key.startsWith(EVENT)).sort();
  const forget = (keys) => keys.forEach((key) => delete store[key]);
  function lose(count, why) {
    store[LOST] = +store[LOST] + count;
    console.warn(`weir: lost ${count}: ${why}`);
  }
  function keep(type, attributes) {
    const id = uuid(), at_ms = Date.now(), over = kept().slice(0, 1 - KEPT_MAX);
    if (over[0]) forget(over), lose(over.length, "too many wait");
    try {
      store[`${EVENT}${at_ms}.${1e6 + made++}${id}`] = JSON.stringify({ id, type, visitor: visitor() || null, at_ms, attributes });
    } catch {
      lose(1, "storage full");
    }
    return id;
  }
  function next() {
    let chars = 0;
    return kept().slice(0, 50).filter((key, at) => (chars += store[key].length) < CHARS_MAX || !at);
  }
  function request(keys) {
    const { url, key, consent } = config, events2 = keys.map((key2) => store[key2]).filter(Boolean);
    if (+store[LOST]) events2.push(`{"id":"${uuid()}","type":"weir.lost","attributes":{"count":${store[LOST]}}}`);
    return [
      `${url}?${new URLSearchParams({ key, consent, visitor: visitor() })}`,
      `{"sent_at_ms":${Date.now()},"events":[${events2}]}`
    ];
  }
  function later(ms) {
    clearTimeout(timer);
    timer = setTimeout(send, Math.max(ms, resumeAt - Date.now()));
  }
  function retry(seconds) {
    const ms = Math.min(1e3 * 2 ** failures++, 3e5) * (0.5 + Math.random() / 2);
    resumeAt = Date.now() + Math.max(ms, 1e3 * seconds);
  }
  async function judge(answer, keys, lost) {
    const { status } = answer;
    if (status > 499 || status == 408 || status == 429) return retry(+answer.headers.get("retry-after") || 0);
    const text = await answer.text();
    if (answer.ok) {
      for (const { id, message } of JSON.parse(text).verdicts) message && console.warn(`weir: ${id}: ${message}`);
      store[LOST] -= lost;
    } else lose(keys.length, `${status} ${text}`);
    forget(keys);
    failures = 0;
  }
  async function send() {
    const keys = next(), lost = store[LOST];
    if (busy || !keys[0]) return;
    if (Date.now() < resumeAt) return later(0);
    busy = true;
    try {
      const [url, body] = request(keys);
      await judge(await fetch(url, { method: "POST", body, signal: AbortSignal.timeout(15e3) }), keys, lost);
    } catch {
      retry(0);
    }
    busy = false;
    later(0);
  }
  if (page) {
    addEventListener("online", () => config && later(resumeAt = 0));
    addEventListener("visibilitychange", () => {
      const keys = config && page.hidden ? next() : [];
      if (keys[0]) navigator.sendBeacon(...request(keys));
    });
  }
  const events = {
    init(options) {
      try {
        (store = localStorage)[LOST] ||= 0;
      } catch {
        store = { [LOST]: 0 };
      }
      config = { ...options };
      events.consent(options.consent || "full");
      if (options.page) events.track("page", { path: location.pathname });
      later(0);
    },
    track(type, attributes = {}) {
      if (!config || config.consent == "none") return;
      const id = keep(type, attributes);
      busy || later(200);
      return id;
    },
    consent(level) {
      config.consent = level;
      if (level != "full") delete store[VISITOR];
      if (level == "none") forget(kept());
      for (const pair of ["consent=" + level, "visitor=" + visitor()])
        if (config.cookie) page.cookie = `weir_${pair};path=/;max-age=31536000;samesite=lax`;
    },
    visitor,
    async join(url = "/history/join", options) {
      if (!visitor()) return 0;
      const headers = new Headers(options?.headers);
      headers.set("content-type", "application/json");
      const answer = await fetch(url, { ...options, method: "POST", headers, body: JSON.stringify({ visitor: visitor() }) });
      if (!answer.ok) throw Error(`weir: cannot join: ${answer.status} ${await answer.text()}`);
      return (await answer.json()).joined;
    }
  };
  return events;
}

// src/http.ts
var WeirError = class extends Error {
  constructor(code, message, status, problem = {}) {
    super(message);
    this.code = code;
    this.status = status;
    this.problem = problem;
    this.name = "WeirError";
  }
  code;
  status;
  problem;
};
var RETRY_FOR_MS = 6e4;
var ATTEMPT_MS = 2e4;
var ROOMS = "weir.rooms";
var sleep = (ms, signal) => new Promise((resolve, reject) => {
  const abort = () => (clearTimeout(timer), reject(signal.reason));
  const timer = setTimeout(() => (signal?.removeEventListener("abort", abort), resolve()), ms);
  if (signal?.aborted) return abort();
  signal?.addEventListener("abort", abort, { once: true });
});
var Http = class {
  constructor(options) {
    this.options = options;
    try {
      this.#passes = JSON.parse(sessionStorage.getItem(ROOMS) || "{}");
    } catch {
    }
  }
  options;
  /** Queue tokens by room, for this tab. */
  #passes = {};
  /** The room before a path. */
  #rooms = /* @__PURE__ */ new Map();
  /** The JSON of the answer; undefined if it is empty. */
  async call(method, path, request = {}, options = {}) {
    const answer = await this.send(method, path, request, options);
    const text = await answer.text();
    return text ? JSON.parse(text) : void 0;
  }
  /** Sends until the answer is final. */
  async send(method, path, request = {}, options = {}) {
    const { signal, onWait, retryForMs = RETRY_FOR_MS } = options;
    let until = Date.now() + retryForMs;
    for (let tries = 0; ; tries++) {
      const answer = await this.#attempt(method, path, request, signal);
      if (answer instanceof Response && answer.ok) return answer;
      const error = answer instanceof Response ? await refusal(answer) : answer;
      const headers = answer instanceof Response ? answer.headers : void 0;
      const room = error.code.startsWith("room_") ? error.problem : void 0;
      let waitMs = pause(error, headers, tries);
      if (room) {
        this.#keep(path, room.room, room.pass ?? headers?.get("x-weir-room"));
        waitMs = Math.max(room.poll_ms, 500);
        until = Date.now() + waitMs + retryForMs;
        tries = 0;
      }
      if (waitMs < 0 || Date.now() + waitMs > until) throw error;
      onWait?.({ code: error.code, waitMs, room });
      await sleep(waitMs, signal);
    }
  }
  async #attempt(method, path, { query, headers, json, open }, signal) {
    signal?.throwIfAborted();
    const { url = "", credentials, language } = this.options;
    const search = new URLSearchParams(Object.entries(query ?? {}).flatMap(([name, value]) => value == null ? [] : [[name, String(value)]]));
    const own = open ? void 0 : this.options.headers;
    const sent = new Headers(typeof own == "function" ? await own() : own);
    sent.set("accept", "application/json");
    if (language) sent.set("accept-language", language);
    if (json !== void 0) sent.set("content-type", "application/json");
    for (const [name, value] of Object.entries(headers ?? {})) if (value != null) sent.set(name, value);
    const room = this.#rooms.get(path) ?? (open ? "" : Object.keys(this.#passes).pop());
    if (room && this.#passes[room]) sent.set("x-weir-room", this.#passes[room]);
    const abort = new AbortController(), stop = () => abort.abort(signal.reason);
    const timer = setTimeout(() => abort.abort(Error("timeout")), ATTEMPT_MS);
    signal?.addEventListener("abort", stop, { once: true });
    try {
      const answer = await fetch(url + path + (`${search}` && `?${search}`), {
        method,
        headers: sent,
        credentials: open ? "omit" : credentials,
        signal: abort.signal,
        cache: "no-store",
        body: json === void 0 ? void 0 : JSON.stringify(json)
      });
      const body = await answer.arrayBuffer();
      const known = this.#rooms.get(path);
      if (answer.ok && known) this.#keep(path, known, answer.headers.get("x-weir-room"));
      const empty = [204, 205, 304].includes(answer.status);
      return new Response(empty ? null : body, { status: answer.status, headers: answer.headers });
    } catch (error) {
      signal?.throwIfAborted();
      return new WeirError("network", `weir: no answer to ${method} ${path}: ${error.message}`, 0);
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", stop);
    }
  }
  #keep(path, room, pass) {
    this.#rooms.set(path, room);
    if (!pass) return;
    this.#passes[room] = pass;
    try {
      sessionStorage.setItem(ROOMS, JSON.stringify(this.#passes));
    } catch {
    }
  }
};
async function refusal(answer) {
  const text = await answer.text();
  let problem = {};
  try {
    problem = JSON.parse(text);
  } catch {
  }
  const code = problem.error ?? `http_${answer.status}`;
  return new WeirError(code, problem.message ?? problem.detail ?? `${code} (status ${answer.status})`, answer.status, problem);
}
function pause({ status }, headers, tries) {
  const after = headers?.get("retry-after");
  const isUnknown = status == 0 || status == 408 || status == 429 || status > 501;
  if (!after && !isUnknown) return -1;
  const ms = after ? 1e3 * +after || Date.parse(after) - Date.now() : 0;
  return (ms > 0 ? ms : Math.min(500 * 2 ** tries, 1e4)) * (1 + Math.random() / 5);
}

// src/work.ts
var primes = [2];
for (let n = 3; primes.length < 64; n += 2) if (primes.every((prime) => n % prime)) primes.push(n);
var fraction = (root) => (root - Math.floor(root)) * 2 ** 32 | 0;
var K = Int32Array.from(primes, (prime) => fraction(Math.cbrt(prime)));
var START = Int32Array.from(primes.slice(0, 8), (prime) => fraction(Math.sqrt(prime)));
var words = new Int32Array(64);
function compress(state, view, at) {
  for (let i = 0; i < 16; i++) words[i] = view.getInt32(at + 4 * i);
  for (let i = 16; i < 64; i++) {
    const x = words[i - 15], y = words[i - 2];
    words[i] = words[i - 16] + words[i - 7] + ((x >>> 7 | x << 25) ^ (x >>> 18 | x << 14) ^ x >>> 3) + ((y >>> 17 | y << 15) ^ (y >>> 19 | y << 13) ^ y >>> 10) | 0;
  }
  let [a, b, c, d, e, f, g, h] = state;
  for (let i = 0; i < 64; i++) {
    const s = h + ((e >>> 6 | e << 26) ^ (e >>> 11 | e << 21) ^ (e >>> 25 | e << 7)) + (e & f ^ ~e & g) + K[i] + words[i] | 0;
    const t = ((a >>> 2 | a << 30) ^ (a >>> 13 | a << 19) ^ (a >>> 22 | a << 10)) + (a & b ^ a & c ^ b & c) | 0;
    h = g;
    g = f;
    f = e;
    e = d + s | 0;
    d = c;
    c = b;
    b = a;
    a = s + t | 0;
  }
  [a, b, c, d, e, f, g, h].forEach((word, i) => state[i] = state[i] + word | 0);
}
function* attempts({ text, bits }, count) {
  const bytes = new TextEncoder().encode(text + ":"), whole = bytes.length & ~63;
  const before = START.slice(), block = new Uint8Array(128), view = new DataView(block.buffer);
  for (let at = 0; at < whole; at += 64) compress(before, new DataView(bytes.buffer), at);
  const rest = bytes.subarray(whole), state = new Int32Array(8);
  for (let counter = 0; ; counter++) {
    const digits = String(counter), length = rest.length + digits.length, end = length < 56 ? 64 : 128;
    block.fill(0);
    block.set(rest);
    for (let i = 0; i < digits.length; i++) block[rest.length + i] = digits.charCodeAt(i);
    block[length] = 128;
    view.setUint32(end - 4, (whole + length) * 8);
    state.set(before);
    for (let at = 0; at < end; at += 64) compress(state, view, at);
    if (state[0] >>> 32 - bits == 0) yield `${text}:${counter}`;
    else if (counter % count == count - 1) yield null;
  }
}

// src/weir.ts
var CHALLENGES_MAX = 5;
var START_SPREAD_MS = 2e3;
var FAILED_MS = 1e4;
var TICK_MS = 250;
var sale = (id, rest = "") => `/sales/${encodeURIComponent(id)}${rest}`;
var order = (id, rest = "") => `/orders/${encodeURIComponent(id)}${rest}`;
var Weir = class {
  #http;
  /** Milliseconds by which this clock is behind the server's. */
  #behindMs = 0;
  #roundTripMs = Infinity;
  #tokens = /* @__PURE__ */ new Map();
  /** Sends behaviour events, after `events.init`. */
  events;
  constructor(options = {}) {
    this.#http = new Http(options);
    const events = createEvents();
    const url = (options.url ?? "") + "/events";
    this.events = { ...events, init: (given) => events.init({ url, ...given }) };
  }
  // Time
  /** The server's time, in milliseconds since the Unix epoch. Every answer with a time corrects it. */
  now() {
    return Date.now() + this.#behindMs;
  }
  async #timed(answer, isCached = false) {
    const sentMs = Date.now(), told = await answer(), tookMs = Date.now() - sentMs;
    const isBetter = isCached ? this.#roundTripMs == Infinity : tookMs <= this.#roundTripMs * 2;
    if (isBetter) this.#behindMs = told.now_ms - (sentMs + tookMs / 2);
    if (isBetter && !isCached) this.#roundTripMs = Math.min(tookMs, this.#roundTripMs);
    return told;
  }
  // Sales
  /** A page of the listed sales. */
  sales(query = {}, options) {
    return this.#timed(() => this.#http.call("GET", "/public-sales", { query, open: true }, options), true);
  }
  /** The state of a sale. */
  status(id, options) {
    return this.#timed(() => this.#http.call("GET", sale(id), { open: true }, options));
  }
  /**
   * Calls `show` at once and whenever the state, or a second of the countdown, changes. Returns a function that ends it.
   * A page asks rarely, so that many pages cost little.
   */
  watch(id, show, { signal, everyMs = 6e4 } = {}) {
    let status, askAtMs = 0, shown = "", hasBegun = false;
    const ask = async () => {
      askAtMs = Infinity;
      try {
        status = await this.#find(id, { signal, retryForMs: 0 });
        askAtMs = Date.now() + everyMs * (1 + Math.random());
      } catch {
        askAtMs = Date.now() + FAILED_MS + Math.random() * START_SPREAD_MS;
      }
    };
    const tick = () => {
      if (status) {
        const nowMs = this.now();
        let { state } = status;
        const startsInMs = Math.max(0, status.starts_at_ms - nowMs), endsInMs = Math.max(0, status.ends_at_ms - nowMs);
        if (state == "scheduled" && !startsInMs && !hasBegun) {
          hasBegun = true;
          status.state = state = "running";
          askAtMs = Math.min(askAtMs, Date.now() + Math.random() * START_SPREAD_MS);
        }
        if (!endsInMs) state = "ended";
        const { remaining, reservation } = status;
        const now = { state, remaining, reservation, startsInMs, endsInMs };
        const seen = [state, remaining, reservation, Math.ceil(startsInMs / 1e3), Math.ceil(endsInMs / 1e3)].join();
        if (seen != shown) shown = seen, show(now);
      }
      if (Date.now() >= askAtMs) void ask().then(tick);
    };
    const timer = setInterval(tick, TICK_MS), stop = () => clearInterval(timer);
    signal?.addEventListener("abort", stop, { once: true });
    tick();
    return stop;
  }
  /** A sale's state. Gateways know a sale minutes before its start; until then the list shows it. */
  async #find(id, options) {
    try {
      return await this.status(id, options);
    } catch (error) {
      if (error.code != "unknown_sale") throw error;
      for (let after; ; ) {
        const page = await this.sales({ after, limit: 1e3 }, options);
        const listed = page.sales.find((one) => one.id == id);
        if (listed) return { ...listed, reservation: !!listed.reservation };
        if (!(after = page.next ?? void 0)) throw error;
      }
    }
  }
  /**
   * An order token. Solves the checkout's challenge and waits until the token is usable. `order` does this itself; call it
   * earlier, for example when the checkout opens, to have the token ready.
   */
  async token(id, options = {}) {
    const known = this.#tokens.get(id);
    if (known && known.expiresAtMs > this.now()) return known.token;
    const headers = {};
    for (let challenges = 0; ; challenges++) {
      try {
        const minted = await this.#timed(() => this.#http.call("POST", sale(id, "/checkout"), { headers }, options));
        const { token, usable_at_ms, expires_at_ms, now_ms } = minted;
        await sleep(Math.max(0, usable_at_ms - now_ms), options.signal);
        this.#tokens.set(id, { token, expiresAtMs: expires_at_ms });
        return token;
      } catch (error) {
        const challenge = error.problem?.challenge;
        if (!challenge || challenges == CHALLENGES_MAX) throw error;
        options.onWait?.({ code: "challenge_required", waitMs: 0 });
        if ("proof_of_work" in challenge) headers["x-weir-solution"] = await solve(challenge.proof_of_work, options.signal);
        else if (options.captcha) headers["x-weir-captcha"] = await options.captcha(challenge.captcha.site_key);
        else throw error;
      }
    }
  }
  /**
   * Orders. Gets a token if the sale needs one, waits in waiting rooms, and repeats the request with its idempotency key
   * until the outcome is known.
   */
  async order(id, options = {}) {
    const { quantity, payload, click, key = uuid() } = options;
    const { token: needsToken } = await this.status(id, options);
    for (let tokens = 0; ; tokens++) {
      const token = needsToken ? await this.token(id, options) : void 0;
      const headers = {
        "idempotency-key": `"${key}"`,
        "x-weir-order-token": token,
        "x-weir-click": click,
        "x-weir-quantity": quantity?.toString()
      };
      try {
        return await this.#http.call("POST", sale(id, "/orders"), { headers, json: payload }, options);
      } catch (error) {
        if (error.code != "invalid_token" || !token || tokens) throw error;
        this.#tokens.delete(id);
      }
    }
  }
  // Orders
  /** A page of the user's own orders, newest first. */
  orders(query = {}, options) {
    return this.#http.call("GET", "/my-orders", { query }, options);
  }
  /** An own order, with its last payment. */
  getOrder(id, options) {
    return this.#http.call("GET", order(id), {}, options);
  }
  /** Starts a payment. The buyer pays at its `pay_url`. */
  pay(id, options) {
    return this.#http.call("POST", order(id, "/pay"), {}, options);
  }
  /** Cancels an unpaid order. */
  cancel(id, options) {
    return this.#http.call("POST", order(id, "/cancel"), {}, options);
  }
  // Reservations and draws
  reserve(id, options) {
    return this.#http.call("POST", sale(id, "/reservations"), {}, options);
  }
  reservation(id, options) {
    return this.#http.call("GET", sale(id, "/reservations"), {}, options);
  }
  cancelReservation(id, options) {
    return this.#http.call("DELETE", sale(id, "/reservations"), {}, options);
  }
  draw(id, options) {
    return this.#http.call("GET", sale(id, "/draw"), { open: true }, options);
  }
  // Waiting rooms
  /**
   * Requests a page or an API behind a waiting room, and waits until the visitor is admitted. `onWait` gets the position.
   * All other calls wait in the same way.
   */
  enter(path, options) {
    return this.#http.send("GET", path, {}, options);
  }
  // Browse history
  /** A page of the products that the user viewed last. */
  history(query = {}, options) {
    return this.#http.call("GET", "/history", { query }, options);
  }
  historyCount(options) {
    return this.#http.call("GET", "/history/count", {}, options);
  }
  /** Removes up to 200 products; without any, all. */
  async forget(skus, options) {
    if (skus) await this.#http.call("POST", "/history/delete", { json: { skus } }, options);
    else await this.#http.call("DELETE", "/history", {}, options);
  }
  /** Adds the views of this browser's visitor to the signed-in user's history. Call it after each sign-in. */
  async join(visitor = this.events.visitor(), options) {
    if (!visitor) return 0;
    const told = await this.#http.call("POST", "/history/join", { json: { visitor } }, options);
    return told.joined;
  }
  // Vehicle fitment
  /** Which parts fit which vehicles, by vehicle and SKU: `fits['1000001'].S1`. */
  async fits(vehicles, skus, options) {
    const told = await this.#http.call("POST", "/fitment/check", { json: { vehicles, skus }, open: true }, options);
    return Object.fromEntries(vehicles.map((vehicle, at) => [vehicle, Object.fromEntries(told.skus.map(({ sku, answers }) => [sku, answers[at]]))]));
  }
  /** A page of the parts that fit a vehicle. */
  parts(vehicle, after, options) {
    return this.#http.call("GET", "/fitment/skus", { query: { vehicle, after }, open: true }, options);
  }
  /** The user's vehicles. */
  async garage(options) {
    return (await this.#http.call("GET", "/fitment/garage", {}, options)).vehicles;
  }
  addVehicle(vehicle, isDefault = false, options) {
    const query = { default: isDefault || void 0 };
    return this.#http.call("PUT", `/fitment/garage/${encodeURIComponent(vehicle)}`, { query }, options);
  }
  removeVehicle(vehicle, options) {
    return this.#http.call("DELETE", `/fitment/garage/${encodeURIComponent(vehicle)}`, {}, options);
  }
};
async function solve(work, signal) {
  signal?.throwIfAborted();
  return typeof Worker == "function" && await inWorker(work, signal) || inSteps(work, signal);
}
function inWorker(work, signal) {
  return new Promise((resolve, reject) => {
    let worker;
    try {
      worker = new Worker(new URL("./weir-worker.js", import.meta.url), { type: "module" });
    } catch {
      return resolve(null);
    }
    const end = () => worker.terminate();
    worker.onmessage = ({ data }) => (end(), resolve(data));
    worker.onerror = (event) => (event.preventDefault(), end(), resolve(null));
    signal?.addEventListener("abort", () => (end(), reject(signal.reason)), { once: true });
    worker.postMessage(work);
  });
}
async function inSteps(work, signal) {
  let pausedMs = Date.now();
  for (const solution of attempts(work, 500)) {
    if (solution) return solution;
    if (Date.now() - pausedMs > 12) await sleep(0, signal), pausedMs = Date.now();
  }
  throw Error("unreachable: a proof of work has a solution");
}
export {
  Weir,
  WeirError,
  solve
};

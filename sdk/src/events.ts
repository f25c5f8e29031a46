// Sends events to Weir: docs/events.md. Each event is stored until the gateway has answered, and its id deduplicates it.

/** `full`: everything; `anonymous`: no visitor name; `none`: no events. */
export type Consent = 'full' | 'anonymous' | 'none';

export interface EventOptions {
  /** The address of `/events`. */
  url: string;
  /** The browser's write key. */
  key: string;
  /** Default: `full`. */
  consent?: Consent;
  /** Tracks `page` with the path. */
  page?: boolean;
  /** Sets the cookies `weir_visitor` and `weir_consent`, for views without scripts. */
  cookie?: boolean;
}

export interface Events {
  /** Starts to send. Call it once. */
  init(options: EventOptions): void;
  /** Queues an event and returns its id; undefined without consent. */
  track(type: string, attributes?: object): string | undefined;
  /** Changes the consent. `anonymous` forgets the visitor's name, `none` also unsent events. */
  consent(level: Consent): void;
  /** The visitor's random name; empty without full consent. */
  visitor(): string;
  /** Adds the visitor's views to the history of the signed-in user: `POST /history/join`. Returns the number of joined views. */
  join(url?: string, options?: RequestInit): Promise<number>;
}

/** A random UUID, also on pages without a secure context. */
export const uuid = () => '10000000-1000-4000-8000-100000000000'.replace(/[018]/g, digit =>
  (+digit ^ crypto.getRandomValues(new Uint8Array(1))[0]! & 15 >> +digit / 4).toString(16));

export function createEvents(): Events {
  const EVENT = 'weir.event.', LOST = 'weir.lost', VISITOR = 'weir.visitor', KEPT_MAX = 500, CHARS_MAX = 16e3;
  const page = globalThis.document;
  let config: EventOptions | undefined, store: Record<string, any>, timer: ReturnType<typeof setTimeout>;
  let busy = false, failures = 0, resumeAt = 0, made = 0;
  const visitor = (): string => config?.consent == 'full' ? store[VISITOR] ||= uuid() : '';
  const kept = () => Object.keys(store).filter(key => key.startsWith(EVENT)).sort();
  const forget = (keys: string[]) => keys.forEach(key => delete store[key]);

  function lose(count: number, why: string) {
    store[LOST] = +store[LOST] + count;
    console.warn(`weir: lost ${count}: ${why}`);
  }

  function keep(type: string, attributes: object) {
    const id = uuid(), at_ms = Date.now(), over = kept().slice(0, 1 - KEPT_MAX);
    if (over[0]) forget(over), lose(over.length, 'too many wait');
    try {
      store[`${EVENT}${at_ms}.${1e6 + made++}${id}`] =
        JSON.stringify({ id, type, visitor: visitor() || null, at_ms, attributes });
    } catch { lose(1, 'storage full'); }
    return id;
  }

  function next() {
    let chars = 0;
    return kept().slice(0, 50).filter((key, at) => (chars += store[key].length) < CHARS_MAX || !at);
  }

  function request(keys: string[]): [string, string] {
    const { url, key, consent } = config!, events = keys.map(key => store[key]).filter(Boolean);
    if (+store[LOST]) events.push(`{"id":"${uuid()}","type":"weir.lost","attributes":{"count":${store[LOST]}}}`);
    return [`${url}?${new URLSearchParams({ key, consent: consent!, visitor: visitor() })}`,
      `{"sent_at_ms":${Date.now()},"events":[${events}]}`];
  }

  function later(ms: number) {
    clearTimeout(timer);
    timer = setTimeout(send, Math.max(ms, resumeAt - Date.now()));
  }

  function retry(seconds: number) {
    const ms = Math.min(1e3 * 2 ** failures++, 3e5) * (0.5 + Math.random() / 2);
    resumeAt = Date.now() + Math.max(ms, 1e3 * seconds);
  }

  async function judge(answer: Response, keys: string[], lost: number) {
    const { status } = answer;
    if (status > 499 || status == 408 || status == 429) return retry(+answer.headers.get('retry-after')! || 0);
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
      await judge(await fetch(url, { method: 'POST', body, signal: AbortSignal.timeout(15e3) }), keys, lost);
    } catch { retry(0); }
    busy = false;
    later(0);
  }

  if (page) {
    addEventListener('online', () => config && later(resumeAt = 0));
    addEventListener('visibilitychange', () => {
      const keys = config && page.hidden ? next() : [];
      if (keys[0]) navigator.sendBeacon(...request(keys)); // The result is unknown, so they stay stored.
    });
  }

  const events: Events = {
    init(options) {
      try {
        (store = localStorage)[LOST] ||= 0;
      } catch { store = { [LOST]: 0 }; }
      config = { ...options };
      events.consent(options.consent || 'full');
      if (options.page) events.track('page', { path: location.pathname });
      later(0);
    },

    track(type, attributes = {}) {
      if (!config || config.consent == 'none') return;
      const id = keep(type, attributes);
      busy || later(200);
      return id;
    },

    consent(level) {
      config!.consent = level;
      if (level != 'full') delete store[VISITOR];
      if (level == 'none') forget(kept());
      for (const pair of ['consent=' + level, 'visitor=' + visitor()])
        if (config!.cookie) page.cookie = `weir_${pair};path=/;max-age=31536000;samesite=lax`;
    },

    visitor,

    async join(url = '/history/join', options) {
      if (!visitor()) return 0;
      const headers = new Headers(options?.headers);
      headers.set('content-type', 'application/json');
      const answer = await fetch(url, { ...options, method: 'POST', headers, body: JSON.stringify({ visitor: visitor() }) });
      if (!answer.ok) throw Error(`weir: cannot join: ${answer.status} ${await answer.text()}`);
      return (await answer.json()).joined;
    },
  };
  return events;
}

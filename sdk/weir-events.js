// Sends events to Weir: docs/events.md. Each is stored until it has a verdict, and counts once, by its id.
window.weir = (() => {
  const EVENT = 'weir.event.', LOST = 'weir.lost', VISITOR = 'weir.visitor', STORED_MAX = 500, CHARS_MAX = 16e3;
  let config, store, timer, busy, failures = 0, resumeAt = 0, created = 0;
  try {
    (store = localStorage)[LOST] ||= 0;
  } catch { store = { [LOST]: 0 }; }

  const uuid = () => '10000000-1000-4000-8000-100000000000'.replace(/[018]/g, digit =>
    (digit ^ crypto.getRandomValues(new Uint8Array(1))[0] & 15 >> digit / 4).toString(16));
  const visitor = () => config.consent == 'full' ? store[VISITOR] ||= uuid() : '';
  const stored = () => Object.keys(store).filter(key => key.startsWith(EVENT)).sort();
  const forget = keys => keys.forEach(key => delete store[key]);

  function lose(count, why) {
    store[LOST] = +store[LOST] + count;
    console.warn(`weir: lost ${count}: ${why}`);
  }

  function keep(type, attributes) {
    const id = uuid(), at_ms = Date.now(), over = stored().slice(0, 1 - STORED_MAX);
    if (over[0]) forget(over), lose(over.length, 'too many wait');
    try {
      store[`${EVENT}${at_ms}.${1e6 + created++}${id}`] =
        JSON.stringify({ id, type, visitor: visitor() || null, at_ms, attributes });
    } catch { lose(1, 'storage full'); }
    return id;
  }

  function next() {
    let chars = 0;
    return stored().slice(0, 50).filter((key, at) => (chars += store[key].length) < CHARS_MAX || !at);
  }

  function request(keys) {
    const { url, key, consent } = config, events = keys.map(key => store[key]).filter(Boolean);
    if (+store[LOST]) events.push(`{"id":"${uuid()}","type":"weir.lost","attributes":{"count":${store[LOST]}}}`);
    return [`${url}?${new URLSearchParams({ key, consent, visitor: visitor() })}`,
      `{"sent_at_ms":${Date.now()},"events":[${events}]}`];
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
    if (status > 499 || status == 408 || status == 429) return retry(+answer.headers.get('retry-after') || 0);
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
    busy = 1;
    try {
      const [url, body] = request(keys);
      await judge(await fetch(url, { method: 'POST', body, signal: AbortSignal.timeout(15e3) }), keys, lost);
    } catch { retry(0); }
    busy = 0;
    later(0);
  }

  addEventListener('online', () => config && later(resumeAt = 0));
  addEventListener('visibilitychange', () => {
    const keys = config && document.hidden ? next() : [];
    if (keys[0]) navigator.sendBeacon(...request(keys)); // The result is unknown: events stay stored.
  });

  function init({ url, key, consent: level = 'full', page, cookie }) {
    config = { url, key, cookie };
    consent(level);
    if (page) track('page', { path: location.pathname });
    later(0);
  }

  function track(type, attributes = {}) {
    if (!config || config.consent == 'none') return;
    const id = keep(type, attributes);
    busy || later(200);
    return id;
  }

  function consent(level) { // 'full', 'anonymous' or 'none'
    config.consent = level;
    if (level != 'full') delete store[VISITOR];
    if (level == 'none') forget(stored());
    for (const pair of ['consent=' + level, 'visitor=' + visitor()])
      if (config.cookie) document.cookie = `weir_${pair};path=/;max-age=31536000;samesite=lax`;
  }

  return { init, track, consent };
})();

// The countdown of a sale on a page from a CDN. It requests GET /sales/{id} from the gateway, and uses the gateway's
// clock. A page sends a request when it opens, then every one to two minutes, and once when the sale starts. Random
// delays of up to two seconds spread the requests of many pages.

const { gateway, sale } = document.querySelector('script[data-sale]').dataset;
const LOAD_EVERY_MS = 60_000;
const SPREAD_MS = 2_000;
const RETRY_MS = 10_000;

const texts = {
  running: 'The sale is on.',
  sold_out: 'Sold out. Units may come back until the sale ends.',
  ended: 'The sale is over.',
  closed: 'The sale is closed at the moment.',
  draining: 'The sale accepts no new buyers.',
  paused: 'The sale is paused at the moment.',
};

let status = null;
// Milliseconds by which this clock is behind the gateway's.
let behindMs = 0;
let loadAtMs = 0;
// Whether the sale has started while this page was open.
let hasStarted = false;

async function load() {
  // No further request until this one is answered.
  loadAtMs = Infinity;
  const sentMs = Date.now();
  try {
    const answer = await fetch(`${gateway}/sales/${encodeURIComponent(sale)}`, { cache: 'no-store' });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    status = await answer.json();
    // Assume that the gateway's time is from the middle of the request.
    behindMs = status.now_ms - (sentMs + Date.now()) / 2;
    // A random delay spreads the requests of many pages.
    loadAtMs = Date.now() + LOAD_EVERY_MS * (1 + Math.random());
  } catch {
    // Keep the last status. Wait before the next request, because the gateway may be overloaded.
    loadAtMs = Date.now() + RETRY_MS + Math.random() * SPREAD_MS;
  }
}

function remaining(ms) {
  const seconds = Math.ceil(ms / 1_000);
  const two = (number) => String(number).padStart(2, '0');
  const [hours, minutes] = [Math.floor(seconds / 3_600), Math.floor(seconds / 60) % 60];
  const days = Math.floor(hours / 24);
  const clock = `${two(hours % 24)}:${two(minutes)}:${two(seconds % 60)}`;
  return days > 0 ? `${days} d ${clock}` : clock;
}

function show() {
  const now = Date.now();
  if (status?.state === 'scheduled') {
    const startsInMs = status.starts_at_ms - (now + behindMs);
    if (startsInMs > 0) {
      render(`The sale starts in ${remaining(startsInMs)}.`);
    } else {
      render(texts.running, true);
      status.state = 'running';
      if (!hasStarted) loadAtMs = Math.min(loadAtMs, now + Math.random() * SPREAD_MS);
      hasStarted = true;
    }
  } else if (status) {
    render(texts[status.state] ?? '', status.state === 'running');
  }
  if (now >= loadAtMs) load();
}

function render(text, canBuy = false) {
  const countdown = document.getElementById('countdown');
  if (countdown.textContent !== text) countdown.textContent = text;
  document.getElementById('buy').hidden = !canBuy;
}

show();
setInterval(show, 250);

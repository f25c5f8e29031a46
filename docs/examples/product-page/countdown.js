// The countdown of a sale on a page from a CDN. It asks GET /sales/{id} of the gateway, and counts by the gateway's clock.
//
// A page asks once as it opens, then every one to two minutes, and once more as the sale begins: after a random pause of up to two
// seconds, so that not all pages ask in one moment.

const { gateway, sale } = document.querySelector('script[data-sale]').dataset;
const ASK_EVERY_MS = 60_000;
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
// How far this clock is behind the gateway's, in milliseconds.
let behindMs = 0;
let askAtMs = 0;
// Whether this page has seen the sale begin.
let hasBegun = false;

async function ask() {
  // Until there is an answer, nobody asks again.
  askAtMs = Infinity;
  const sentMs = Date.now();
  try {
    const answer = await fetch(`${gateway}/sales/${encodeURIComponent(sale)}`, { cache: 'no-store' });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    status = await answer.json();
    // The answer was written about half way.
    behindMs = status.now_ms - (sentMs + Date.now()) / 2;
    // Not all pages ask in one moment again.
    askAtMs = Date.now() + ASK_EVERY_MS * (1 + Math.random());
  } catch {
    // What is known stays. A gateway that turns us away is not asked at once.
    askAtMs = Date.now() + RETRY_MS + Math.random() * SPREAD_MS;
  }
}

function left(ms) {
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
      say(`The sale starts in ${left(startsInMs)}.`);
    } else {
      say(texts.running, true);
      status.state = 'running';
      if (!hasBegun) askAtMs = Math.min(askAtMs, now + Math.random() * SPREAD_MS);
      hasBegun = true;
    }
  } else if (status) {
    say(texts[status.state] ?? '', status.state === 'running');
  }
  if (now >= askAtMs) ask();
}

function say(text, canBuy = false) {
  const countdown = document.getElementById('countdown');
  if (countdown.textContent !== text) countdown.textContent = text;
  document.getElementById('buy').hidden = !canBuy;
}

show();
setInterval(show, 250);

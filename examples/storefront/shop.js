// A shop on static files. The gateway sells; this page shows what it answers.
import { Weir } from './weir.js';
import { eventKey, gateway, userHeader } from './config.js';

const USER = 'shop.user', CAR = 'shop.car', POLL_MS = 2_000;
const query = new URLSearchParams(location.search);
const main = document.getElementById('main');

// Your shop has its own sign-in; the sandbox believes any name.
const user = () => userHeader && localStorage[USER] || '';
const weir = new Weir({ url: gateway, headers: () => user() ? { [userHeader]: user() } : {}, ...(userHeader ? {} : { credentials: 'include' }) });
const signedIn = () => !userHeader || user();

// Small helpers

/** An element: `h('p', { class: 'faint' }, 'text')`. Text is never parsed as HTML. */
function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value == 'function') element.addEventListener(name, value);
    else if (value != null && value !== false) element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.filter(child => child != null && child !== false));
  return element;
}

const language = document.documentElement.lang;
const money = (cents, currency) => new Intl.NumberFormat(language, { style: 'currency', currency }).format(cents / 100);
const time = ms => new Date(ms).toLocaleString(language, { dateStyle: 'medium', timeStyle: 'short' });
const clock = ms => new Date(ms).toLocaleTimeString(language, { timeStyle: 'short' });
const two = number => String(number).padStart(2, '0');
const minutes = ms => ms < 90_000 ? 'about a minute' : `about ${Math.round(ms / 60_000)} minutes`;

/** Sets text only if it changed, because screen readers announce each change. */
function say(element, text, kind = '') {
  if (element.textContent !== text) element.textContent = text;
  element.className = `notice ${kind}`;
}

const catalogue = await fetch('catalogue.json').then(answer => answer.json());
const products = new Map(catalogue.products.map(product => [product.sku, product]));
const carName = ({ make, model, year }) => `${make} ${model} (${year})`;
const link = product => `?${new URLSearchParams({ sku: product.sku })}`;

if (eventKey) weir.events.init({ key: eventKey, page: true });

// Sign-in

const account = document.getElementById('account'), dialog = document.getElementById('sign-in');
function showAccount() {
  account.textContent = user() ? 'Sign out' : 'Sign in';
  account.ariaLabel = user() ? `Sign out ${user()}` : null;
  account.hidden = !userHeader;
}
account.addEventListener('click', () => {
  if (!user()) return void signIn();
  delete localStorage[USER];
  location.reload();
});

/** Resolves to whether somebody signed in. */
function signIn() {
  dialog.returnValue = '';
  dialog.showModal();
  return new Promise(resolve => dialog.addEventListener('close', async () => {
    const name = dialog.querySelector('input').value.trim();
    if (dialog.returnValue != 'ok' || !name) return resolve(false);
    localStorage[USER] = name;
    showAccount();
    // Also joins what the visitor viewed before.
    void showRecent();
    resolve(true);
  }, { once: true }));
}

// The countdown and the state of a sale

const STATES = {
  sold_out: 'Sold out. A unit may return until the sale ends.', ended: 'This sale is over.', closed: 'This sale is closed at the moment.',
  draining: 'This sale accepts no new buyers.', paused: 'This sale is paused. Please come back soon.',
};
const LEFT = { high: 'Plenty in stock', medium: 'Selling fast', low: 'Almost gone', reserved: 'All reserved; some may return', none: 'Nothing left' };

function countdown() {
  const parts = ['days', 'hours', 'min', 'sec'].map(unit => {
    const number = document.createTextNode('00');
    return { number, box: h('span', { hidden: unit == 'days' }, number, h('small', {}, unit)) };
  });
  const element = h('div', { class: 'clock', role: 'timer', 'aria-label': 'Time until the sale starts' }, ...parts.map(part => part.box));
  const show = ms => {
    const seconds = Math.ceil(ms / 1e3), days = Math.floor(seconds / 86_400);
    [days, Math.floor(seconds / 3_600) % 24, Math.floor(seconds / 60) % 60, seconds % 60]
      .forEach((value, at) => parts[at].number.data = two(value));
    parts[0].box.hidden = !days;
  };
  return { element, show };
}

/** Follows a sale; `show` gets its state, for the button. */
function saleState(sale, show = () => {}) {
  const { element, show: tick } = countdown(), text = h('p', { class: 'notice' }), box = h('div', { class: 'sale' }, element, text);
  text.id = `state-${sale.id}`;
  weir.watch(sale.id, now => {
    element.hidden = now.state != 'scheduled' || !now.startsInMs;
    tick(now.startsInMs);
    const until = ` · until ${clock(sale.ends_at_ms)}`;
    if (now.state == 'running') say(text, LEFT[now.remaining] + until, 'good');
    else if (now.state == 'scheduled') say(text, now.startsInMs ? `Starts ${time(sale.starts_at_ms)}` : 'Opening…');
    else say(text, STATES[now.state] ?? '', 'bad');
    show(now);
  }, { everyMs: 20_000 });
  return box;
}

// Buying

const REFUSED = {
  cap_reached: 'You already have as many as one person can buy.', sold_out: 'Sold out. Somebody was faster.',
  not_reserved: 'Only people with a reservation can buy in this sale.', blocked: 'You cannot buy in this sale.',
  unpaid_holds: 'You let too many orders expire unpaid.', network: 'We could not reach the shop. Press Buy again: you will not buy twice.',
};

/** What the buyer reads while a call waits. */
function waiting({ code, room }) {
  if (room?.state == 'lobby') return `You are early. The line opens ${room.opens_at_ms ? time(room.opens_at_ms) : 'soon'}.`;
  if (room?.position) return `You are number ${room.position.toLocaleString(language)} in line${room.wait_ms ? `, ${minutes(room.wait_ms)}` : ''}. Keep this page open.`;
  if (room) return 'You are in line. Keep this page open.';
  if (code == 'challenge_required') return 'Checking your browser…';
  if (code == 'all_reserved') return 'All are reserved. One may return, so we keep trying…';
  return 'The shop is busy. We keep trying…';
}

function buyBox(product, sale) {
  const text = h('p', { class: 'notice', role: 'status' }), bar = h('div', { class: 'bar', hidden: true });
  const stop = h('button', { type: 'button', class: 'quiet', hidden: true }, 'Leave the line');
  const buy = h('button', { type: 'button', class: 'primary', disabled: true, 'aria-describedby': `state-${sale.id}` }, 'Buy now');
  const placed = h('div', { class: 'placed' });
  let isOpen = false, isBusy = false;
  const button = () => buy.disabled = !isOpen || isBusy;

  buy.addEventListener('click', async () => {
    if (!signedIn() && !await signIn()) return;
    const abort = new AbortController(), name = `shop.order.${sale.id}`;
    // The same key after a reload is the same order.
    const key = sessionStorage[name] ??= self.crypto.randomUUID?.() ?? `${Math.random()}`.slice(2) + Date.now();
    isBusy = true, bar.hidden = false;
    button();
    say(text, 'Placing your order…');
    stop.onclick = () => abort.abort();
    try {
      const order = await weir.order(sale.id, {
        key, signal: abort.signal,
        onWait: wait => (stop.hidden = false, say(text, waiting(wait))),
      });
      delete sessionStorage[name];
      say(text, 'It is yours. Pay to keep it.', 'good');
      placed.replaceChildren(orderCard(order, product));
      if (eventKey) weir.events.track('cart', { sku: product.sku });
    } catch (error) {
      if (error.status && error.status < 500) delete sessionStorage[name];
      say(text, abort.signal.aborted ? 'You left the line.' : REFUSED[error.code] ?? error.message, abort.signal.aborted ? '' : 'bad');
    }
    isBusy = false, bar.hidden = stop.hidden = true;
    button();
  });
  const state = saleState(sale, now => (isOpen = now.state == 'running', button()));
  return h('div', { class: 'card buy' }, h('div', { class: 'row' }, h('span', { class: 'tag' }, 'Limited drop'),
    sale.user_cap ? h('span', { class: 'faint' }, `${sale.user_cap} per person`) : null), state, buy, bar, text, stop, placed);
}

// Orders

const STATUS = { unpaid: 'Waiting for payment', paid: 'Paid', cancelled: 'Cancelled', expired: 'Expired' };

/** An order, which follows its payment. */
function orderCard(first, product = products.get(first.sku)) {
  const card = h('div', { class: 'card order', 'data-order': first.order });
  let seen;
  const act = async (call, after) => {
    try {
      after(await call());
    } catch (error) {
      card.append(h('p', { class: 'notice bad', role: 'alert' }, error.message));
    }
  };
  const show = order => {
    if (order.status == seen) return;
    seen = order.status;
    const pay = h('button', { type: 'button', class: 'primary', click: () => {
      // Opened at once: browsers block windows that open later.
      const page = open('', '_blank');
      void act(() => weir.pay(order.order), payment => {
        if (!payment.pay_url) return page?.close();
        if (page) page.location = payment.pay_url; else location = payment.pay_url;
      });
    } }, 'Pay');
    const cancel = h('button', { type: 'button', click: () => act(() => weir.cancel(order.order), show) }, 'Cancel order');
    card.replaceChildren(
      h('div', { class: 'row' }, h('h3', {}, product?.title ?? order.sale),
        h('span', { class: 'state', 'data-state': order.status, role: 'status' }, STATUS[order.status] ?? order.status)),
      h('p', {}, `${order.quantity} × `, order.price ? money(order.price.unit_amount, order.price.currency) : product ? money(product.price, catalogue.currency) : 'one unit'),
      h('p', { class: 'faint' }, `Order ${order.order}`, order.created_at_ms ? ` · ${time(order.created_at_ms)}` : '',
        order.status == 'unpaid' && order.pay_by_ms ? ` · pay by ${clock(order.pay_by_ms)}` : ''),
      order.status == 'unpaid' ? h('div', { class: 'actions' }, pay, cancel) : '');
  };
  show(first);
  const poll = async () => {
    if (!document.hidden) await weir.getOrder(first.order).then(show, () => {});
    if (seen == 'unpaid') setTimeout(poll, POLL_MS);
  };
  if (seen == 'unpaid') setTimeout(poll, POLL_MS);
  return card;
}

async function ordersPage() {
  document.title = `My orders · ${document.title}`;
  document.getElementById('orders-link').setAttribute('aria-current', 'page');
  const list = h('ul', { class: 'orders' }), text = h('p', { class: 'notice', role: 'status' });
  const more = h('button', { type: 'button', hidden: true }, 'Show older orders');
  main.append(h('div', {}, h('h1', {}, 'My orders')), text, list, more);
  let after;
  const load = async () => {
    try {
      const page = await weir.orders({ after });
      list.append(...page.orders.map(order => h('li', {}, orderCard(order))));
      more.hidden = !(after = page.next);
      say(text, list.children.length ? '' : 'You have no orders yet.');
    } catch (error) {
      say(text, error.status == 401 ? 'Please sign in to see your orders.' : error.message, 'bad');
    }
  };
  more.addEventListener('click', load);
  if (signedIn() || await signIn()) await load();
  else say(text, 'Please sign in to see your orders.');
}

// Fits your car

const cars = () => [h('option', { value: '' }, 'Choose your car'),
  ...catalogue.vehicles.map(car => h('option', { value: car.vehicle, selected: car.vehicle == localStorage[CAR] }, carName(car)))];

function fitBox(product) {
  const output = h('output', {}, ''), select = h('select', { id: 'car' }, ...cars());
  const box = h('section', { class: 'card fit', 'aria-labelledby': 'fit-title' },
    h('h2', { id: 'fit-title' }, 'Does it fit your car?'), h('div', {}, h('label', { for: 'car' }, 'Your car'), select), output);
  const show = async () => {
    const car = catalogue.vehicles.find(one => one.vehicle == select.value);
    localStorage[CAR] = select.value;
    delete output.dataset.fit;
    if (!car) return void (output.textContent = '');
    try {
      const fit = (await weir.fits([car.vehicle], [product.sku], { retryForMs: 3_000 }))[car.vehicle][product.sku];
      output.dataset.fit = fit;
      output.textContent = { fits: `✓ Fits your ${car.make} ${car.model}`, does_not: `✗ Does not fit your ${car.make} ${car.model}` }[fit]
        ?? 'We do not know yet. Please ask us before you buy.';
      if (user()) await weir.addVehicle(car.vehicle, true, { retryForMs: 0 }).catch(() => {});
    } catch (error) {
      // A gateway without fitment.
      if (error.status == 404) box.remove();
      else output.textContent = 'We cannot check this right now.';
    }
  };
  select.addEventListener('change', show);
  void show();
  return box;
}

// Recently viewed

const recent = document.getElementById('recent');
async function showRecent() {
  if (!signedIn()) return;
  try {
    // On another site than the gateway's, views name only the visitor.
    await weir.join(undefined, { retryForMs: 3_000 });
    const { items } = await weir.history({ limit: 12 }, { retryForMs: 3_000 });
    const known = items.map(item => ({ ...products.get(item.sku), ...item })).filter(item => products.has(item.sku) && item.sku != query.get('sku'));
    recent.querySelector('ul').replaceChildren(...known.map(item => h('li', {},
      h('a', { href: link(item) }, h('img', { src: products.get(item.sku).picture, alt: '', width: 152, height: 114, loading: 'lazy' }), products.get(item.sku).title))));
    recent.hidden = !known.length;
  } catch { recent.hidden = true; }
}
document.getElementById('forget').addEventListener('click', async () => {
  await weir.forget().catch(() => {});
  recent.hidden = true;
  main.focus();
});

// Pages

const current = async sku => (await weir.sales(sku ? { sku } : {}, { retryForMs: 5_000 }).catch(() => ({ sales: [] }))).sales
  .filter(sale => products.has(sale.sku) && sale.state != 'ended').sort((one, other) => one.starts_at_ms - other.starts_at_ms);

async function productPage(product) {
  document.title = `${product.title} · ${document.title}`;
  if (eventKey) weir.events.track('view', { sku: product.sku });
  const offer = h('div'), price = h('p', { class: 'price' }, money(product.price, catalogue.currency));
  main.append(h('article', { class: 'product' }, h('img', { src: product.picture, alt: '', width: 400, height: 300 }),
    h('div', {}, h('h1', {}, product.title), price, h('p', {}, product.text), offer, fitBox(product))));
  const [sale] = await current(product.sku);
  if (sale?.price) price.textContent = money(sale.price.unit_amount, sale.price.currency);
  if (sale) offer.replaceWith(buyBox(product, sale));
  else offer.replaceWith(h('p', { class: 'notice' }, 'Not in a drop at the moment.'));
}

async function homePage() {
  const hero = h('div');
  main.append(hero, h('section', { 'aria-labelledby': 'all' }, h('h2', { id: 'all' }, 'Everything for the road'),
    h('ul', { class: 'grid' }, ...catalogue.products.map(product => h('li', {}, h('a', { class: 'card', href: link(product) },
      h('img', { src: product.picture, alt: '', width: 400, height: 300 }),
      h('div', {}, h('h3', {}, product.title), h('span', {}, money(product.price, catalogue.currency)))))))));
  const [sale] = await current();
  if (!sale) return void hero.replaceWith(h('h1', {}, 'Go further.'));
  const product = products.get(sale.sku);
  hero.replaceWith(h('section', { class: 'card hero', 'aria-labelledby': 'drop' }, h('img', { src: product.picture, alt: '', width: 400, height: 300 }),
    h('div', {}, h('span', { class: 'tag' }, 'Limited drop'), h('h1', { id: 'drop' }, product.title),
      h('p', { class: 'price' }, sale.price ? money(sale.price.unit_amount, sale.price.currency) : ''),
      saleState(sale), h('a', { class: 'button primary', href: link(product) }, 'See the drop'))));
}

showAccount();
void showRecent();
if (query.get('view') == 'orders') await ordersPage();
else if (products.has(query.get('sku'))) await productPage(products.get(query.get('sku')));
else await homePage();
document.body.dataset.ready = 'true';

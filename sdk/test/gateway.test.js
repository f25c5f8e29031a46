// The client and openapi.json with a real gateway, origin and Redis: `cargo xtask test -p weir-tests --test e2e storefront`, or
// with WEIR_GATEWAY, WEIR_ADMIN and WEIR_ADMIN_TOKEN of `cargo xtask up` in the environment. Buys, so not for production.
import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { derive, gateway as additions } from '../openapi.js';
import { Weir } from '../dist/weir.js';
import { all, document, watch } from './contract.js';

const { WEIR_GATEWAY: url, WEIR_ADMIN: admin, WEIR_ADMIN_TOKEN: secret, WEIR_PAY } = process.env;
const skip = !url && 'WEIR_GATEWAY is not set';
const options = { skip, timeout: 60_000 };
const run = Date.now().toString(36);
const as = user => new Weir({ url, headers: { 'x-user-id': `${user}-${run}` } });
const alice = as('alice'), bob = as('bob');

async function operate(method, path, body) {
  const headers = { authorization: `Bearer ${secret}`, 'content-type': 'application/json' };
  const answer = await fetch(admin + path, { method, headers, body: body && JSON.stringify(body) });
  assert.ok(answer.ok || answer.status == 409, `${method} ${path}: ${answer.status} ${await answer.clone().text()}`);
  const text = await answer.text();
  return text && JSON.parse(text);
}

/** Creates a sale, warms it, and waits until all workers know it. */
async function sale(name, more = {}) {
  const id = `${name}-${run}`, now = Date.now();
  await operate('POST', '/sales', {
    id, title: name, total: 20, shards: 1, user_cap: 2, starts_at_ms: now - 1, ends_at_ms: now + 600_000, warm_before_ms: null, listed: true, ...more,
  });
  await operate('POST', `/sales/${id}/warm`);
  for (let known = 0, tries = 0; known < 10; tries++) {
    assert.ok(tries < 400, `${id} stays unknown`);
    const answer = await fetch(`${url}/sales/${id}`, { headers: { connection: 'close' } });
    const state = answer.ok && (await answer.json()).state;
    known = state && (state != 'scheduled' || more.starts_at_ms) ? known + 1 : 0;
    await new Promise(resolve => setTimeout(resolve, 25));
  }
  return id;
}

const { answered, mistakes } = skip ? {} : watch(url);
before(async () => {
  if (skip) return;
  for (const type of ['view', 'page', 'cart', 'weir.lost'])
    await fetch(`${admin}/events/types/${type}`, { method: 'PUT', headers: { authorization: `Bearer ${secret}` }, body: '{}' });
});

test('openapi.json is derived from the document of this origin', options, async () => {
  const origin = await operate('GET', '/openapi.json');
  const derived = derive(origin, additions());
  derived.info.version = document.info.version;
  assert.deepEqual(derived, document, 'run `weir-origin openapi > origin.json && node openapi.js origin.json && npm run build` in sdk');
});

test('buyer solves a challenge, orders, pays and sees the order', options, async () => {
  const id = await sale('shoes', {
    sku: `sku-${run}`, price: { unit_amount: 4990, currency: 'EUR' }, token: true, challenge: { proof_of_work: { bits: 10 } },
    payment: { hold: { pay_within_ms: 600_000 } },
  });
  const { sales } = await alice.sales({ sku: `sku-${run}` });
  assert.deepEqual(sales.map(one => [one.id, one.price.unit_amount]), [[id, 4990]]);
  assert.ok(Math.abs(alice.now() - Date.now()) < 2_000);
  const codes = [];
  const order = await alice.order(id, { quantity: 2, onWait: wait => codes.push(wait.code) });
  assert.deepEqual([order.status, order.quantity, order.price.amount], ['unpaid', 2, 9980]);
  assert.ok(!codes.includes('token_too_young'), 'the client waits for usable_at_ms');
  const payment = await alice.pay(order.order);
  assert.equal(payment.state, 'started');
  if (WEIR_PAY) {
    assert.equal((await fetch(payment.pay_url, { method: 'POST' })).status, 200);
    const paid = await alice.getOrder(order.order);
    assert.deepEqual([paid.status, paid.payment.state], ['paid', 'paid']);
    await assert.rejects(alice.cancel(order.order), { code: 'order_paid' });
  }
  await assert.rejects(bob.getOrder(order.order), { code: 'unknown_order' });
  await assert.rejects(alice.order(id), error => error.code == 'cap_reached' && error.problem.order == order.order);
});

test('same key is the same order, and a cancelled order is listed', options, async () => {
  const id = await sale('hats'), key = crypto.randomUUID();
  const order = await alice.order(id, { key });
  assert.equal((await alice.order(id, { key })).order, order.order);
  assert.equal((await alice.cancel(order.order)).status, 'cancelled');
  const { orders } = await alice.orders({ limit: 100 });
  assert.equal(orders.find(one => one.order == order.order).status, 'cancelled');
  assert.ok(orders.every(one => one.user == `alice-${run}`));
  assert.deepEqual(await bob.orders(), { orders: [], next: null });
  const nobody = new Weir({ url });
  await assert.rejects(nobody.orders(), { code: 'user_missing', status: 401 });
});

test('refusals of the gate are described', options, async () => {
  const future = await sale('future', { starts_at_ms: Date.now() + 500_000 });
  await assert.rejects(alice.order(future, { retryForMs: 0 }), { code: 'not_started' });
  await assert.rejects(alice.order(`none-${run}`), { code: 'unknown_sale' });
  const guarded = await sale('guarded', { token: true });
  const send = headers => fetch(`${url}/sales/${guarded}/orders`, { method: 'POST', headers: { 'x-user-id': 'eve', ...headers } });
  assert.equal((await (await send({})).json()).error, 'invalid_token');
  const minted = await fetch(`${url}/sales/${guarded}/checkout`, { method: 'POST', headers: { 'x-user-id': 'eve' } });
  const early = await send({ 'x-weir-order-token': (await minted.json()).token });
  assert.deepEqual([(await early.json()).error, early.headers.get('retry-after')], ['token_too_young', '1']);
});

test('reservation is made and cancelled, the draw is public', options, async () => {
  const now = Date.now();
  const window = { reservation: { from_ms: now - 1_000, until_ms: now + 500_000 }, starts_at_ms: now + 500_000 };
  const id = await sale('draw', { ...window, draw: { winners: 3 } });
  assert.equal((await alice.reserve(id)).state, 'entered');
  assert.ok((await alice.reservation(id)).ticket);
  const draw = await alice.draw(id);
  assert.ok(draw.commitment, JSON.stringify(draw));
  assert.equal((await alice.cancelReservation(id)).state, 'cancelled');
  await assert.rejects(bob.reservation(id), { code: 'unknown_reservation' });
});

test('joined views are in the history and can be removed', options, async () => {
  const carol = as('carol'), skus = ['a', 'b', 'c'].map(name => `${name}-${run}`);
  carol.events.init({ key: 'wk_shop_web' });
  for (const sku of skus) carol.events.track('view', { sku });
  let items = [];
  for (let tries = 0; items.length < 3 && tries < 100; tries++) {
    await new Promise(resolve => setTimeout(resolve, 200));
    await carol.join();
    ({ items } = await carol.history());
  }
  assert.deepEqual(items.map(item => item.sku).sort(), skus);
  assert.equal((await carol.historyCount()).count, 3);
  await carol.forget([skus[0]]);
  const gone = await fetch(`${url}/history/${skus[1]}`, { method: 'DELETE', headers: { 'x-user-id': `carol-${run}` } });
  assert.equal(gone.status, 204);
  assert.deepEqual((await carol.history({ limit: 1 })).items.map(item => item.sku), [skus[2]]);
  await carol.forget();
  assert.equal((await carol.historyCount()).count, 0);
});

test('parts fit the vehicle in the garage', options, async () => {
  const vehicle = String(2_000_000 + Date.now() % 900_000), part = `part-${run}`, other = `other-${run}`;
  await operate('PUT', `/fitment/vehicles/${vehicle}`, { make: 'Make', model: 'Model', year: 2020, engine: '' });
  for (const sku of [part, other]) await operate('PUT', `/fitment/products/${sku}`, { spu: sku, type: 'filter', merchant: 'm' });
  await operate('PUT', `/fitment/relations/${part}/${vehicle}`, {});
  let fits = {};
  for (let tries = 0; fits[part] != 'fits' && tries < 100; tries++) {
    await new Promise(resolve => setTimeout(resolve, 100));
    fits = (await alice.fits([vehicle], [part, other]))[vehicle];
  }
  assert.equal(fits[part], 'fits');
  assert.notEqual(fits[other], 'fits');
  assert.ok((await alice.parts(vehicle)).skus.includes(part));
  await alice.addVehicle(vehicle, true);
  assert.deepEqual((await alice.garage()).map(one => [one.vehicle, one.is_default]), [[vehicle, true]]);
  await alice.removeVehicle(vehicle);
  assert.deepEqual(await alice.garage(), []);
  await assert.rejects(alice.parts('9999999'), { code: 'unknown_vehicle' });
});

test('a visitor waits in a paused room until it opens', options, async () => {
  const id = await sale('queued'), room = '/rooms/drop';
  await operate('PUT', room, { mode: 'paused', per_minute: 600, active_max: 0, opens_at_ms: 0 });
  // Gateways follow within seconds.
  const headers = { 'x-user-id': `dave-${run}`, accept: 'application/json' };
  for (let tries = 0; ; tries++) {
    assert.ok(tries < 100, 'the room does not pause');
    const answer = await fetch(`${url}/sales/${id}/reservations`, { method: 'POST', headers });
    if ((await answer.json()).error.startsWith('room_')) break;
    await new Promise(resolve => setTimeout(resolve, 100));
  }
  const states = new Set();
  const order = await as('dave').order(id, { onWait({ room: place }) {
    if (!place) return;
    states.add(place.state);
    const { pass } = place;
    if (pass) void fetch(`${url}/.weir/room/drop`, { headers: { 'x-weir-room': pass } });
    void operate('PUT', room, { mode: 'open', per_minute: 60_000, active_max: 0, opens_at_ms: 0 });
  } });
  assert.equal(order.status, 'unpaid');
  assert.ok(states.size, 'it waited');
  await operate('PUT', room, { mode: 'bypass', per_minute: 600, active_max: 0, opens_at_ms: 0 });
});

test('every operation of openapi.json was answered as it says', options, () => {
  assert.deepEqual([...mistakes], []);
  const open = all.filter(name => !answered.has(name) && name != 'GET /sales/{sale}/draw/entries');
  assert.deepEqual(open, []);
});

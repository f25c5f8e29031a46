import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import { Weir, WeirError } from '../dist/weir.js';
import { problem, serve } from './server.js';

const status = (more = {}) => [200, {
  id: 's', state: 'running', starts_at_ms: 0, ends_at_ms: Date.now() + 1e6, now_ms: Date.now(), remaining: 'high',
  reservation: false, token: false, ...more,
}];
const order = [201, { order: 's.0.1', sale: 's', status: 'unpaid' }];
const of = (requests, method) => requests.filter(request => request.method == method);

test('order is repeated with one key until it is answered', async t => {
  let orders = 0;
  const server = await serve(({ method }) => {
    if (method == 'GET') return status();
    return [null, problem(503, 'unavailable', {}, { 'retry-after': '1' }), problem(409, 'in_progress', {}, { 'retry-after': new Date(Date.now() + 2_000).toUTCString() }), order][orders++];
  });
  t.after(server.stop);
  const codes = [];
  const made = await new Weir({ url: server.url }).order('s', { payload: { size: '42' }, quantity: 2, onWait: wait => codes.push(wait.code) });
  assert.equal(made.order, 's.0.1');
  assert.deepEqual(codes, ['network', 'unavailable', 'in_progress']);
  const sent = of(server.requests, 'POST');
  assert.equal(new Set(sent.map(request => request.headers['idempotency-key'])).size, 1);
  assert.match(sent[0].headers['idempotency-key'], /^"[0-9a-f-]{36}"$/);
  assert.ok(sent.every(request => request.body == '{"size":"42"}' && request.headers['x-weir-quantity'] == '2'));
  assert.ok(sent[2].atMs - sent[1].atMs >= 1_000, 'it waits as Retry-After says');
  assert.ok(sent[3].atMs - sent[2].atMs >= 500, 'a date, too');
});

test('final refusal is not repeated and has a code', async t => {
  const server = await serve(({ method }) => method == 'GET' ? status() : problem(409, 'cap_reached', { order: 's.0.7' }));
  t.after(server.stop);
  await assert.rejects(new Weir({ url: server.url }).order('s'), error => {
    assert.ok(error instanceof WeirError);
    assert.deepEqual([error.code, error.status, error.problem.order], ['cap_reached', 409, 's.0.7']);
    return true;
  });
  assert.equal(of(server.requests, 'POST').length, 1);
});

test('call gives up after its time and reports the last refusal', async t => {
  const server = await serve(() => problem(503, 'overloaded', {}, { 'retry-after': '1' }));
  t.after(server.stop);
  const call = new Weir({ url: server.url }).sales({}, { retryForMs: 1_500 });
  await assert.rejects(call, { code: 'overloaded' });
  assert.equal(server.requests.length, 2);
  await server.stop();
  await assert.rejects(new Weir({ url: server.url }).sales({}, { retryForMs: 0 }), { code: 'network', status: 0 });
});

test('order solves a challenge and waits for its token', async t => {
  let usableAtMs;
  const server = await serve(({ method, url, headers }) => {
    if (method == 'GET') return status({ token: true });
    if (url.endsWith('/orders')) return order;
    const solution = headers['x-weir-solution'];
    const digest = solution && createHash('sha256').update(solution).digest();
    if (!solution?.startsWith('t1.abc:') || digest[0])
      return problem(403, 'challenge_required', { challenge: { proof_of_work: { text: 't1.abc', bits: 8, expires_at_ms: 0 } } });
    usableAtMs = Date.now() + 1_000;
    return [200, { token: 'T', usable_at_ms: usableAtMs, expires_at_ms: usableAtMs + 6e5, now_ms: Date.now() }];
  });
  t.after(server.stop);
  const weir = new Weir({ url: server.url });
  await weir.order('s');
  const sent = server.requests.at(-1);
  assert.equal(sent.headers['x-weir-order-token'], 'T');
  assert.ok(sent.atMs >= usableAtMs - 5, 'not before usable_at_ms');
  await weir.order('s');
  const checkouts = server.requests.filter(request => request.url.endsWith('/checkout'));
  assert.equal(checkouts.length, 2, 'the second order uses the same token');
});

test('young token is sent again, an invalid one is replaced', async t => {
  let minted = 0, orders = 0;
  const server = await serve(({ method, url }) => {
    if (method == 'GET') return status({ token: true });
    const now_ms = Date.now();
    if (url.endsWith('/checkout')) return [200, { token: `T${++minted}`, usable_at_ms: now_ms, expires_at_ms: now_ms + 6e5, now_ms }];
    return [problem(403, 'token_too_young', {}, { 'retry-after': '1' }), problem(403, 'invalid_token'), order][orders++];
  });
  t.after(server.stop);
  await new Weir({ url: server.url }).order('s');
  const tokens = of(server.requests, 'POST').filter(request => request.url.endsWith('/orders')).map(request => request.headers['x-weir-order-token']);
  assert.deepEqual(tokens, ['T1', 'T1', 'T2']);
});

test('captcha result is sent with the checkout', async t => {
  const server = await serve(({ headers }) => headers['x-weir-captcha'] == 'result of key'
    ? [200, { token: 'T', usable_at_ms: 0, expires_at_ms: 9e15, now_ms: Date.now() }]
    : problem(403, 'challenge_required', { challenge: { captcha: { site_key: 'key' } } }));
  t.after(server.stop);
  const weir = new Weir({ url: server.url });
  await assert.rejects(weir.token('s'), { code: 'challenge_required' });
  assert.equal(await weir.token('s', { captcha: async key => `result of ${key}` }), 'T');
});

test('visitor waits with a queue token until admitted', async t => {
  const server = await serve((request, count) => {
    const room = { room: 'drop', state: 'waiting', position: 4 - count, poll_ms: 500, pass: `p${count}` };
    if (count < 3) return problem(503, 'room_waiting', room, { 'retry-after': '1', 'x-weir-room': `p${count}` });
    return [200, { orders: [], next: null }, { 'x-weir-room': 'session' }];
  });
  t.after(server.stop);
  const places = [], weir = new Weir({ url: server.url });
  await weir.orders({}, { retryForMs: 0, onWait: wait => places.push(wait.room.position) });
  assert.deepEqual(places, [3, 2], 'the queue does not use up the time for retries');
  await weir.orders();
  assert.deepEqual(server.requests.map(request => request.headers['x-weir-room']), [undefined, 'p1', 'p2', 'session']);
});

test('aborted call ends at once', async t => {
  const server = await serve(() => problem(503, 'overloaded', {}, { 'retry-after': '30' }));
  t.after(server.stop);
  const abort = new AbortController(), began = Date.now();
  setTimeout(() => abort.abort(), 50);
  await assert.rejects(new Weir({ url: server.url }).orders({}, { signal: abort.signal }), { name: 'AbortError' });
  assert.ok(Date.now() - began < 2_000);
});

test('user headers go to own routes and never to public ones', async t => {
  const server = await serve(({ url }) => url.startsWith('/my-orders') ? [200, { orders: [], next: null }] : status());
  t.after(server.stop);
  let calls = 0;
  const weir = new Weir({ url: server.url, headers: async () => ({ authorization: `Bearer ${++calls}` }), language: 'de' });
  await weir.status('a/b');
  await weir.orders();
  const [open, own] = server.requests;
  assert.deepEqual([open.url, open.headers.authorization], ['/sales/a%2Fb', undefined]);
  assert.deepEqual([own.headers.authorization, own.headers['accept-language']], ['Bearer 1', 'de']);
});

test('countdown uses the server clock and opens by itself', async t => {
  const aheadMs = 3_600_000, startsAtMs = Date.now() + aheadMs + 1_200;
  const server = await serve(() => [200, {
    id: 's', state: 'scheduled', starts_at_ms: startsAtMs, ends_at_ms: startsAtMs + 6e4, now_ms: Date.now() + aheadMs,
    remaining: 'high', reservation: false, token: false,
  }]);
  t.after(server.stop);
  const weir = new Weir({ url: server.url }), seen = [];
  await new Promise(resolve => {
    const stop = weir.watch('s', now => {
      seen.push(now);
      if (now.state == 'running') stop(), resolve();
    });
  });
  assert.ok(weir.now() >= startsAtMs - 300, 'not early');
  assert.ok(seen[0].startsInMs > 0 && seen[0].startsInMs <= 1_200);
  assert.equal(server.requests.length, 1);
});

test('sale that gateways do not know yet is found in the list', async t => {
  const listed = { id: 's', state: 'scheduled', starts_at_ms: Date.now() + 9e6, ends_at_ms: Date.now() + 9e7, remaining: 'high', token: true, reservation: { from_ms: 1, until_ms: 2 } };
  const server = await serve(({ url }) => {
    if (url.startsWith('/sales/')) return problem(404, 'unknown_sale');
    const isLast = url.includes('after=1.x');
    return [200, { sales: isLast ? [listed] : [{ ...listed, id: 'x' }], next: isLast ? null : '1.x', now_ms: Date.now() }];
  });
  t.after(server.stop);
  const now = await new Promise(resolve => {
    const stop = new Weir({ url: server.url }).watch('s', now => (setTimeout(() => stop()), resolve(now)));
  });
  assert.deepEqual([now.state, now.reservation], ['scheduled', true]);
});

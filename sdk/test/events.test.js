import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Weir } from '../dist/weir.js';
import { serve } from './server.js';

const until = async what => {
  for (let at = 0; at < 200 && !what(); at++) await new Promise(resolve => setTimeout(resolve, 25));
  assert.ok(what());
};

test('visitor of the events is the visitor that joins the history', async t => {
  const server = await serve(({ url }) => url.startsWith('/events')
    ? [202, { accepted: 1, duplicates: 0, rejected: 0, verdicts: [] }]
    : [200, { joined: 1, complete: true }]);
  t.after(server.stop);
  const weir = new Weir({ url: server.url, headers: { authorization: 'Bearer a' } });
  assert.equal(weir.events.visitor(), '', 'none before init');
  assert.equal(await weir.join(), 0);
  weir.events.init({ key: 'wk' });
  const visitor = weir.events.visitor();
  assert.match(visitor, /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  weir.events.track('view', { sku: 'a1' });
  await until(() => server.requests.length);
  const sent = server.requests[0], query = new URL(sent.url, server.url).searchParams;
  assert.deepEqual([query.get('key'), query.get('consent'), query.get('visitor')], ['wk', 'full', visitor]);
  const [event] = JSON.parse(sent.body).events;
  assert.deepEqual([event.type, event.visitor, event.attributes], ['view', visitor, { sku: 'a1' }]);

  assert.equal(await weir.join(), 1);
  const join = server.requests.at(-1);
  assert.deepEqual([join.method, join.url, JSON.parse(join.body), join.headers.authorization], ['POST', '/history/join', { visitor }, 'Bearer a']);

  weir.events.consent('anonymous');
  assert.equal(weir.events.visitor(), '');
  assert.equal(await weir.join(), 0);
});

// Compares each answer of a gateway with openapi.json.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import Ajv from 'ajv/dist/2020.js';

export const document = JSON.parse(readFileSync(new URL('../openapi.json', import.meta.url), 'utf8'));

const operations = Object.entries(document.paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, operation]) => ({
  path, method: method.toUpperCase(), operation,
  pattern: new RegExp(`^${path.replace(/\./g, '\\.').replace(/\{\w+\}/g, '[^/]+')}$`),
})));
// `/history/count` before `/history/{sku}`.
operations.sort((one, other) => one.path.includes('{') - other.path.includes('{'));

const ajv = new Ajv({ strict: false, validateFormats: false, allErrors: true });
// Clients must ignore unknown members, but the document must name all.
const strict = structuredClone(document);
for (const schema of Object.values(strict.components.schemas)) if (schema.properties) schema.additionalProperties = false;
ajv.addSchema({ $id: 'weir', ...strict });
const escape = part => encodeURIComponent(part.replace(/~/g, '~0').replace(/\//g, '~1'));
const validators = new Map();
function validate(parts, value) {
  const pointer = parts.map(escape).join('/');
  if (!validators.has(pointer)) validators.set(pointer, ajv.compile({ $ref: `weir#/${pointer}` }));
  const valid = validators.get(pointer);
  assert.ok(valid(value), `${parts.join(' ')}: ${ajv.errorsText(valid.errors)} in ${JSON.stringify(value)}`);
}

/** Checks all answers of `gateway` from now on. Returns the operations that were answered with 2xx, and the mistakes. */
export function watch(gateway) {
  const answered = new Set(), mistakes = new Set(), send = globalThis.fetch;
  globalThis.fetch = async (url, options) => {
    const answer = await send(url, options), { origin, pathname } = new URL(url);
    if (origin == gateway) await check(options?.method ?? 'GET', pathname, answer.clone()).catch(error => mistakes.add(error.message));
    return answer;
  };
  async function check(method, pathname, answer) {
    const found = operations.find(one => one.method == method && one.pattern.test(pathname));
    assert.ok(found, `openapi.json lacks ${method} ${pathname}`);
    const text = await answer.text(), kind = (answer.headers.get('content-type') ?? '').split(';')[0];
    const name = `${method} ${pathname} answered ${answer.status}`;
    const json = text && /json$/.test(kind) ? JSON.parse(text) : undefined;
    // A waiting room may be in front of every operation.
    if (json?.error?.startsWith('room_')) return validate(['components', 'schemas', 'RoomProblem'], json);
    const described = found.operation.responses[answer.status];
    assert.ok(described, `${name}, which openapi.json lacks: ${text}`);
    if (answer.ok) answered.add(`${method} ${found.path}`);
    if (!text) return assert.ok(!described.content, `${name} without a body`);
    assert.ok(described.content?.[kind], `${name} as ${kind}, which openapi.json lacks`);
    validate(['paths', found.path, method.toLowerCase(), 'responses', String(answer.status), 'content', kind, 'schema'], json);
    if (answer.status >= 400) {
      const codes = described['x-error-codes'] ?? [];
      assert.ok(codes.includes(json.error), `${name} with ${json.error}, which openapi.json lacks`);
    }
  }
  return { answered, mistakes };
}

/** The names of all operations, such as `GET /my-orders`. */
export const all = operations.map(one => `${one.method} ${one.path}`);

// Derives openapi.json from the origin's document and from gateway.json, which has what the gateway itself adds.
// `weir-origin openapi > origin.json && node openapi.js origin.json`
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const here = name => fileURLToPath(new URL(name, import.meta.url));

/** Refusals of the admin port. */
const ADMIN_ONLY = /^(unauthorized|forbidden|not_from_console|not_noted|tenant_busy|tenant_limit)$/;
/** Refusals that a gateway's signature excludes, and parameters that it sets. */
const SIGNED = /^(claim_missing|claim_invalid|user_missing|user_invalid|not_by_a_gateway)$/;

export function derive(origin, gateway) {
  [origin, gateway] = structuredClone([origin, gateway]);
  const meanings = origin.info['x-error-codes'];
  const used = new Set();
  const paths = {};

  const refuse = (responses, status, codes) => {
    const known = responses[status]?.['x-error-codes'] ?? [];
    const all = [...new Set([...known, ...codes])].sort();
    const explained = all.map(code => meanings[code] ? `\`${code}\`: ${meanings[code]}` : `\`${code}\``);
    responses[status] = {
      description: explained.join('; '),
      content: { 'application/problem+json': { schema: { $ref: '#/components/schemas/Problem' } } },
      'x-error-codes': all,
    };
    all.forEach(code => used.add(code));
  };

  const write = (path, method, operation, verdicts = {}) => {
    for (const [status, codes] of Object.entries(verdicts)) refuse(operation.responses, status, codes);
    (paths[path] ??= {})[method] = operation;
  };

  for (const [path, methods] of Object.entries(gateway.taken)) {
    for (const [method, own] of Object.entries(methods)) {
      const source = origin.paths[own.path]?.[method];
      if (!source) throw Error(`the origin has no ${method} ${own.path}: correct gateway.json`);
      const operation = structuredClone({ ...source, ...Object.fromEntries(
        ['operationId', 'summary', 'description'].filter(name => own[name]).map(name => [name, own[name]])) });
      delete operation.tags;
      delete operation.security;
      if (own.open) operation.security = [];
      const names = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name);
      const parameters = own.parameters ?? (operation.parameters ?? []).filter(one =>
        !(one.in == 'query' && ['user', 'visitor'].includes(one.name)));
      let at = 0;
      operation.parameters = parameters.map(one => one.in == 'path' ? { ...one, name: names[at++] } : one);
      for (const [status, response] of Object.entries(operation.responses)) {
        if (!response['x-error-codes']) continue;
        const codes = response['x-error-codes'].filter(code => !ADMIN_ONLY.test(code) && !SIGNED.test(code));
        const answers = response.content?.['application/json'];
        delete operation.responses[status];
        if (answers) operation.responses[status] = { ...response, 'x-error-codes': codes };
        else if (codes.length) refuse(operation.responses, status, codes);
      }
      if (own.answer) operation.responses[200].content['application/json'].schema = { $ref: `#/components/schemas/${own.answer}` };
      // The gate answers so before the origin.
      if (!own.open && !own.verdicts) refuse(operation.responses, 429, ['rate_limited']);
      if (!own.open && !own.verdicts) refuse(operation.responses, 401, ['user_missing']);
      write(path, method, operation, own.verdicts);
    }
  }
  for (const [path, methods] of Object.entries(gateway.paths)) {
    for (const [method, { verdicts, ...operation }] of Object.entries(methods)) write(path, method, structuredClone(operation), verdicts);
  }

  const all = { ...origin.components.schemas, ...gateway.schemas }, schemas = {};
  const take = value => {
    for (const [, name] of JSON.stringify(value).matchAll(/"#\/components\/schemas\/(\w+)"/g)) {
      if (schemas[name]) continue;
      if (!all[name]) throw Error(`no schema ${name}`);
      take(schemas[name] = all[name]);
    }
  };
  take(paths);
  for (const name of Object.keys(gateway.schemas)) take(schemas[name] = gateway.schemas[name]);

  // The order of fields in the code does not matter.
  const normalize = value => {
    if (Array.isArray(value?.required)) value.required = value.required.toSorted();
    if (value && typeof value == 'object') Object.values(value).forEach(normalize);
    return value;
  };
  const sorted = object => Object.fromEntries(Object.entries(object).sort(([one], [other]) => one < other ? -1 : 1));
  return normalize({
    openapi: '3.1.0',
    info: {
      ...gateway.info, version: origin.info.version,
      'x-error-codes': Object.fromEntries(Object.entries(meanings).filter(([code]) => used.has(code))),
    },
    security: gateway.security,
    paths: sorted(paths),
    components: { schemas: sorted(schemas), securitySchemes: gateway.securitySchemes },
  });
}

export const read = name => JSON.parse(readFileSync(name, 'utf8'));
export const gateway = () => read(here('gateway.json'));

if (process.argv[1] == fileURLToPath(import.meta.url)) {
  const document = derive(read(process.argv[2]), gateway());
  writeFileSync(here('openapi.json'), JSON.stringify(document, null, 2) + '\n');
}

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

const here = fileURLToPath(new URL('..', import.meta.url));
const read = name => readFileSync(join(here, name), 'utf8');

test('committed files are what the sources compile to', t => {
  const out = mkdtempSync(join(tmpdir(), 'weir-sdk-'));
  t.after(() => rmSync(out, { recursive: true }));
  execFileSync(process.execPath, [join(here, 'build.js'), out], { stdio: 'inherit' });
  const files = ['weir-events.js', ...readdirSync(join(out, 'dist')).map(name => `dist/${name}`)];
  assert.deepEqual(readdirSync(join(here, 'dist')).sort(), readdirSync(join(out, 'dist')).sort());
  for (const name of files) assert.ok(readFileSync(join(out, name), 'utf8') == read(name), `${name} is stale: run \`npm run build\` in sdk`);
  assert.ok(readFileSync(join(out, 'api.ts'), 'utf8') == read('src/api.ts'), 'src/api.ts is stale: run `npm run build` in sdk');
});

test('declarations compile in a strict project', () => {
  const tsc = createRequire(import.meta.url).resolve('typescript/bin/tsc');
  const options = '--noEmit --strict --target es2022 --module esnext --moduleResolution bundler --lib es2022,dom';
  execFileSync(process.execPath, [tsc, ...options.split(' '), join(here, 'test/types.ts')], { stdio: 'inherit' });
});

test('package is small and has no dependencies', () => {
  const size = ['dist/weir.js', 'dist/weir-worker.js'].reduce((sum, name) => sum + gzipSync(read(name), { level: 9 }).length, 0);
  assert.ok(size < 12 * 1_024, `${size} bytes`);
  const { dependencies, peerDependencies } = JSON.parse(read('package.json'));
  assert.deepEqual([dependencies, peerDependencies], [undefined, undefined]);
  for (const name of ['dist/weir.js', 'dist/weir-worker.js', 'weir-events.js']) assert.doesNotMatch(read(name), /^\s*import\s|require\(/m);
  assert.ok(Buffer.byteLength(read('weir-events.js')) <= 4_096);
});

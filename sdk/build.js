// Compiles `src` into `dist` and the event snippet. `node build.js DIR` writes into another folder.
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { buildSync } from 'esbuild';
import openapiTypescript, { astToString } from 'openapi-typescript';

const here = fileURLToPath(new URL('.', import.meta.url));
const out = process.argv[2] ?? here;
mkdirSync(join(out, 'dist'), { recursive: true });

const api = astToString(await openapiTypescript(JSON.parse(readFileSync(join(here, 'openapi.json'), 'utf8'))));
const types = '// Generated from openapi.json by `npm run build`.\n\n' + api;
writeFileSync(join(out, out == here ? 'src/api.ts' : 'api.ts'), types);

const bundle = (entry, file, options) => buildSync({
  entryPoints: [join(here, 'src', entry)], outfile: join(out, file), bundle: true, target: 'es2022',
  charset: 'utf8', ...options,
});
bundle('weir.ts', 'dist/weir.js', { format: 'esm' });
bundle('worker.ts', 'dist/weir-worker.js', { format: 'esm' });
bundle('snippet.ts', 'weir-events.js', {
  format: 'iife', minify: true, banner: { js: '// Sends events to Weir: docs/events.md. Compiled from sdk/src/events.ts.' },
});
const tsc = createRequire(import.meta.url).resolve('typescript/bin/tsc');
execFileSync(process.execPath, [tsc, '--project', here, '--outDir', join(out, 'dist')], { stdio: 'inherit' });

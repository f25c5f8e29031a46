import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import { solve } from '../dist/weir.js';

const zeroBits = text => Math.clz32(createHash('sha256').update(text).digest().readUInt32BE());

test('solutions have the zero bits for texts of any length', async () => {
  for (const length of [1, 20, 53, 54, 55, 56, 63, 64, 65, 118, 119, 120, 180, 300]) {
    const text = 'x'.repeat(length), solution = await solve({ text, bits: 8 });
    assert.match(solution, /^x+:\d+$/);
    assert.ok(zeroBits(solution) >= 8, `${length}: ${solution}`);
  }
  const solution = await solve({ text: 'ä', bits: 12 });
  assert.ok(zeroBits(solution) >= 12, solution);
});

test('solving ends when the caller aborts', async () => {
  const abort = new AbortController();
  const solved = solve({ text: 'x', bits: 32 }, abort.signal);
  setTimeout(() => abort.abort(), 30);
  await assert.rejects(solved, { name: 'AbortError' });
});

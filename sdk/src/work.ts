// Proof of work: finds the counter for which SHA-256 of `<text>:<counter>` starts with enough zero bits.

// SHA-256 by FIPS 180-4. Its constants are fractions of the cube and square roots of the first primes.
const primes = [2];
for (let n = 3; primes.length < 64; n += 2) if (primes.every(prime => n % prime)) primes.push(n);
const fraction = (root: number) => (root - Math.floor(root)) * 2 ** 32 | 0;
const K = Int32Array.from(primes, prime => fraction(Math.cbrt(prime)));
const START = Int32Array.from(primes.slice(0, 8), prime => fraction(Math.sqrt(prime)));
const words = new Int32Array(64);

function compress(state: Int32Array, view: DataView, at: number) {
  for (let i = 0; i < 16; i++) words[i] = view.getInt32(at + 4 * i);
  for (let i = 16; i < 64; i++) {
    const x = words[i - 15]!, y = words[i - 2]!;
    words[i] = words[i - 16]! + words[i - 7]!
      + ((x >>> 7 | x << 25) ^ (x >>> 18 | x << 14) ^ x >>> 3)
      + ((y >>> 17 | y << 15) ^ (y >>> 19 | y << 13) ^ y >>> 10) | 0;
  }
  let [a, b, c, d, e, f, g, h] = state as unknown as [number, number, number, number, number, number, number, number];
  for (let i = 0; i < 64; i++) {
    const s = h + ((e >>> 6 | e << 26) ^ (e >>> 11 | e << 21) ^ (e >>> 25 | e << 7)) + (e & f ^ ~e & g) + K[i]! + words[i]! | 0;
    const t = ((a >>> 2 | a << 30) ^ (a >>> 13 | a << 19) ^ (a >>> 22 | a << 10)) + (a & b ^ a & c ^ b & c) | 0;
    h = g; g = f; f = e; e = d + s | 0; d = c; c = b; b = a; a = s + t | 0;
  }
  [a, b, c, d, e, f, g, h].forEach((word, i) => state[i] = state[i]! + word | 0);
}

/** A proof of work, as the gateway sends it in a challenge. */
export interface Work {
  text: string;
  /** The number of leading zero bits, 1 to 32. */
  bits: number;
}

/** Tries counters. Each step tries at most `count`; it yields null until a counter is a solution. */
export function* attempts({ text, bits }: Work, count: number): Generator<string | null, void> {
  const bytes = new TextEncoder().encode(text + ':'), whole = bytes.length & ~63;
  const before = START.slice(), block = new Uint8Array(128), view = new DataView(block.buffer);
  // Hashes the constant part once.
  for (let at = 0; at < whole; at += 64) compress(before, new DataView(bytes.buffer), at);
  const rest = bytes.subarray(whole), state = new Int32Array(8);
  for (let counter = 0; ; counter++) {
    const digits = String(counter), length = rest.length + digits.length, end = length < 56 ? 64 : 128;
    block.fill(0);
    block.set(rest);
    for (let i = 0; i < digits.length; i++) block[rest.length + i] = digits.charCodeAt(i);
    block[length] = 128;
    view.setUint32(end - 4, (whole + length) * 8);
    state.set(before);
    for (let at = 0; at < end; at += 64) compress(state, view, at);
    if (state[0]! >>> 32 - bits == 0) yield `${text}:${counter}`;
    else if (counter % count == count - 1) yield null;
  }
}

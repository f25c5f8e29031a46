// src/work.ts
var primes = [2];
for (let n = 3; primes.length < 64; n += 2) if (primes.every((prime) => n % prime)) primes.push(n);
var fraction = (root) => (root - Math.floor(root)) * 2 ** 32 | 0;
var K = Int32Array.from(primes, (prime) => fraction(Math.cbrt(prime)));
var START = Int32Array.from(primes.slice(0, 8), (prime) => fraction(Math.sqrt(prime)));
var words = new Int32Array(64);
function compress(state, view, at) {
  for (let i = 0; i < 16; i++) words[i] = view.getInt32(at + 4 * i);
  for (let i = 16; i < 64; i++) {
    const x = words[i - 15], y = words[i - 2];
    words[i] = words[i - 16] + words[i - 7] + ((x >>> 7 | x << 25) ^ (x >>> 18 | x << 14) ^ x >>> 3) + ((y >>> 17 | y << 15) ^ (y >>> 19 | y << 13) ^ y >>> 10) | 0;
  }
  let [a, b, c, d, e, f, g, h] = state;
  for (let i = 0; i < 64; i++) {
    const s = h + ((e >>> 6 | e << 26) ^ (e >>> 11 | e << 21) ^ (e >>> 25 | e << 7)) + (e & f ^ ~e & g) + K[i] + words[i] | 0;
    const t = ((a >>> 2 | a << 30) ^ (a >>> 13 | a << 19) ^ (a >>> 22 | a << 10)) + (a & b ^ a & c ^ b & c) | 0;
    h = g;
    g = f;
    f = e;
    e = d + s | 0;
    d = c;
    c = b;
    b = a;
    a = s + t | 0;
  }
  [a, b, c, d, e, f, g, h].forEach((word, i) => state[i] = state[i] + word | 0);
}
function* attempts({ text, bits }, count) {
  const bytes = new TextEncoder().encode(text + ":"), whole = bytes.length & ~63;
  const before = START.slice(), block = new Uint8Array(128), view = new DataView(block.buffer);
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
    if (state[0] >>> 32 - bits == 0) yield `${text}:${counter}`;
    else if (counter % count == count - 1) yield null;
  }
}

// src/worker.ts
onmessage = ({ data }) => {
  for (const solution of attempts(data, 2 ** 20)) if (solution) return postMessage(solution);
};

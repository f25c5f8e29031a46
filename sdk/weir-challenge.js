// Gets an order token from a checkout that wants a proof of work first: docs/sales.md. The work is done in a worker of this same
// file, so that the page stays alive.
(() => {
  const isWorker = typeof document == 'undefined';
  const source = isWorker ? null : document.currentScript.src;
  const TRIES = 5;

  // SHA-256, by FIPS 180-4. Its constants are the fractions of the cube and square roots of the first primes.
  const primes = [2];
  for (let n = 3; primes.length < 64; n += 2) if (primes.every(prime => n % prime)) primes.push(n);
  const fraction = root => (root - Math.floor(root)) * 2 ** 32 | 0;
  const K = Int32Array.from(primes, prime => fraction(Math.cbrt(prime)));
  const START = Int32Array.from(primes.slice(0, 8), prime => fraction(Math.sqrt(prime)));
  const words = new Int32Array(64);

  function compress(state, view, at) {
    for (let i = 0; i < 16; i++) words[i] = view.getInt32(at + 4 * i);
    for (let i = 16; i < 64; i++) {
      const x = words[i - 15], y = words[i - 2];
      words[i] = words[i - 16] + words[i - 7]
        + ((x >>> 7 | x << 25) ^ (x >>> 18 | x << 14) ^ x >>> 3)
        + ((y >>> 17 | y << 15) ^ (y >>> 19 | y << 13) ^ y >>> 10) | 0;
    }
    let [a, b, c, d, e, f, g, h] = state;
    for (let i = 0; i < 64; i++) {
      const s = h + ((e >>> 6 | e << 26) ^ (e >>> 11 | e << 21) ^ (e >>> 25 | e << 7)) + (e & f ^ ~e & g) + K[i] + words[i] | 0;
      const t = ((a >>> 2 | a << 30) ^ (a >>> 13 | a << 19) ^ (a >>> 22 | a << 10)) + (a & b ^ a & c ^ b & c) | 0;
      h = g; g = f; f = e; e = d + s | 0; d = c; c = b; b = a; a = s + t | 0;
    }
    [a, b, c, d, e, f, g, h].forEach((word, i) => state[i] = state[i] + word | 0);
  }

  // The first counter with which `text`, a colon and the counter have a hash that begins with `bits` zero bits: 1 to 32.
  function solve({ text, bits }) {
    const bytes = new TextEncoder().encode(text + ':'), whole = bytes.length & ~63;
    const before = START.slice(), block = new Uint8Array(128), view = new DataView(block.buffer);
    // What stays the same is hashed once.
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
      if (state[0] >>> 32 - bits == 0) return `${text}:${counter}`;
    }
  }

  if (isWorker) return self.onmessage = ({ data }) => self.postMessage(solve(data));

  const solved = challenge => new Promise((resolve, reject) => {
    const worker = new Worker(source), end = settle => event => (worker.terminate(), settle(event));
    worker.onmessage = end(({ data }) => resolve(data));
    worker.onerror = end(reject);
    worker.postMessage(challenge);
  });

  // Asks for an order token. Whatever was lost on the way: the same solution leads to the same token, so it is sent again.
  async function checkout(url, options = {}) {
    const headers = new Headers(options.headers);
    for (let tries = 1; ; tries++) {
      const answer = await fetch(url, { method: 'POST', ...options, headers }).catch(error => {
        if (tries == TRIES) throw error;
      });
      if (tries == TRIES || answer && ![403, 503].includes(answer.status)) return answer;
      if (answer?.status == 403) {
        const work = (await answer.clone().json().catch(() => ({}))).challenge?.proof_of_work;
        if (!work) return answer;
        headers.set('x-weir-solution', await solved(work));
      } else {
        await new Promise(resolve => setTimeout(resolve, 1e3 * (answer?.headers.get('retry-after') || 1)));
      }
    }
  }

  window.weirChallenge = { solve: solved, checkout };
})();

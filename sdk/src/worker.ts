// Solves a proof of work in a worker, so that the page stays responsive.
import { attempts, type Work } from './work.js';

onmessage = ({ data }: MessageEvent<Work>) => {
  for (const solution of attempts(data, 2 ** 20)) if (solution) return postMessage(solution);
};

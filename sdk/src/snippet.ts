// The event snippet: `window.weir` of `weir-events.js`.
import { createEvents } from './events.js';

(globalThis as any).weir = createEvents();

// Requests to the gateway: waits in waiting rooms, repeats what may be repeated, and reads problems (RFC 9457).
import type { components } from './api.js';

type Schemas = components['schemas'];

/** A refusal. `code` is its `error`, such as `sold_out`; `network` if no answer came. */
export class WeirError extends Error {
  constructor(
    readonly code: string,
    message: string,
    /** The HTTP status; 0 without an answer. */
    readonly status: number,
    /** The whole answer. */
    readonly problem: Partial<Schemas['Problem']> & Record<string, any> = {},
  ) {
    super(message);
    this.name = 'WeirError';
  }
}

/** Why a call waits. */
export interface Wait {
  /** The refusal's code, such as `in_progress`; `room_waiting` and others with a `room`; `network`; `token_too_young`. */
  code: string;
  /** Time until the next attempt. */
  waitMs: number;
  /** The place in the waiting room. */
  room?: Schemas['RoomProblem'];
}

export interface CallOptions {
  /** Ends the call; it then rejects with the signal's reason. */
  signal?: AbortSignal;
  /** How long to repeat a call that gets no final answer, in milliseconds. Waiting rooms do not count. Default: 60 s. */
  retryForMs?: number;
  /** Called before each pause. */
  onWait?: (wait: Wait) => void;
}

export interface ClientOptions {
  /** The gateway, such as `https://shop.example`. Default: the page's own site. */
  url?: string;
  /** Headers that identify the user, such as `authorization`, or a function that returns them. */
  headers?: Record<string, string> | (() => Record<string, string> | Promise<Record<string, string>>);
  /** As for `fetch`: `include` sends cookies to another site. */
  credentials?: RequestCredentials;
  /** BCP 47 tag of the refusals' language. Default: the browser's. */
  language?: string;
}

export interface Request {
  query?: Record<string, string | number | boolean | undefined>;
  headers?: Record<string, string | undefined>;
  json?: unknown;
  /** The same for everyone: sends no user, so that caches and other sites may answer. */
  open?: boolean;
}

const RETRY_FOR_MS = 60_000, ATTEMPT_MS = 20_000, ROOMS = 'weir.rooms';

/** Waits, or rejects when the signal aborts. */
export const sleep = (ms: number, signal?: AbortSignal) => new Promise<void>((resolve, reject) => {
  const abort = () => (clearTimeout(timer), reject(signal!.reason));
  const timer = setTimeout(() => (signal?.removeEventListener('abort', abort), resolve()), ms);
  if (signal?.aborted) return abort();
  signal?.addEventListener('abort', abort, { once: true });
});

export class Http {
  /** Queue tokens by room, for this tab. */
  #passes: Record<string, string> = {};
  /** The room before a path. */
  #rooms = new Map<string, string>();

  constructor(readonly options: ClientOptions) {
    try {
      this.#passes = JSON.parse(sessionStorage.getItem(ROOMS) || '{}');
    } catch { /* No storage: a reload joins the queue again. */ }
  }

  /** The JSON of the answer; undefined if it is empty. */
  async call<T>(method: string, path: string, request: Request = {}, options: CallOptions = {}): Promise<T> {
    const answer = await this.send(method, path, request, options);
    const text = await answer.text();
    return (text ? JSON.parse(text) : undefined) as T;
  }

  /** Sends until the answer is final. */
  async send(method: string, path: string, request: Request = {}, options: CallOptions = {}): Promise<Response> {
    const { signal, onWait, retryForMs = RETRY_FOR_MS } = options;
    let until = Date.now() + retryForMs;
    for (let tries = 0; ; tries++) {
      const answer = await this.#attempt(method, path, request, signal);
      if (answer instanceof Response && answer.ok) return answer;
      const error = answer instanceof Response ? await refusal(answer) : answer;
      const headers = answer instanceof Response ? answer.headers : undefined;
      const room = error.code.startsWith('room_') ? error.problem as Schemas['RoomProblem'] : undefined;
      let waitMs = pause(error, headers, tries);
      if (room) {
        this.#keep(path, room.room, room.pass ?? headers?.get('x-weir-room'));
        waitMs = Math.max(room.poll_ms, 500);
        // The queue is not a failure.
        until = Date.now() + waitMs + retryForMs;
        tries = 0;
      }
      if (waitMs < 0 || Date.now() + waitMs > until) throw error;
      onWait?.({ code: error.code, waitMs, room });
      await sleep(waitMs, signal);
    }
  }

  async #attempt(method: string, path: string, { query, headers, json, open }: Request, signal?: AbortSignal) {
    signal?.throwIfAborted();
    const { url = '', credentials, language } = this.options;
    const search = new URLSearchParams(Object.entries(query ?? {}).flatMap(([name, value]) =>
      value == null ? [] : [[name, String(value)]]));
    const own = open ? undefined : this.options.headers;
    const sent = new Headers(typeof own == 'function' ? await own() : own);
    sent.set('accept', 'application/json');
    if (language) sent.set('accept-language', language);
    if (json !== undefined) sent.set('content-type', 'application/json');
    for (const [name, value] of Object.entries(headers ?? {})) if (value != null) sent.set(name, value);
    const room = this.#rooms.get(path) ?? (open ? '' : Object.keys(this.#passes).pop());
    if (room && this.#passes[room]) sent.set('x-weir-room', this.#passes[room]!);
    const abort = new AbortController(), stop = () => abort.abort(signal!.reason);
    const timer = setTimeout(() => abort.abort(Error('timeout')), ATTEMPT_MS);
    signal?.addEventListener('abort', stop, { once: true });
    try {
      const answer = await fetch(url + path + (`${search}` && `?${search}`), {
        method, headers: sent, credentials: open ? 'omit' : credentials, signal: abort.signal, cache: 'no-store',
        body: json === undefined ? undefined : JSON.stringify(json),
      });
      // Read within the time limit.
      const body = await answer.arrayBuffer();
      const known = this.#rooms.get(path);
      if (answer.ok && known) this.#keep(path, known, answer.headers.get('x-weir-room'));
      const empty = [204, 205, 304].includes(answer.status);
      return new Response(empty ? null : body, { status: answer.status, headers: answer.headers });
    } catch (error) {
      signal?.throwIfAborted();
      return new WeirError('network', `weir: no answer to ${method} ${path}: ${(error as Error).message}`, 0);
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener('abort', stop);
    }
  }

  #keep(path: string, room: string, pass?: string | null) {
    this.#rooms.set(path, room);
    if (!pass) return;
    this.#passes[room] = pass;
    try {
      sessionStorage.setItem(ROOMS, JSON.stringify(this.#passes));
    } catch { /* No storage. */ }
  }
}

async function refusal(answer: Response): Promise<WeirError> {
  const text = await answer.text();
  let problem: Record<string, any> = {};
  try {
    problem = JSON.parse(text);
  } catch { /* Not an answer of Weir's. */ }
  const code = problem.error ?? `http_${answer.status}`;
  return new WeirError(code, problem.message ?? problem.detail ?? `${code} (status ${answer.status})`, answer.status, problem);
}

/** Time until the next attempt in milliseconds; negative if the answer is final. */
function pause({ status }: WeirError, headers: Headers | undefined, tries: number): number {
  const after = headers?.get('retry-after');
  const isUnknown = status == 0 || status == 408 || status == 429 || status > 501;
  if (!after && !isUnknown) return -1;
  // Seconds, or a date.
  const ms = after ? 1e3 * +after || Date.parse(after) - Date.now() : 0;
  // A random part spreads the requests of many pages.
  return (ms > 0 ? ms : Math.min(500 * 2 ** tries, 10_000)) * (1 + Math.random() / 5);
}

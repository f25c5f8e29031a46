// The client of a Weir gateway: docs/front-end.md.
import type { components } from './api.js';
import { createEvents, uuid, type EventOptions, type Events } from './events.js';
import { Http, WeirError, sleep, type CallOptions, type ClientOptions } from './http.js';
import { attempts, type Work } from './work.js';

export { WeirError } from './http.js';
export type { CallOptions, ClientOptions, Wait } from './http.js';
export type { Consent, EventOptions, Events } from './events.js';
export type { components, paths } from './api.js';

type Schemas = components['schemas'];
export type Sale = Schemas['PublicSale'];
export type SaleStatus = Schemas['SaleStatus'];
export type Order = Schemas['Order'];
export type PaidOrder = Schemas['PaidOrder'];
export type OwnOrders = Schemas['OwnOrders'];
export type Payment = Schemas['Payment'];
export type Reservation = Schemas['Reservation'];
export type HistoryPage = Schemas['HistoryPage'];
export type GarageVehicle = Schemas['GarageVehicle'];
export type OrderToken = Schemas['OrderToken'];

/** Whether a part fits a vehicle. `unknown` is not `does_not`. */
export type Fit = 'fits' | 'does_not' | 'unknown';

/** A sale at one moment of the server's clock. */
export interface SaleNow {
  state: SaleStatus['state'];
  /** Roughly what is left. */
  remaining: SaleStatus['remaining'];
  /** Time until the start; 0 once it has started. */
  startsInMs: number;
  /** Time until the end; 0 once it is over. */
  endsInMs: number;
  /** Whether buyers need a reservation. */
  reservation: boolean;
}

export interface TokenOptions extends CallOptions {
  /** Shows a CAPTCHA with this public key and returns its result. */
  captcha?: (siteKey: string) => Promise<string>;
}

export interface OrderOptions extends TokenOptions {
  /** Units. Default: 1. */
  quantity?: number;
  /** What the sale's `payload_schema` asks for. */
  payload?: unknown;
  /** The link click that led here. */
  click?: string;
  /** The idempotency key: the same key is the same order. Default: a new one for each call. */
  key?: string;
}

export interface ClientEvents extends Omit<Events, 'init'> {
  /** Starts to send. Call it once. Default of `url`: the gateway's `/events`. */
  init(options: Omit<EventOptions, 'url'> & { url?: string }): void;
}

export interface WatchOptions {
  signal?: AbortSignal;
  /** The interval between requests; each page adds up to as much at random. Default: 60 s. */
  everyMs?: number;
}

const CHALLENGES_MAX = 5, START_SPREAD_MS = 2_000, FAILED_MS = 10_000, TICK_MS = 250;
const sale = (id: string, rest = '') => `/sales/${encodeURIComponent(id)}${rest}`;
const order = (id: string, rest = '') => `/orders/${encodeURIComponent(id)}${rest}`;

export class Weir {
  readonly #http: Http;
  /** Milliseconds by which this clock is behind the server's. */
  #behindMs = 0;
  #roundTripMs = Infinity;
  #tokens = new Map<string, { token: string; expiresAtMs: number }>();
  /** Sends behaviour events, after `events.init`. */
  readonly events: ClientEvents;

  constructor(options: ClientOptions = {}) {
    this.#http = new Http(options);
    const events = createEvents();
    const url = (options.url ?? '') + '/events';
    this.events = { ...events, init: given => events.init({ url, ...given }) };
  }

  // Time

  /** The server's time, in milliseconds since the Unix epoch. Every answer with a time corrects it. */
  now(): number {
    return Date.now() + this.#behindMs;
  }

  async #timed<T extends { now_ms: number }>(answer: () => Promise<T>, isCached = false): Promise<T> {
    const sentMs = Date.now(), told = await answer(), tookMs = Date.now() - sentMs;
    // A quick answer is more exact, and a cache's is old.
    const isBetter = isCached ? this.#roundTripMs == Infinity : tookMs <= this.#roundTripMs * 2;
    // The server's time is from the middle of the request.
    if (isBetter) this.#behindMs = told.now_ms - (sentMs + tookMs / 2);
    if (isBetter && !isCached) this.#roundTripMs = Math.min(tookMs, this.#roundTripMs);
    return told;
  }

  // Sales

  /** A page of the listed sales. */
  sales(query: { sku?: string; tenant?: string; limit?: number; after?: string } = {}, options?: CallOptions): Promise<Schemas['PublicSales']> {
    return this.#timed(() => this.#http.call('GET', '/public-sales', { query, open: true }, options), true);
  }

  /** The state of a sale. */
  status(id: string, options?: CallOptions): Promise<SaleStatus> {
    return this.#timed(() => this.#http.call('GET', sale(id), { open: true }, options));
  }

  /**
   * Calls `show` at once and whenever the state, or a second of the countdown, changes. Returns a function that ends it.
   * A page asks rarely, so that many pages cost little.
   */
  watch(id: string, show: (now: SaleNow) => void, { signal, everyMs = 60_000 }: WatchOptions = {}): () => void {
    let status: Omit<SaleStatus, 'id' | 'now_ms'> | undefined, askAtMs = 0, shown = '', hasBegun = false;
    const ask = async () => {
      // No further request until this one is answered.
      askAtMs = Infinity;
      try {
        status = await this.#find(id, { signal, retryForMs: 0 });
        askAtMs = Date.now() + everyMs * (1 + Math.random());
      } catch {
        askAtMs = Date.now() + FAILED_MS + Math.random() * START_SPREAD_MS;
      }
    };
    const tick = () => {
      if (status) {
        const nowMs = this.now();
        let { state } = status;
        const startsInMs = Math.max(0, status.starts_at_ms - nowMs), endsInMs = Math.max(0, status.ends_at_ms - nowMs);
        if (state == 'scheduled' && !startsInMs && !hasBegun) {
          hasBegun = true;
          status.state = state = 'running';
          askAtMs = Math.min(askAtMs, Date.now() + Math.random() * START_SPREAD_MS);
        }
        if (!endsInMs) state = 'ended';
        const { remaining, reservation } = status;
        const now = { state, remaining, reservation, startsInMs, endsInMs };
        const seen = [state, remaining, reservation, Math.ceil(startsInMs / 1e3), Math.ceil(endsInMs / 1e3)].join();
        if (seen != shown) shown = seen, show(now);
      }
      if (Date.now() >= askAtMs) void ask().then(tick);
    };
    const timer = setInterval(tick, TICK_MS), stop = () => clearInterval(timer);
    signal?.addEventListener('abort', stop, { once: true });
    tick();
    return stop;
  }

  /** A sale's state. Gateways know a sale minutes before its start; until then the list shows it. */
  async #find(id: string, options: CallOptions): Promise<Omit<SaleStatus, 'id' | 'now_ms'>> {
    try {
      return await this.status(id, options);
    } catch (error) {
      if ((error as WeirError).code != 'unknown_sale') throw error;
      for (let after: string | undefined; ;) {
        const page = await this.sales({ after, limit: 1_000 }, options);
        const listed = page.sales.find(one => one.id == id);
        if (listed) return { ...listed, reservation: !!listed.reservation };
        if (!(after = page.next ?? undefined)) throw error;
      }
    }
  }

  /**
   * An order token. Solves the checkout's challenge and waits until the token is usable. `order` does this itself; call it
   * earlier, for example when the checkout opens, to have the token ready.
   */
  async token(id: string, options: TokenOptions = {}): Promise<string> {
    const known = this.#tokens.get(id);
    if (known && known.expiresAtMs > this.now()) return known.token;
    const headers: Record<string, string> = {};
    for (let challenges = 0; ; challenges++) {
      try {
        const minted = await this.#timed(() => this.#http.call<OrderToken>('POST', sale(id, '/checkout'), { headers }, options));
        const { token, usable_at_ms, expires_at_ms, now_ms } = minted;
        await sleep(Math.max(0, usable_at_ms - now_ms), options.signal);
        this.#tokens.set(id, { token, expiresAtMs: expires_at_ms });
        return token;
      } catch (error) {
        const challenge = (error as WeirError).problem?.challenge as Schemas['Challenge'] | undefined;
        if (!challenge || challenges == CHALLENGES_MAX) throw error;
        options.onWait?.({ code: 'challenge_required', waitMs: 0 });
        if ('proof_of_work' in challenge) headers['x-weir-solution'] = await solve(challenge.proof_of_work, options.signal);
        else if (options.captcha) headers['x-weir-captcha'] = await options.captcha(challenge.captcha.site_key);
        else throw error;
      }
    }
  }

  /**
   * Orders. Gets a token if the sale needs one, waits in waiting rooms, and repeats the request with its idempotency key
   * until the outcome is known.
   */
  async order(id: string, options: OrderOptions = {}): Promise<Order> {
    const { quantity, payload, click, key = uuid() } = options;
    const { token: needsToken } = await this.status(id, options);
    for (let tokens = 0; ; tokens++) {
      const token = needsToken ? await this.token(id, options) : undefined;
      const headers = {
        'idempotency-key': `"${key}"`, 'x-weir-order-token': token, 'x-weir-click': click,
        'x-weir-quantity': quantity?.toString(),
      };
      try {
        return await this.#http.call('POST', sale(id, '/orders'), { headers, json: payload }, options);
      } catch (error) {
        // An expired one, or one of a key that was removed.
        if ((error as WeirError).code != 'invalid_token' || !token || tokens) throw error;
        this.#tokens.delete(id);
      }
    }
  }

  // Orders

  /** A page of the user's own orders, newest first. */
  orders(query: { limit?: number; after?: string } = {}, options?: CallOptions): Promise<OwnOrders> {
    return this.#http.call('GET', '/my-orders', { query }, options);
  }

  /** An own order, with its last payment. */
  getOrder(id: string, options?: CallOptions): Promise<PaidOrder> {
    return this.#http.call('GET', order(id), {}, options);
  }

  /** Starts a payment. The buyer pays at its `pay_url`. */
  pay(id: string, options?: CallOptions): Promise<Payment> {
    return this.#http.call('POST', order(id, '/pay'), {}, options);
  }

  /** Cancels an unpaid order. */
  cancel(id: string, options?: CallOptions): Promise<Order> {
    return this.#http.call('POST', order(id, '/cancel'), {}, options);
  }

  // Reservations and draws

  reserve(id: string, options?: CallOptions): Promise<Reservation> {
    return this.#http.call('POST', sale(id, '/reservations'), {}, options);
  }

  reservation(id: string, options?: CallOptions): Promise<Reservation> {
    return this.#http.call('GET', sale(id, '/reservations'), {}, options);
  }

  cancelReservation(id: string, options?: CallOptions): Promise<Reservation> {
    return this.#http.call('DELETE', sale(id, '/reservations'), {}, options);
  }

  draw(id: string, options?: CallOptions): Promise<Schemas['Draw']> {
    return this.#http.call('GET', sale(id, '/draw'), { open: true }, options);
  }

  // Waiting rooms

  /**
   * Requests a page or an API behind a waiting room, and waits until the visitor is admitted. `onWait` gets the position.
   * All other calls wait in the same way.
   */
  enter(path: string, options?: CallOptions): Promise<Response> {
    return this.#http.send('GET', path, {}, options);
  }

  // Browse history

  /** A page of the products that the user viewed last. */
  history(query: { limit?: number; before?: string } = {}, options?: CallOptions): Promise<HistoryPage> {
    return this.#http.call('GET', '/history', { query }, options);
  }

  historyCount(options?: CallOptions): Promise<Schemas['HistoryCount']> {
    return this.#http.call('GET', '/history/count', {}, options);
  }

  /** Removes up to 200 products; without any, all. */
  async forget(skus?: string[], options?: CallOptions): Promise<void> {
    if (skus) await this.#http.call('POST', '/history/delete', { json: { skus } }, options);
    else await this.#http.call('DELETE', '/history', {}, options);
  }

  /** Adds the views of this browser's visitor to the signed-in user's history. Call it after each sign-in. */
  async join(visitor = this.events.visitor(), options?: CallOptions): Promise<number> {
    if (!visitor) return 0;
    const told = await this.#http.call<Schemas['HistoryJoined']>('POST', '/history/join', { json: { visitor } }, options);
    return told.joined;
  }

  // Vehicle fitment

  /** Which parts fit which vehicles, by vehicle and SKU: `fits['1000001'].S1`. */
  async fits(vehicles: string[], skus: string[], options?: CallOptions): Promise<Record<string, Record<string, Fit>>> {
    const told = await this.#http.call<Schemas['FitmentAnswers']>('POST', '/fitment/check', { json: { vehicles, skus }, open: true }, options);
    return Object.fromEntries(vehicles.map((vehicle, at) =>
      [vehicle, Object.fromEntries(told.skus.map(({ sku, answers }) => [sku, answers[at] as Fit]))]));
  }

  /** A page of the parts that fit a vehicle. */
  parts(vehicle: string, after?: string, options?: CallOptions): Promise<Schemas['FitmentPage']> {
    return this.#http.call('GET', '/fitment/skus', { query: { vehicle, after }, open: true }, options);
  }

  /** The user's vehicles. */
  async garage(options?: CallOptions): Promise<GarageVehicle[]> {
    return (await this.#http.call<Schemas['Garage']>('GET', '/fitment/garage', {}, options)).vehicles;
  }

  addVehicle(vehicle: string, isDefault = false, options?: CallOptions): Promise<void> {
    const query = { default: isDefault || undefined };
    return this.#http.call('PUT', `/fitment/garage/${encodeURIComponent(vehicle)}`, { query }, options);
  }

  removeVehicle(vehicle: string, options?: CallOptions): Promise<void> {
    return this.#http.call('DELETE', `/fitment/garage/${encodeURIComponent(vehicle)}`, {}, options);
  }
}

/** Solves a proof of work: in a worker, or where there is none, in short steps. */
export async function solve(work: Work, signal?: AbortSignal): Promise<string> {
  signal?.throwIfAborted();
  return (typeof Worker == 'function' && await inWorker(work, signal)) || inSteps(work, signal);
}

/** Null without a worker: a policy may forbid it, and one of another site is not allowed. */
function inWorker(work: Work, signal?: AbortSignal): Promise<string | null> {
  return new Promise((resolve, reject) => {
    let worker: Worker;
    try {
      worker = new Worker(new URL('./weir-worker.js', import.meta.url), { type: 'module' });
    } catch { return resolve(null); }
    const end = () => worker.terminate();
    worker.onmessage = ({ data }) => (end(), resolve(data));
    worker.onerror = event => (event.preventDefault(), end(), resolve(null));
    signal?.addEventListener('abort', () => (end(), reject(signal.reason)), { once: true });
    worker.postMessage(work);
  });
}

async function inSteps(work: Work, signal?: AbortSignal): Promise<string> {
  let pausedMs = Date.now();
  for (const solution of attempts(work, 500)) {
    if (solution) return solution;
    if (Date.now() - pausedMs > 12) await sleep(0, signal), pausedMs = Date.now();
  }
  throw Error('unreachable: a proof of work has a solution');
}

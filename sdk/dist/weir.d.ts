import type { components } from './api.js';
import { type EventOptions, type Events } from './events.js';
import { type CallOptions, type ClientOptions } from './http.js';
import { type Work } from './work.js';
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
    init(options: Omit<EventOptions, 'url'> & {
        url?: string;
    }): void;
}
export interface WatchOptions {
    signal?: AbortSignal;
    /** The interval between requests; each page adds up to as much at random. Default: 60 s. */
    everyMs?: number;
}
export declare class Weir {
    #private;
    /** Sends behaviour events, after `events.init`. */
    readonly events: ClientEvents;
    constructor(options?: ClientOptions);
    /** The server's time, in milliseconds since the Unix epoch. Every answer with a time corrects it. */
    now(): number;
    /** A page of the listed sales. */
    sales(query?: {
        sku?: string;
        tenant?: string;
        limit?: number;
        after?: string;
    }, options?: CallOptions): Promise<Schemas['PublicSales']>;
    /** The state of a sale. */
    status(id: string, options?: CallOptions): Promise<SaleStatus>;
    /**
     * Calls `show` at once and whenever the state, or a second of the countdown, changes. Returns a function that ends it.
     * A page asks rarely, so that many pages cost little.
     */
    watch(id: string, show: (now: SaleNow) => void, { signal, everyMs }?: WatchOptions): () => void;
    /**
     * An order token. Solves the checkout's challenge and waits until the token is usable. `order` does this itself; call it
     * earlier, for example when the checkout opens, to have the token ready.
     */
    token(id: string, options?: TokenOptions): Promise<string>;
    /**
     * Orders. Gets a token if the sale needs one, waits in waiting rooms, and repeats the request with its idempotency key
     * until the outcome is known.
     */
    order(id: string, options?: OrderOptions): Promise<Order>;
    /** A page of the user's own orders, newest first. */
    orders(query?: {
        limit?: number;
        after?: string;
    }, options?: CallOptions): Promise<OwnOrders>;
    /** An own order, with its last payment. */
    getOrder(id: string, options?: CallOptions): Promise<PaidOrder>;
    /** Starts a payment. The buyer pays at its `pay_url`. */
    pay(id: string, options?: CallOptions): Promise<Payment>;
    /** Cancels an unpaid order. */
    cancel(id: string, options?: CallOptions): Promise<Order>;
    reserve(id: string, options?: CallOptions): Promise<Reservation>;
    reservation(id: string, options?: CallOptions): Promise<Reservation>;
    cancelReservation(id: string, options?: CallOptions): Promise<Reservation>;
    draw(id: string, options?: CallOptions): Promise<Schemas['Draw']>;
    /**
     * Requests a page or an API behind a waiting room, and waits until the visitor is admitted. `onWait` gets the position.
     * All other calls wait in the same way.
     */
    enter(path: string, options?: CallOptions): Promise<Response>;
    /** A page of the products that the user viewed last. */
    history(query?: {
        limit?: number;
        before?: string;
    }, options?: CallOptions): Promise<HistoryPage>;
    historyCount(options?: CallOptions): Promise<Schemas['HistoryCount']>;
    /** Removes up to 200 products; without any, all. */
    forget(skus?: string[], options?: CallOptions): Promise<void>;
    /** Adds the views of this browser's visitor to the signed-in user's history. Call it after each sign-in. */
    join(visitor?: string, options?: CallOptions): Promise<number>;
    /** Which parts fit which vehicles, by vehicle and SKU: `fits['1000001'].S1`. */
    fits(vehicles: string[], skus: string[], options?: CallOptions): Promise<Record<string, Record<string, Fit>>>;
    /** A page of the parts that fit a vehicle. */
    parts(vehicle: string, after?: string, options?: CallOptions): Promise<Schemas['FitmentPage']>;
    /** The user's vehicles. */
    garage(options?: CallOptions): Promise<GarageVehicle[]>;
    addVehicle(vehicle: string, isDefault?: boolean, options?: CallOptions): Promise<void>;
    removeVehicle(vehicle: string, options?: CallOptions): Promise<void>;
}
/** Solves a proof of work: in a worker, or where there is none, in short steps. */
export declare function solve(work: Work, signal?: AbortSignal): Promise<string>;

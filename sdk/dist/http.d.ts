import type { components } from './api.js';
type Schemas = components['schemas'];
/** A refusal. `code` is its `error`, such as `sold_out`; `network` if no answer came. */
export declare class WeirError extends Error {
    readonly code: string;
    /** The HTTP status; 0 without an answer. */
    readonly status: number;
    /** The whole answer. */
    readonly problem: Partial<Schemas['Problem']> & Record<string, any>;
    constructor(code: string, message: string, 
    /** The HTTP status; 0 without an answer. */
    status: number, 
    /** The whole answer. */
    problem?: Partial<Schemas['Problem']> & Record<string, any>);
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
/** Waits, or rejects when the signal aborts. */
export declare const sleep: (ms: number, signal?: AbortSignal) => Promise<void>;
export declare class Http {
    #private;
    readonly options: ClientOptions;
    constructor(options: ClientOptions);
    /** The JSON of the answer; undefined if it is empty. */
    call<T>(method: string, path: string, request?: Request, options?: CallOptions): Promise<T>;
    /** Sends until the answer is final. */
    send(method: string, path: string, request?: Request, options?: CallOptions): Promise<Response>;
}
export {};
